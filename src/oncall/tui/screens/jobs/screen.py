"""The start screen: jobs to choose from, or what is wrong and what to type."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll

from oncall.core.printable import typed
from oncall.tui.drawing.literal import LiteralTable, LiteralText
from oncall.tui.drawing.states import theme_style
from oncall.tui.screens.jobs.model import COLUMNS, heading, job_rows, trouble_lines
from oncall.tui.shell.action import ActionEntry, always
from oncall.tui.shell.actions import Needs, needs
from oncall.tui.shell.goto import Target
from oncall.tui.shell.lines.phrases import busy_phrase
from oncall.tui.shell.messages import Copy
from oncall.tui.shell.screen import ConsoleScreen
from oncall.tui.shell.state import State

_no_job: Needs[ConsoleScreen] = needs("no jobs found", lambda screen: screen.state.jobs, always)
_no_command: Needs[ConsoleScreen] = needs(
    "there is no command to suggest", lambda screen: _commands(screen.state), always
)


def _commands(state: State) -> list[str]:
    return [one.command for one in state.troubles if one.command]


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
        if before is None or (state.jobs, state.filter) != (before.jobs, before.filter):
            self._fill(state)

    def _fill(self, state: State) -> None:
        table = self.query_one(JobTable)
        chosen = self._under_cursor()
        table.clear(columns=True)
        rows = job_rows(state.jobs or (), state.filter)
        table.display = bool(rows)
        if not rows:
            return
        table.add_columns(*COLUMNS)
        for job, cells in rows:
            table.add_row(*cells, key=job)
        names = [job for job, _ in rows]
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
