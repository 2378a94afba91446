"""The keys that move a cursor, the same in every pane: arrows, and those of vi."""

from __future__ import annotations

from textual.binding import Binding, BindingType

_KEYS = (
    ("up", "up,k", "Up"),
    ("down", "down,j", "Down"),
    ("page_up", "pageup,ctrl+u", "Page up"),
    ("page_down", "pagedown,ctrl+d", "Page down"),
    ("first", "home,g", "First"),
    ("last", "end,G", "Last"),
)
_SIDEWAYS = (("left", "left,h", "Left"), ("right", "right,l", "Right"))


def cursor_bindings(sideways: bool = False) -> list[BindingType]:
    """Bindings to `action_cursor_<name>`; ids `cursor.<name>`, for a configuration to remap."""
    return [
        Binding(key, f"cursor_{name}", title, id=f"cursor.{name}", show=False)
        for name, key, title in (_KEYS + _SIDEWAYS if sideways else _KEYS)
    ]
