"""The verdict at the top of the incident: what is wrong, who, since when, out of how much."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from oncall.tui.models.incident import Headline
from oncall.tui.widgets.roles import role_styles


class Verdict(Static):
    """One sentence that is read from afar, and a quiet line under it."""

    DEFAULT_CSS = """
    Verdict { height: auto; max-height: 5; padding: 0 1; background: $surface; }
    """

    def __init__(self, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, markup=False)
        self._headline: Headline | None = None

    def show(self, headline: Headline) -> None:
        if headline == self._headline:
            return
        self._headline = headline
        styles = role_styles(self)
        style = styles[headline.severity]
        found = headline.severity not in ("healthy", "unseen")
        word = f" {headline.severity.upper()} " if found else ""
        self.update(
            Text.assemble(
                (f" {headline.glyph}{word or ' '}", style + styles["badge"]),
                " ",
                (headline.sentence, style),
                "\n",
                (headline.about, styles["faint"]),
            )
        )
