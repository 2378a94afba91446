"""The verdict at the top of the incident: what is wrong, where, for how long, and which command to
type next.
"""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical

from oncall.tui.drawing.literal import LiteralText
from oncall.tui.screens.incident.model import Headline
from oncall.tui.widgets.roles import role_styles


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
