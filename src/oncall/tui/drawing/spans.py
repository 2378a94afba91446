"""Lines with styles by meaning, in the colours of the theme in force."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.style import Style
from rich.text import Text
from textual.app import App

from oncall.render.text.spans import Line
from oncall.render.text.spans import Style as Meaning
from oncall.tui.drawing.states import theme_style


def styled(app: App[Any], lines: Iterable[Line]) -> Text:
    """The lines, each with its end."""
    styles: dict[Meaning, Style] = {
        "text": Style(),
        "heading": theme_style(app, "primary", bold=True),
        "label": theme_style(app, "muted"),
        "dim": theme_style(app, "muted"),
        "fault": theme_style(app, "state-blamed", bold=True),
        "way": theme_style(app, "warning"),
        "member": theme_style(app, "warning"),
    }
    text = Text(no_wrap=True)
    for line in lines:
        for span in line.spans:
            text.append(span.text, styles[span.style])
        text.append("\n")
    return text
