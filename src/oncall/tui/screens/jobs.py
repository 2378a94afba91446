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


class JobsScreen(ConsoleScreen):
    """The jobs of the session in a table."""

    ACTIONS = (
        ActionEntry("jobs.open", "enter,l,right", "Open", "Open the job under the cursor.",
                    _no_job, bar=True),
    )  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = [
        ("j", "move(1)", "Down"),
        ("k", "move(-1)", "Up"),
        ("g", "ends(0)", "Top"),
        ("G", "ends(1)", "End"),
    ]

    def compose_body(self) -> ComposeResult:
        yield Static(id="heading", markup=False)
        yield DataTable(id="jobs", cursor_type="row")

    def show(self, state: State, before: State | None) -> None:
        text = Text(heading(state.jobs, state.busy, state.problem))
        self.query_one("#heading", Static).update(text)
        if before is None or (state.jobs, state.filter) != (before.jobs, before.filter):
            self._fill(state)

    def _fill(self, state: State) -> None:
        table = self.query_one(DataTable)
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
        table = self.query_one(DataTable)
        if not table.row_count:
            return None
        return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value

    def go_to(self, target: Target) -> str | None:
        names = [job for job, _ in job_rows(self.state.jobs or (), self.state.filter)]
        if target.value not in names:
            return "no such job here"
        self.query_one(DataTable).move_cursor(row=names.index(str(target.value)), animate=False)
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

    def action_move(self, rows: int) -> None:
        table = self.query_one(DataTable)
        table.move_cursor(row=table.cursor_row + rows, animate=False)

    def action_ends(self, end: int) -> None:
        table = self.query_one(DataTable)
        table.move_cursor(row=table.row_count - 1 if end else 0, animate=False)
