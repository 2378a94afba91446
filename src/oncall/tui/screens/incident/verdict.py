"""What stands around the rows of the incident screen: the verdict, its two lists, and the job at a
glance."""

from __future__ import annotations

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical

from oncall.tui.drawing.literal import LiteralText
from oncall.tui.drawing.states import role_styles, state_styles
from oncall.tui.models.rates import Kind
from oncall.tui.screens.incident import overview
from oncall.tui.screens.incident.model import Headline
from oncall.tui.screens.rates import kind_styles
from oncall.tui.widgets.reading_list import ReadingList


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
        plain = self.app.ascii_only  # type: ignore[attr-defined]
        above = self.screen.size.width < BESIDE
        if above:
            lines = overview.narrow(glance, width, plain)
        else:
            lines = overview.roomy(glance, width, self.content_size.height, plain)
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
        return {
            **role_styles(self),
            **{f"rate {kind}": style for kind, style in kinds.items()},
            **{f"state {state}": style for state, style in enumerate(state_styles(self.app))},
            "state -1": Style(),
        }
