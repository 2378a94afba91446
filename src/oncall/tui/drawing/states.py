"""The themes, and how states of ranks, roles of text and lines of a drawing look in the one in
force: a state by a letter and a colour, never the colour alone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rich.style import Style
from rich.text import Text
from textual.app import App
from textual.color import Color, ColorParseError
from textual.theme import BUILTIN_THEMES, Theme
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


DEFAULT = "oncall-dark"
_SIXTEEN_COLOURS = {"linux", "vt100", "vt220", "ansi", "xterm", "screen"}


def _theme(base: Theme, running: str, waiting: str, late: str, hung: str, no_data: str, blamed: str,
           muted: str, band: str) -> Theme:  # fmt: skip
    """`base` with the colours of the states; `muted` for what matters less, `band` behind rows."""
    states = {
        "state-running": running,
        "state-waiting": waiting,
        "state-late": late,
        "state-hung": hung,
        "state-unknown": no_data,
        "state-blamed": blamed,
        "muted": muted,
        "band": band,
    }
    return replace(base, variables={**base.variables, **states})


_DARK = Theme(
    name="oncall-dark",
    primary="#7aa2d6",
    secondary="#8fb8a8",
    warning="#e0af68",
    error="#f0706a",
    success="#7fb77e",
    accent="#d6a97a",
    foreground="#d4d7dd",
    background="#14171c",
    surface="#1a1e25",
    panel="#232933",
)
_LIGHT = Theme(
    name="oncall-light",
    primary="#1f5fa8",
    secondary="#2c7a66",
    warning="#8a5a00",
    error="#b3261e",
    success="#2e6b2d",
    accent="#8c4a10",
    foreground="#1d2129",
    background="#fafaf7",
    surface="#f1f1ec",
    panel="#e3e3dc",
    dark=False,
)
_HIGH_CONTRAST = Theme(
    name="high-contrast",
    primary="#66ccff",
    secondary="#ffffff",
    warning="#ffff00",
    error="#ff6666",
    success="#66ff66",
    accent="#ffcc00",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#1c1c1c",
    text_alpha=1.0,
)
# Okabe and Ito's colours: distinct with any common colour blindness.
_COLOUR_BLIND = replace(
    _DARK,
    name="colour-blind",
    primary="#56b4e9",
    secondary="#009e73",
    warning="#f0e442",
    error="#e69f00",
    success="#009e73",
    accent="#cc79a7",
)

# The culprit has the strongest colour; those that it holds up are grey.
THEMES: tuple[Theme, ...] = (
    _theme(_DARK, "#7fb77e", "#7aa2d6", "#e0af68", "#9aa1ad", "#b48ead", "#f0706a",
           muted="#8a92a0", band="#1f242d"),
    _theme(_LIGHT, "#2e6b2d", "#1f5fa8", "#8a5a00", "#5f6570", "#7a3e8e", "#b3261e",
           muted="#5f6570", band="#e9e9e2"),
    _theme(_HIGH_CONTRAST, "#66ff66", "#66ccff", "#ffff00", "#c0c0c0", "#ff99ff", "#ff6666",
           muted="#d0d0d0", band="#262626"),
    _theme(_COLOUR_BLIND, "#009e73", "#56b4e9", "#f0e442", "#9aa1ad", "#cc79a7", "#e69f00",
           muted="#8a92a0", band="#1f242d"),
    _theme(BUILTIN_THEMES["ansi-dark"], "ansi_green", "ansi_cyan", "ansi_yellow", "ansi_white",
           "ansi_magenta", "ansi_bright_red", muted="ansi_white", band="ansi_default"),
    _theme(BUILTIN_THEMES["ansi-light"], "ansi_green", "ansi_blue", "ansi_yellow", "ansi_black",
           "ansi_magenta", "ansi_red", muted="ansi_black", band="ansi_default"),
)  # fmt: skip


def default_theme(environment: Mapping[str, str] = os.environ) -> str:
    """What fits a terminal that nobody chose a theme for: its background, if COLORFGBG tells it,
    and its own sixteen colours if it has no more."""
    light = environment.get("COLORFGBG", "").rpartition(";")[2] in {"7", "15"}
    many = "256" in environment.get("TERM", "") or environment.get("COLORTERM")
    if not many and environment.get("TERM") in _SIXTEEN_COLOURS:
        return "ansi-light" if light else "ansi-dark"
    return "oncall-light" if light else DEFAULT
