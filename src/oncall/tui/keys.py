"""Keys by name, and as the configuration remaps them.

# $XDG_CONFIG_HOME/oncall/config.toml, above /etc/oncall/config.toml
[keys]
save = "ctrl+s"            # an action's id, as `?` shows it
"incident.sql" = "Q"
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oncall.errors import BadInput

if TYPE_CHECKING:
    from oncall.tui.screen import ConsoleScreen

_NAMES = {
    "question_mark": "?",
    "slash": "/",
    "colon": ":",
    "escape": "esc",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "full_stop": ".",
    "comma": ",",
    "plus": "+",
    "minus": "-",
    "equals_sign": "=",
    "upper_g": "G",
}


def key_phrase(key: str) -> str:
    """A key of textual as people call it."""
    return _NAMES.get(key, key)


def keys_by_id(screen: ConsoleScreen) -> dict[str, list[str]]:
    """Which keys do what, on a screen as it is now, remapped ones included."""
    keys: dict[str, list[str]] = {}
    for key, active in screen.active_bindings.items():
        if active.binding.id is not None:
            keys.setdefault(active.binding.id, []).append(key)
    return keys


def read_keymap(
    files: Sequence[Path], action_ids: Callable[[], Iterable[str]]
) -> Mapping[str, str]:
    """`[keys]` of the configuration, a later file over an earlier one; absent files are skipped.

    Raises BadInput for what is no TOML, no known action, or no key.
    """
    keymap: dict[str, str] = {}
    for path in files:
        try:
            table = tomllib.loads(path.read_text()).get("keys", {})
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
            raise BadInput(str(path), f"cannot be read: {error}") from None
        if not isinstance(table, dict):
            raise BadInput(str(path), '[keys] is a table, such as save = "ctrl+s"')
        names = list(action_ids()) if table else []
        for action, key in table.items():
            if action not in names:
                near = difflib.get_close_matches(action, names, n=1)
                hint = f"did you mean {near[0]}?" if near else "`?` in the console lists them"
                raise BadInput(str(path), f"[keys] {action} is no action; {hint}")
            if not isinstance(key, str) or not key.strip():
                raise BadInput(str(path), f'[keys] {action}: a key such as "ctrl+s" is wanted')
            keymap[action] = key
    return keymap
