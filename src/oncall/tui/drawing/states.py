"""How a rank's state looks, everywhere: a letter and a colour, never the colour alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.style import Style
from textual.app import App
from textual.color import Color, ColorParseError


@dataclass(frozen=True)
class StateLook:
    """A state as it is shown; the index in STATES is the number of views.snapshot.RankState."""

    name: str
    letter: str
    says: str  # for legends
    dot: str  # where there is no room for letters: the fuller, the worse; no data is hatched
    strong: bool = False

    @property
    def variable(self) -> str:
        """The theme's variable that holds its colour: `$state-hung` in a style sheet."""
        return f"state-{self.name}"


STATES = (
    StateLook("running", ".", "running", "·"),
    StateLook("waiting", "w", "blocked in an operation", "▫"),
    StateLook("late", "L", "other ranks are waiting for it", "▲", strong=True),
    StateLook("hung", "H", "blocked in an operation that a finding names", "▪"),
    StateLook("unknown", "?", "what it does was not recorded", "░"),
    StateLook("blamed", "X", "named by a root cause", "█", strong=True),
)


def state_styles(app: App[Any]) -> tuple[Style, ...]:
    """The style of each state in the theme in force, in the order of STATES."""
    return tuple(theme_style(app, look.variable, bold=look.strong) for look in STATES)


def theme_style(app: App[Any], variable: str, *, bold: bool = False, dim: bool = False) -> Style:
    """A colour of the theme in force, `error` or `state-hung`, as a style of rich."""
    try:
        colour = Color.parse(app.theme_variables[variable]).rich_color
    except (KeyError, ColorParseError):
        colour = None
    return Style(color=colour, bold=bold or None, dim=dim or None)
