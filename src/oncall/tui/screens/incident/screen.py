"""The incident: what is wrong, who it is, why that is believed, and what to do next.

The first thing seen at night. The list holds findings, the story tells the one under the cursor;
beside them (or above, on a narrow terminal) is the job at a glance, in whose place `w` shows the
rows behind a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from textual import on
from textual.app import ComposeResult
from textual.containers import Container, Horizontal
from textual.widget import AwaitMount

from oncall.console.evidence_queries import GetStepRows
from oncall.console.queries import GetReport
from oncall.core.diagnosis import Finding
from oncall.core.errors import OncallError
from oncall.core.printable import clean
from oncall.fleet.read_only import read_only_command
from oncall.render.markdown import to_line
from oncall.tui.screens.incident import model
from oncall.tui.screens.incident.glance_screen import GlanceScreen
from oncall.tui.screens.incident.story import story
from oncall.tui.screens.incident.verdict import (
    BESIDE,
    Findings,
    GlancePane,
    StepAt,
    StepPane,
    Story,
    Verdict,
)
from oncall.tui.shell.actions import Needs, needs, needs_snapshot
from oncall.tui.shell.goto import Target
from oncall.tui.shell.keys import ActionEntry, always
from oncall.tui.shell.lines import KeyBar
from oncall.tui.shell.messages import Copy
from oncall.tui.shell.node_work import ProbeScreen, RunScreen, blamed_nodes, why_not_probed
from oncall.tui.shell.state import State
from oncall.tui.widgets.reading_list import ReadingList
from oncall.tui.widgets.sheet_table import SheetTable
from oncall.views.snapshot import Snapshot
from oncall.views.words import first_command, next_command

_no_step: Needs[IncidentScreen] = needs(
    "no step under or below the cursor", lambda screen: screen.step(), always
)
_no_command: Needs[IncidentScreen] = needs(
    "this finding suggests no command", lambda screen: screen.commands(), always
)


def _not_runnable(screen: IncidentScreen) -> str | None:
    if not (command := screen.command()):
        return "this finding suggests no command"
    if not screen.state.live:
        return "this is a recording, so there are no nodes to run it on; c copies it"
    try:
        read_only_command(command, screen.blamed_node())
    except OncallError as error:
        return str(error)
    return None


_no_rank: Needs[IncidentScreen] = needs(
    "this finding names no rank", lambda screen: screen.rank() is not None, always
)


def _no_node(screen: IncidentScreen) -> str | None:
    if why := needs_snapshot(screen):
        return why
    nodes, snapshot = screen.nodes(), screen.state.snapshot
    if not nodes or snapshot is None:
        return "this finding blames no node"
    return why_not_probed(snapshot, screen.state.live, nodes)


_nothing_folded: Needs[IncidentScreen] = needs(
    "this finding explains no other",
    lambda screen: (line := screen.line()) and (line.folds or line.depth),
    always,
)

ACTIONS: tuple[ActionEntry[Any], ...] = (
    ActionEntry("incident.rows", "w", "Why",
                "Show the rows behind this step, the parameters that decided, and the SQL.",
                _no_step, bar=True),
    ActionEntry("incident.command", "c", "Next command",
                "Copy the next suggested command; press again for the one after it.",
                _no_command, bar=True),
    ActionEntry("incident.run", "exclamation_mark", "Run",
                "Run the suggested command under the cursor, else the next one, if it only reads.",
                _not_runnable, bar=True),
    ActionEntry("incident.rank", "r", "Rank",
                "Show the first blamed rank in the fleet.", _no_rank),
    ActionEntry("incident.probe", "p", "Probe",
                "Ping between the blamed nodes and a few others now.",
                _no_node, bar=True),
    ActionEntry("incident.fold", "o", "Unfold",
                "Show or hide the findings that this one explains.",
                _nothing_folded),
)  # fmt: skip


class IncidentScreen(GlanceScreen):
    """Findings, story, rows."""

    ACTIONS = ACTIONS
    CSS_PATH = "incident.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (BESIDE, "-beside")]  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self._incident: model.Incident | None = None
        self._opened: frozenset[str] = frozenset()
        self._known: frozenset[str] | None = None
        self._chosen: str | None = None  # the name of the line that the reader went to
        self._shown_finding: str | None = None  # the name of the finding in the story

    def compose_body(self) -> ComposeResult:
        yield Verdict(id="verdict")
        with Horizontal(id="incident"):
            with Container(id="reading"):
                yield Findings(id="findings")
                yield Story(id="story")
            yield GlancePane(id="glance")
            yield StepPane(self._ask_rows, id="rows")

    # ------------------------------------------------------------------ showing

    def show(self, state: State, before: State | None) -> None:
        super().show(state, before)
        if state.snapshot is not None and not self.focused:
            self._findings.focus()

    def show_snapshot(self, snapshot: Snapshot) -> None:
        self.show_narrowed()
        self.ask_glance(snapshot)

    def show_narrowed(self) -> None:
        """The list anew; the reader stays with the finding that they chose."""
        state = self.state
        if (snapshot := state.snapshot) is None:
            return
        here = self._findings.item.name if self._findings.item else None
        shown = self._incident
        self._incident = found = model.incident(
            snapshot, self._opened, self._known, self._chosen, state.filter, state.faults_only
        )
        if self._known is None and not snapshot.diagnosis.pending:
            self._known = frozenset(line.name for line in found.lines)
        self.query_one(Verdict).show(found.headline, next_command(snapshot.diagnosis))
        items = model.items(found)
        if items:
            # Who has not moved yet and reads no story sees the worst, whenever it comes.
            reads = not self._findings.has_focus and here != model.SEEN
            wanted = self._chosen or (here if reads else None)
            was_at = [line.name for line in shown.lines].index(here) if shown and here else 0
            place = model.place(found.lines, wanted, was_at)
            self._findings.show(items, at=items[place].name)
        self._show_story()

    def _show_story(self) -> None:
        """The story of the line under the cursor; from its start only if it is another's."""
        line, snapshot = self.line(), self.state.snapshot
        if line is None or snapshot is None:
            return
        items = story(snapshot, line.finding)
        if line.name == self._shown_finding:
            self._story.show(items)
        else:
            self._shown_finding = line.name
            self._story.scroll_home(animate=False, immediate=True)
            self._story.show(items, at=model.beginning(items, line.finding))
        self._rows.sources = line.finding.sources if line.finding else ()
        self._want_rows()
        self.want_picture()

    def on_descendant_focus(self) -> None:
        self.set_class(self._story.has_focus, "in-story")

    # ------------------------------------------------------- rows behind a step

    def _want_rows(self) -> None:
        """The rows of the step that the cursor is on or below; of what has no steps, none."""
        if (step := self.step()) is None:
            self._rows.leave()
        else:
            self._rows.want(step)

    def _ask_rows(self, step: StepAt) -> None:
        rows = GetStepRows(step.finding, step.index)
        self.ask("rows", rows, self._rows.answered, refused=self._rows.refused)

    # -------------------------------------------------------- where the cursor is

    @property
    def _findings(self) -> ReadingList:
        return self.query_one("#findings", ReadingList)

    @property
    def _story(self) -> ReadingList:
        return self.query_one("#story", ReadingList)

    @property
    def _rows(self) -> StepPane:
        return self.query_one("#rows", StepPane)

    def line(self) -> model.Line | None:
        """The line of the list under the cursor."""
        item = self._findings.item
        return self._incident.line(item.name) if self._incident and item else None

    def finding(self) -> Finding | None:
        line = self.line()
        return line.finding if line else None

    def step(self) -> StepAt | None:
        """The step with rows that the cursor of the story is on, or else below: a command follows
        from the conclusion."""
        finding, snapshot = self.finding(), self.state.snapshot
        if finding is None or snapshot is None:
            return None
        at = model.step_at(self._story.items, self._story.item, finding)
        if at is None:
            return None
        return StepAt(finding.id, at, finding.story[at].fact, snapshot.version)

    def commands(self) -> list[str]:
        """The names of the story's items that are commands."""
        return [item.name for item in self._story.items if item.kind == "command"]

    def rank(self) -> int | None:
        """The rank that the item or the finding is about."""
        item, finding = self._story.item, self.finding()
        if item is not None and item.rank is not None:
            return item.rank
        ranks = [one.where.get("rank") for one in finding.blame] if finding else []
        return next((int(rank) for rank in ranks if rank is not None), None)

    @on(ReadingList.Moved, "#findings")
    def _another_finding(self, message: ReadingList.Moved) -> None:
        message.stop()
        if message.item is not None and message.by_reader:
            self._chosen = message.item.name
        if message.item is not None and self._known is not None:
            self._known |= {message.item.name}
        self._show_story()

    @on(ReadingList.Moved, "#story")
    def _another_step(self, message: ReadingList.Moved) -> None:
        message.stop()
        self._want_rows()
        self.query_one(KeyBar).show(self.state)

    @on(ReadingList.Chosen, "#findings")
    def _read_story(self, message: ReadingList.Chosen) -> None:
        message.stop()
        if message.item is not None:
            self._chosen = message.item.name
        self._story.focus()

    @on(ReadingList.Chosen, "#story")
    def _open_item(self, message: ReadingList.Chosen) -> None:
        message.stop()
        if message.item is not None and message.item.rank is not None:
            self.action_rank()
        elif self.step() is not None:
            self.action_rows()

    # ------------------------------------------------------------------ actions

    def action_rows(self) -> None:
        self.add_class("rows-open")
        self.call_after_refresh(self._enter_rows)

    def _enter_rows(self) -> None:
        self._want_rows()
        table = self.query_one(SheetTable)
        (table if table.display else self.query_one("#step-sql")).focus()

    def action_command(self) -> None:
        """From command to command, each copied as the cursor comes to it."""
        names = self.commands()
        here = self._story.item.name if self._story.item else ""
        following = names[(names.index(here) + 1) % len(names) if here in names else 0]
        self._story.focus()
        self._story.go_to(following)
        if item := self._story.item:
            self.app.copy_to_clipboard(item.copy)
            self.tell(f"copied: {item.copy}")

    def command(self) -> str:
        """The command under the cursor of the story, else the first of the finding."""
        item = self._story.item
        if item is not None and item.kind == "command":
            return item.copy
        finding, snapshot = self.finding(), self.state.snapshot
        if finding is None:
            return next_command(snapshot.diagnosis) if snapshot else ""
        return first_command(finding.next)

    def action_run(self) -> AwaitMount:
        runs = read_only_command(self.command(), self.blamed_node())
        return self.app.push_screen(RunScreen(self.command(), runs, self.cursor_is_on()))

    def action_rank(self) -> None:
        if (rank := self.rank()) is not None:
            self.app.go_to(Target("rank", rank))

    def nodes(self) -> tuple[str, ...]:
        """The nodes that the finding blames."""
        snapshot = self.state.snapshot
        return blamed_nodes(snapshot, self.finding()) if snapshot is not None else ()

    def blamed_node(self) -> str:
        """The node that the finding blames, if it is one alone."""
        nodes = self.nodes()
        return nodes[0] if len(nodes) == 1 else ""

    def place_here(self) -> Mapping[str, str]:
        finding = self.finding()
        blame = finding.blame if finding is not None else ()
        ranks = {str(one.where["rank"]) for one in blame if "rank" in one.where}
        return {"node": self.blamed_node(), "rank": ranks.pop() if len(ranks) == 1 else ""}

    def action_probe(self) -> AwaitMount:
        return self.app.push_screen(ProbeScreen(self.nodes()))

    def action_fold(self) -> None:
        line, found = self.line(), self._incident
        if line is None or found is None:
            return
        above = found.lines[: found.lines.index(line) + 1]
        root = next(one for one in reversed(above) if not one.depth)
        self._opened ^= {root.name}
        if line.depth:
            self._chosen = root.name
            self._findings.go_to(root.name)
        self.show_narrowed()

    def leave(self) -> bool:
        """From the rows to the story, from the story to the list; the rows close with either."""
        if self._rows.has_focus_within:
            self.remove_class("rows-open")
            self._story.focus()
            return True
        if self._story.has_focus:
            self._findings.focus()
            return True
        if self.has_class("rows-open"):
            self.remove_class("rows-open")
            return True
        return False

    def go_to(self, target: Target) -> str | None:
        """A finding by its id, or the first of a verdict."""
        wanted = str(target.value).upper()
        for line in self._incident.lines if self._incident else ():
            if (found := line.finding) is not None and wanted in (found.id, found.verdict):
                self._findings.go_to(line.name)
                return None
        return "there is no such finding here"

    def cursor_is_on(self) -> str:
        finding = self.finding()
        return f"{finding.id} {clean(finding.title)}" if finding else ""

    def copies(self) -> list[Copy]:
        """What is under the cursor first; then the whole, as the report tells it."""
        copies: list[Copy] = []
        if self._rows.has_focus_within and self._rows.sheet is not None:
            copies += [
                Copy("r", "row", self.query_one(SheetTable).row_text()),
                Copy("a", "all rows", self._rows.sheet.lines()),
                Copy("q", "SQL", self._rows.sql),
            ]
        else:
            of_list = self._findings.has_focus
            item = self._findings.item if of_list else self._story.item
            if item is not None and item.kind == "command":
                return [Copy("c", "the command", item.copy)]
            if item is not None and item.copy:
                copies.append(Copy("l", "line", item.copy))
        if (snapshot := self.state.snapshot) is not None:
            said = to_line(snapshot.diagnosis, self.finding(), snapshot.moment.at_ns)
            copies.append(Copy("h", "one line for a chat", said))
        copies.append(Copy("k", "ticket of one page", GetReport("ticket")))
        copies.append(Copy("t", "report as text", GetReport("text")))
        copies.append(Copy("m", "report as Markdown", GetReport("markdown")))
        return copies
