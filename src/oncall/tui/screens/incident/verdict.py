"""The panes of the incident screen: the verdict, its two lists, the job at a glance, and the
evidence behind a step: the rows, the parameters that decided and the SQL, read once the cursor
rests on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.timer import Timer

from oncall.core.printable import clean, clean_lines
from oncall.tui.drawing.literal import LiteralText
from oncall.tui.drawing.states import role_styles, state_styles
from oncall.tui.models.rates import Kind
from oncall.tui.screens.incident import overview
from oncall.tui.screens.incident.model import Headline
from oncall.tui.screens.rates import kind_styles
from oncall.tui.shell.messages import Refused
from oncall.tui.widgets.reading_list import ReadingList, spans
from oncall.tui.widgets.sheet_table import Sheet, SheetTable, sheet
from oncall.views.snapshot import StepRows


class Verdict(Vertical):
    """One sentence that is read from afar, a quiet line under it, and the next command."""

    DEFAULT_CSS = """
    Verdict { height: auto; background: $surface; padding: 0 1; }
    Verdict > #sentence { height: auto; max-height: 4; }
    Verdict > #command { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    Verdict > #about { height: 1; color: $muted; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def __init__(self, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._headline: Headline | None = None
        self._command = ""

    def compose(self) -> ComposeResult:
        yield LiteralText(id="sentence")
        yield LiteralText(id="about")
        yield LiteralText(id="command")

    def show(self, headline: Headline, command: str) -> None:
        """The verdict, and what to type next about it: that line goes where there is nothing."""
        if (headline, command) != (self._headline, self._command):
            self._headline, self._command = headline, command
            self._draw()

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self._draw())

    def _draw(self) -> None:
        if (headline := self._headline) is None:
            return
        styles = role_styles(self)
        style = styles[headline.severity]
        found = headline.severity not in ("healthy", "unseen")
        word = f"{headline.severity.upper()} " if found else ""
        sentence = Text.assemble(
            (f" {headline.glyph} {word}", style + styles["badge"]), " ", (headline.sentence, style)
        )
        self.query_one("#sentence", LiteralText).update(sentence)
        self.query_one("#about", LiteralText).update(headline.about)
        line = self.query_one("#command", LiteralText)
        line.display = bool(self._command)
        line.update(
            Text.assemble((" Next  $ ", styles["heading"]), (self._command, styles["command"]))
        )


class Findings(ReadingList):
    """The list of findings."""

    HELP = """\
The top line names the culprit. Below it are all findings (✖ critical, ▲ warning, worst first, \
with confidence), then coverage. w shows the evidence of the finding under the cursor, c copies \
the next command, r shows the rank in the fleet, enter opens the reasoning."""


class Story(ReadingList):
    """The story of the finding under the cursor of the list."""

    HELP = """\
The reasoning: each question, its answer, and at the right how many rows of evidence gave it; → \
is the conclusion. w opens the rows, parameters and SQL of the step under the cursor, esc goes \
back to the findings."""


BESIDE = 120  # columns of a screen from which it stands beside the story


class GlancePane(LiteralText):
    """Draws a `Glance`, as much of it as there is room for."""

    def __init__(self, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._glance: overview.Glance | None = None

    def show(self, glance: overview.Glance) -> None:
        self._glance = glance
        self._draw()

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self._draw())

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        glance, width = self._glance, self.content_size.width
        if glance is None or width < 20:
            return
        above = self.screen.size.width < BESIDE
        if above:
            lines = overview.narrow(glance, width)
        else:
            lines = overview.roomy(glance, width, self.content_size.height)
        styles = self._styles()
        text = Text(no_wrap=True, overflow="ellipsis")
        for number, line in enumerate(lines):
            text.append("\n" if number else "")
            for piece, style in line:
                text.append(piece, styles[style])
        # Above the story it is as high as its text; beside it, as what is there.
        self.update(text, layout=above and len(lines) != self.content_size.height)

    def _styles(self) -> dict[str, Style]:
        """By what the model calls them."""
        kinds: dict[Kind, Style] = kind_styles(self)
        roles = role_styles(self)
        calm = {"outside": "warning", "outside band": "warning"}
        return {
            **roles,
            **{f"rate {kind}": style for kind, style in kinds.items()},
            **{f"sound {kind}": roles.get(calm.get(kind, ""), kinds[kind]) for kind in kinds},
            **{f"past {kind}": roles["faint"] for kind in kinds},
            **{f"{tone} number": roles["plain"] for tone in ("rate", "sound")},
            "past number": roles["faint"],
            **{f"state {state}": style for state, style in enumerate(state_styles(self.app))},
            "state -1": Style(),
        }


