"""The start screen: jobs to choose from, or what is wrong and what to type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll

from oncall.core.printable import clean, short, shortened, typed
from oncall.tui.drawing.literal import LiteralTable, LiteralText
from oncall.tui.drawing.states import role_styles, theme_style
from oncall.tui.shell.actions import Needs, needs
from oncall.tui.shell.goto import Target
from oncall.tui.shell.keys import ActionEntry, always
from oncall.tui.shell.lines import busy_phrase
from oncall.tui.shell.messages import Copy
from oncall.tui.shell.screen import ConsoleScreen
from oncall.tui.shell.state import State
from oncall.views.words import instant

if TYPE_CHECKING:
    from oncall.views.snapshot import HostTrouble, JobLine

_no_job: Needs[ConsoleScreen] = needs("no jobs found", lambda screen: screen.state.jobs, always)
_no_command: Needs[ConsoleScreen] = needs(
    "there is no command to suggest", lambda screen: _commands(screen.state), always
)


def _commands(state: State) -> list[str]:
    return [one.command for one in state.troubles if one.command]


def _with_open(state: State) -> list[JobLine]:
    """The jobs, the open one with the verdict that its own screens show."""
    if (shown := state.snapshot) is None:
        return [*(state.jobs or ())]
    from oncall.views.ranks.ranks import judged  # brings numpy, which the list does without

    now = shown.diagnosis, shown.ranks, shown.moment.at_ns
    return [judged(one, *now) if one.job == state.job else one for one in state.jobs or ()]


class JobTable(LiteralTable, inherit_bindings=False):
    """Rows with a cursor; `enter` is the screen's."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("j,down", "cursor_down", "Down"),
        ("k,up", "cursor_up", "Up"),
        ("g,home", "scroll_top", "First"),
        ("G,end", "scroll_bottom", "Last"),
        ("ctrl+d,pagedown", "page_down", "A page down"),
        ("ctrl+u,pageup", "page_up", "A page up"),
    ]


