"""How states of ranks, roles of text and lines of a drawing look in the theme in force: a state by
a letter and a colour, never the colour alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rich.style import Style
from rich.text import Text
from textual.app import App
from textual.color import Color, ColorParseError
from textual.widget import Widget

from oncall.render.text.lines import Line


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


def styled(widget: Widget, lines: Iterable[Line]) -> Text:
    """The lines, each with its end."""
    styles, text = role_styles(widget), Text(no_wrap=True)
    for line in lines:
        for span in line.spans:
            text.append(span.text, styles[span.style])
        text.append("\n")
    return text


_VARIABLES = {
    "faint": "muted",
    "heading": "primary",
    "command": "success",
    "key": "primary",
    "value": "accent",
    "string": "success",
    "comment": "muted",
    "critical": "error",
    "warning": "warning",
    "info": "primary",
    "healthy": "success",
    "unseen": "warning",
    "label": "muted",
    "dim": "muted",
    "fault": "state-blamed",
    "way": "warning",
    "member": "warning",
}
_BOLD = {"heading", "command", "critical", "warning", "unseen", "healthy", "fault"}


def role_styles(widget: Widget) -> dict[str, Style]:
    """The style of every role of `models.reading` and of spans, and `badge`, which is added."""
    styles = {
        role: theme_style(widget.app, variable, bold=role in _BOLD)
        for role, variable in _VARIABLES.items()
    }
    return styles | {
        "plain": Style.null(),
        "text": Style.null(),
        "strong": Style(bold=True),
        "badge": Style(reverse=True, bold=True),
    }
