"""The start screen: jobs to choose from, or what is wrong and what to type."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import DataTable, Static

from oncall.tui.goto import Target
from oncall.tui.models.jobs import COLUMNS, heading, job_rows
from oncall.tui.registry import ActionEntry
from oncall.tui.screen import ConsoleScreen, Copy
from oncall.tui.state import State


def _no_job(screen: ConsoleScreen) -> str | None:
    return None if screen.state.jobs else "no job was found"


class JobTable(DataTable[str], inherit_bindings=False):
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
    )  # fmt: skip

    def compose_body(self) -> ComposeResult:
        yield Static(id="heading", markup=False)
        yield JobTable(id="jobs", cursor_type="row")

    def show(self, state: State, before: State | None) -> None:
        text = Text(heading(state.jobs, state.busy, state.problem))
        self.query_one("#heading", Static).update(text)
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

    def _under_cursor(self) -> str | None:
        table = self.query_one(JobTable)
        if not table.row_count:
            return None
        return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value

    def go_to(self, target: Target) -> str | None:
        names = [job for job, _ in job_rows(self.state.jobs or (), self.state.filter)]
        if target.value not in names:
            return "no such job here"
        self.query_one(JobTable).move_cursor(row=names.index(str(target.value)), animate=False)
        return None

    def copies(self) -> list[Copy]:
        job = self._under_cursor()
        if job is None:
            return []
        return [Copy("t", "name", job), Copy("c", "command", f"oncall diagnose --job {job}")]

    def on_data_table_row_selected(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        if job := self._under_cursor():
            self.app.open_job(job)
