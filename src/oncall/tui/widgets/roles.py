"""How each role of text looks in the theme in force; severity is always spelled or drawn too."""

from __future__ import annotations

from rich.style import Style
from textual.widget import Widget

from oncall.tui.drawing.states import theme_style

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
}
_BOLD = {"strong", "heading", "command", "critical", "warning", "unseen", "healthy"}


def role_styles(widget: Widget) -> dict[str, Style]:
    """The style of every role of `models.reading`, and `badge`, which is added to one."""
    styles = {
        role: theme_style(widget.app, variable, bold=role in _BOLD)
        for role, variable in _VARIABLES.items()
    }
    return styles | {
        "plain": Style.null(),
        "strong": Style(bold=True),
        "badge": Style(reverse=True, bold=True),
    }