_AFTER_S = 0.15  # of rest on a step: scrolling through the reasoning asks for nothing


@dataclass(frozen=True)
class StepAt:
    """A step of a finding, the fact that its rows should be of, and in which snapshot."""

    finding: str
    index: int
    fact: str
    snapshot: int


class StepPane(Vertical):
    """The rows of the step that is wanted, which `ask` asks the session for; or a sentence."""

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

    def __init__(self, ask: Callable[[StepAt], None], id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._ask = ask
        self._wanted: StepAt | None = None
        self._asking: Timer | None = None
        self._behind: StepRows | None = None
        self.sheet: Sheet | None = None
        self.sql = ""
        self.sources: tuple[str, ...] = ()  # what the finding's rulebook rests on

    def compose(self) -> ComposeResult:
        yield LiteralText(classes="pane-title")
        yield LiteralText(classes="shared")
        yield SheetTable(id="step-rows")
        with VerticalScroll(id="step-sql"):
            yield LiteralText()

    def say(self, text: str) -> None:
        """A sentence instead of rows: being read, or why not."""
        self._behind = self.sheet = None
        self.query_one(".pane-title", LiteralText).update(Text(text, role_styles(self)["faint"]))
        for widget in (self.query_one(".shared"), self.query_one(SheetTable)):
            widget.display = False
        self.query_one("#step-sql LiteralText", LiteralText).update("")  # stays, for the focus

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self._draw())

    def want(self, step: StepAt) -> None:
        """Soon, unless another is wanted before; not again what is there or on its way."""
        if step == self._wanted or not self.display:
            return
        self._wanted = step
        if self._behind is None:
            self.say("reading the rows …")
        if self._asking is not None:
            self._asking.stop()
        self._asking = self.set_timer(_AFTER_S, lambda: self._ask(step))

    def leave(self) -> None:
        """What is shown now has no steps."""
        self._wanted = None
        self.say("Select a step to see the rows of evidence behind it.")

    def answered(self, behind: StepRows) -> None:
        """Rows of another fact are those of a finding that took this one's number meanwhile."""
        wanted = self._wanted is not None and behind.fact == self._wanted.fact
        if wanted and behind != self._behind:
            self._behind, self.sheet = behind, sheet(behind.table)
            self.sql = "\n".join(clean_lines(behind.sql))
            self._draw()

    def refused(self, message: Refused) -> None:
        self._wanted = None
        self.say(f"cannot read the rows: {message.error}")

    def _draw(self) -> None:
        if (behind := self._behind) is None or (rows := self.sheet) is None:
            return
        title = Text(f"{clean(behind.fact)} · {rows.counted}", role_styles(self)["heading"])
        self.query_one(".pane-title", LiteralText).update(title)
        shared = self.query_one(".shared", LiteralText)
        shared.update(f"every row: {rows.shared}")
        shared.display = bool(rows.shared)
        table = self.query_one(SheetTable)
        table.show(rows)
        table.display = bool(rows.rows)
        if self.has_focus_within and table.display:
            table.focus()
        self.query_one("#step-sql LiteralText", LiteralText).update(self._explanation(behind))

    def _explanation(self, behind: StepRows) -> Text:
        """The parameters first: they are what a site may change."""
        styles = role_styles(self)
        text = Text()
        if behind.params:
            text.append("Decided by\n", styles["heading"])
        for name, value in behind.params.items():
            text.append(f" {clean(name)} = ", styles["faint"])
            text.append(f"{clean(value)}\n", styles["value"])
        if behind.params:
            text.append("\n")
        text.append("Found by\n", styles["heading"])
        for line in self.sql.splitlines():
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
