"""The evidence behind a step of a story: the rows, the parameters that decided, and the SQL; read
once the cursor rests on the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.timer import Timer

from oncall.core.printable import clean
from oncall.tui.drawing.literal import LiteralText
from oncall.tui.drawing.states import role_styles
from oncall.tui.models.reading import spans
from oncall.tui.models.rows import StepView, step_view
from oncall.tui.shell.messages import Refused
from oncall.tui.widgets.sheet_table import SheetTable
from oncall.views.snapshot import StepRows


class StepPane(Vertical):
    """Shows a `StepView`, or a sentence in its place."""

    HELP = (
        "The rows behind a step. Values that all rows share are shown once above them; `·` is"
        " unknown. Below are the parameters that decided, which a site can change, and the SQL."
        " esc goes back."
    )

    DEFAULT_CSS = """
    StepPane { padding: 0 1; }
    StepPane > .pane-title { height: auto; }
    StepPane > .shared { height: auto; color: $muted; }
    StepPane > SheetTable { max-height: 60%; margin-bottom: 1; }
    StepPane > VerticalScroll { height: 1fr; }
    StepPane VerticalScroll > Static { height: auto; width: 100%; }
    """

    def __init__(self, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.view: StepView | None = None
        self.sources: tuple[str, ...] = ()  # what the finding's rulebook rests on

    def compose(self) -> ComposeResult:
        yield LiteralText(classes="pane-title")
        yield LiteralText(classes="shared")
        yield SheetTable(id="step-rows")
        with VerticalScroll(id="step-sql"):
            yield LiteralText()

    def say(self, text: str) -> None:
        """A sentence instead of rows: being read, or why not."""
        self.view = None
        self.query_one(".pane-title", LiteralText).update(Text(text, role_styles(self)["faint"]))
        for widget in (self.query_one(".shared"), self.query_one(SheetTable)):
            widget.display = False
        self.query_one("#step-sql LiteralText", LiteralText).update("")  # stays, for the focus

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self._draw())

    def show(self, view: StepView) -> None:
        if view != self.view:
            self.view = view
            self._draw()

    def _draw(self) -> None:
        if (view := self.view) is None:
            return
        self.query_one(".pane-title", LiteralText).update(
            Text(view.title, role_styles(self)["heading"])
        )
        shared = self.query_one(".shared", LiteralText)
        shared.update(f"every row: {view.sheet.shared}")
        shared.display = bool(view.sheet.shared)
        table = self.query_one(SheetTable)
        table.show(view.sheet)
        table.display = bool(view.sheet.rows)
        if self.has_focus_within and table.display:
            table.focus()
        self.query_one("#step-sql LiteralText", LiteralText).update(self._explanation(view))

    def _explanation(self, view: StepView) -> Text:
        """The parameters first: they are what a site may change."""
        styles = role_styles(self)
        text = Text()
        if view.params:
            text.append("Decided by\n", styles["heading"])
        for name, value in view.params:
            text.append(f" {name} = ", styles["faint"])
            text.append(f"{value}\n", styles["value"])
        if view.params:
            text.append("\n")
        text.append("Found by\n", styles["heading"])
        for line in view.sql.splitlines():
            text.append_text(coloured(line, styles))
            text.append("\n")
        if self.sources:
            text.append("\nSources\n", styles["heading"])
        for source in self.sources:
            text.append(f" {clean(source)}\n")
        text.rstrip()
        return text


def coloured(line: str, styles: Mapping[str, Style]) -> Text:
    """A line of SQL with its words in colour, one space in."""
    text = Text(f" {line}")
    for start, end, role in spans(line):
        text.stylize(styles[role], start + 1, end + 1)
    return text


_AFTER_S = 0.15  # of rest on a step: scrolling through the reasoning asks for nothing


@dataclass(frozen=True)
class StepAt:
    """A step of a finding, the fact that its rows should be of, and in which snapshot."""

    finding: str
    index: int
    fact: str
    snapshot: int


class RowsBehind:
    """Keeps the pane at the step that is wanted; `ask` asks the session for its rows."""

    def __init__(self, pane: StepPane, ask: Callable[[StepAt], None]) -> None:
        self._pane = pane
        self._ask = ask
        self._wanted: StepAt | None = None
        self._asking: Timer | None = None

    def want(self, step: StepAt) -> None:
        """Soon, unless another is wanted before; not again what is there or on its way."""
        if step == self._wanted or not self._pane.display:
            return
        self._wanted = step
        if self._pane.view is None:
            self._pane.say("reading the rows …")
        if self._asking is not None:
            self._asking.stop()
        self._asking = self._pane.set_timer(_AFTER_S, lambda: self._ask(step))

    def leave(self) -> None:
        """What is shown now has no steps."""
        self._wanted = None
        self._pane.say("Select a step to see the rows of evidence behind it.")

    def answered(self, behind: StepRows) -> None:
        """Rows of another fact are those of a finding that took this one's number meanwhile."""
        if self._wanted is not None and behind.fact == self._wanted.fact:
            self._pane.show(step_view(behind))

    def refused(self, message: Refused) -> None:
        self._wanted = None
        self._pane.say(f"cannot read the rows: {message.error}")
