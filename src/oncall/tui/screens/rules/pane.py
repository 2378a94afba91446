"""One rulebook being edited: its name, its text, and the result of checking or trying it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import TextArea

from oncall.core.errors import RulebookError
from oncall.tui.drawing.literal import LiteralText
from oncall.tui.drawing.states import role_styles
from oncall.tui.models.reading import Item
from oncall.tui.models.rows import Sheet, sheet
from oncall.tui.screens.rules import model
from oncall.tui.screens.rules.drafts import Buffer
from oncall.tui.screens.rules.editor import RuleEditor
from oncall.tui.widgets.reading_list import ReadingList
from oncall.tui.widgets.sheet_table import SheetTable
from oncall.views.snapshot import DryRun, Problem, RuleLine, Table


class RulePane(Vertical):
    """Shows a `Buffer`. What is typed comes out as `TextArea.Changed`."""

    def __init__(self, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.checks = True  # below the text: what is wrong with it
        self._why_skipped = ""

    def compose(self) -> ComposeResult:
        yield LiteralText(id="rule-title")
        yield RuleEditor(id="rule-text")
        yield Outcome(id="outcome")

    @property
    def editor(self) -> RuleEditor:
        return self.query_one(RuleEditor)

    @property
    def outcome(self) -> Outcome:
        return self.query_one(Outcome)

    def load(self, buffer: Buffer, rule: RuleLine | None) -> None:
        """Load another rulebook, or the same one again, without counting that as typing."""
        self.checks = True
        with self.prevent(TextArea.Changed):
            self.editor.load_text(buffer.text)
        self.tell(buffer, rule)
        self.show_problems(buffer)

    def tell(self, buffer: Buffer, rule: RuleLine | None) -> None:
        """The title, and what is wrong in the lines where it is wrong. `rule` is as listed."""
        styles = role_styles(self)
        title = Text.assemble((f"{buffer.name}.yaml  ", styles["strong"]))
        if buffer.unsaved:
            title.append("● not saved, kept as a draft", styles["value"])
        else:
            title.append(rule.path if rule else "", styles["faint"])
        self.query_one("#rule-title", LiteralText).update(title)
        self.editor.mark(buffer.problems or ())
        why_skipped = rule.why_skipped if rule else ""
        if why_skipped != self._why_skipped:
            self._why_skipped = why_skipped
            self.show_problems(buffer)

    def show_problems(self, buffer: Buffer) -> None:
        """What is wrong, unless something was run since the last change: that stays."""
        if self.checks:
            self._show("Check", model.check_items(buffer.problems, self._why_skipped))

    def await_outcome(self, title: str) -> None:
        """A trial runs: its outcome replaces the result of the check."""
        self.checks = False
        self._show(title, model.said_items("…", "faint"))

    def show_dry_run(self, run: DryRun, saving: bool) -> None:
        """`saving`: it was made because the text is to be saved."""
        then = ": problems, not saved" if run.problems else ": press ctrl+s again to save"
        self._show(f"Dry run{then if saving else ''}", model.dry_run_items(run))

    def show_rows(self, title: str, rows: Table) -> None:
        self.outcome.show_rows(title, sheet(rows))

    def show_tests(self, name: str, results: Table) -> None:
        self._show(f"Tests of {name} with the text shown", model.result_items(results))

    def show_saved(self, path: str) -> None:
        self._show("Saved", model.said_items(f"✔ written to {path}", "healthy"))

    def show_failure(self, error: Exception) -> None:
        if isinstance(error, RulebookError):
            wrong = [Problem(one.line, one.column, one.message) for one in error.problems]
            self._show("Failed", model.problem_items(wrong))
        else:
            self._show("Failed", model.said_items(str(error), "critical"))

    def _show(self, title: str, items: Sequence[Item]) -> None:
        self.outcome.show_lines(title, items)

    def fact(self) -> str | None:
        """The fact that the cursor is in."""
        return model.fact_at(self.editor.text, self.editor.cursor_location[0])

    @on(ReadingList.Chosen, "#outcome-lines")
    def _to_problem(self, message: ReadingList.Chosen) -> None:
        """Enter on a problem goes to its line."""
        message.stop()
        if message.item is not None and (place := model.place_of(message.item)) is not None:
            self.editor.focus()
            self.editor.move_cursor(place, center=True)


class Outcome(Vertical):
    """The last result; the next one takes its place."""

    def compose(self) -> ComposeResult:
        yield LiteralText(id="outcome-title")
        yield ReadingList(id="outcome-lines")
        yield SheetTable(id="outcome-rows")

    def show_lines(self, title: str, items: Sequence[Item]) -> None:
        self._entitle(title)
        self.query_one(SheetTable).display = False
        lines = self.query_one(ReadingList)
        lines.display = True
        lines.show(items)

    def show_rows(self, title: str, sheet: Sheet) -> None:
        shared = f"every row: {sheet.shared}" if sheet.shared else ""
        self._entitle(f"{title} · {sheet.counted}", shared)
        self.query_one(ReadingList).display = False
        table = self.query_one(SheetTable)
        table.display = bool(sheet.rows)
        table.show(sheet)

    def _entitle(self, title: str, more: str = "") -> None:
        styles = role_styles(self)
        text = Text(title, styles["heading"])
        if more:
            text.append(f"\n{more}", styles["faint"])
        self.query_one("#outcome-title", LiteralText).update(text)