class JobsScreen(ConsoleScreen):
    """The jobs of the session in a table."""

    ACTIONS = (
        ActionEntry("jobs.open", "enter,l,right", "Open", "Open the job under the cursor.",
                    _no_job, bar=True),
        ActionEntry("jobs.command", "c", "Next command",
                    "Copy the next command that fixes a problem; press again for the one after it.",
                    _no_command, bar=True),
    )  # fmt: skip

    def compose_body(self) -> ComposeResult:
        yield LiteralText(id="heading")
        yield JobTable(id="jobs", cursor_type="row")
        with VerticalScroll(id="troubles", can_focus=False):
            yield LiteralText(id="wrong")

    def on_mount(self) -> None:
        self._copied = -1  # which command was copied last

    def show(self, state: State, before: State | None) -> None:
        # Without a title nothing is open: what was typed may have named nodes.
        live = state.live or not state.title
        said = heading(state.jobs, busy_phrase(state), state.problem, state.troubles, live=live)
        text = Text(said)
        self.query_one("#heading", LiteralText).update(text)
        if before is None or state.troubles != before.troubles:
            self._copied = -1
            self._show_troubles(state)
        listed = state.jobs, state.filter, state.snapshot
        if before is None or listed != (before.jobs, before.filter, before.snapshot):
            self._fill(state)

    def _fill(self, state: State) -> None:
        table = self.query_one(JobTable)
        chosen = self._under_cursor()
        rows = job_rows(_with_open(state), state.filter)
        table.display = bool(rows)
        styles, room = role_styles(self), max(_LEAST_VERDICT, self.size.width - _OTHER_COLUMNS)
        severity = {line.job: line.severity for line in _with_open(state)}
        shown: dict[str, Sequence[str | Text]] = {
            job: [name, Text(shortened(verdict, room), styles[severity[job] or "text"]), *others]
            for job, (name, verdict, *others) in rows
        }
        table.fill(COLUMNS, shown)
        if not shown:
            return
        names = list(shown)
        table.move_cursor(row=names.index(chosen) if chosen in names else 0, animate=False)
        table.focus()

    def _show_troubles(self, state: State) -> None:
        """The problems, each with the command that `c` copies; the last one copied stands out."""
        strong, muted = theme_style(self.app, "primary", bold=True), theme_style(self.app, "muted")
        copied = _commands(state)[self._copied] if self._copied >= 0 else None
        text = Text()
        for what, command in trouble_lines(state.troubles):
            text.append(what + "\n")
            if command:
                text.append(f"    $ {command}\n", strong if command == copied else muted)
        self.query_one("#troubles").display = bool(state.troubles)
        self.query_one("#wrong", LiteralText).update(text)

    def _under_cursor(self) -> str | None:
        table = self.query_one(JobTable)
        if not table.row_count:
            return None
        return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value

    def go_to(self, target: Target) -> str | None:
        names = [job for job, _ in job_rows(self.state.jobs or (), self.state.filter)]
        if target.value not in names:
            return "there is no such job here"
        self.query_one(JobTable).move_cursor(row=names.index(str(target.value)), animate=False)
        return None

    def copies(self) -> list[Copy]:
        job = self._under_cursor()
        if job is None:
            each = enumerate(_commands(self.state)[:9], 1)
            return [Copy(str(number), command, command) for number, command in each]
        return [
            Copy("t", "name", job),
            Copy("c", "command", typed("oncall diagnose --job {job}", job=job)),
        ]

    def action_command(self) -> None:
        commands = _commands(self.state)
        self._copied = (self._copied + 1) % len(commands)
        self.app.copy_to_clipboard(commands[self._copied])
        self._show_troubles(self.state)
        self.tell(f"copied: {commands[self._copied]}")

    def on_data_table_row_selected(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        if job := self._under_cursor():
            self.app.open_job(job)


COLUMNS = ("job", "verdict", "ranks waiting", "nodes", "state", "last evidence")

_LEAST_VERDICT, _OTHER_COLUMNS = 24, 77  # columns of the terminal

_WHAT_TO_TYPE = """\
R                     try again
oncall doctor NODES   shows what is wrong on each node and how to fix it
oncall open PATH      opens a recording instead"""
_OF_RECORDINGS = """\
R                  try again
oncall open PATH   opens another recording"""


def trouble_lines(troubles: Sequence[HostTrouble]) -> list[tuple[str, str]]:
    """(what is wrong with which hosts, the command to type or "")."""
    return [
        (
            f"{'✖' if one.silent else '▲'} {one.hosts}"
            + (f" ({one.count:,})" if one.count > 1 else "")
            + f"  {one.what}",
            one.command,
        )
        for one in troubles
    ]


def job_rows(jobs: Sequence[JobLine], filter_text: str = "") -> list[tuple[str, tuple[str, ...]]]:
    """(job, cells in the order of COLUMNS) of those whose name, state or verdict holds the
    text."""
    wanted = filter_text.casefold()
    return [
        (
            line.job,
            (
                short(line.job),
                clean(line.verdict or "…"),
                f"{line.waiting if line.verdict else '?'} of {line.ranks or '?'}",
                f"{line.nodes:,}" if line.nodes else "?",
                short(line.state),
                "unknown" if line.last_ns is None else instant(line.last_ns),
            ),
        )
        for line in jobs
        if wanted in f"{line.job} {line.state} {line.verdict}".casefold()
    ]


def heading(
    jobs: Sequence[JobLine] | None,
    busy: str,
    problem: str,
    troubles: Sequence[HostTrouble] = (),
    *,
    live: bool = True,
) -> str:
    """The line above the jobs. Where `troubles` are listed below, each host's own is not."""
    if not jobs and problem:
        why = problem.partition(": ")[0] + "." if troubles else _one_a_line(problem)
        return f"{why}\n\n{_WHAT_TO_TYPE if live else _OF_RECORDINGS}"
    if not jobs:
        return f"{busy or 'looking for jobs'} …" if busy or jobs is None else "No jobs found."
    if problem and live:
        return "The job cannot be read yet; oncall asks its nodes again every few seconds."
    if len(jobs) == 1:
        return "One job:"
    return f"{len(jobs)} jobs; enter opens one, / filters."


def _one_a_line(problem: str) -> str:
    """A list of hosts as a list."""
    head, colon, rest = problem.partition(": ")
    if not colon or "; " not in rest:
        return problem
    return "\n".join([head + ":", *(f"  {part}" for part in rest.split("; "))])
