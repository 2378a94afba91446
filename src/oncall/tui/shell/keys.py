"""What keys do, their names, and how the configuration remaps them.

# $XDG_CONFIG_HOME/oncall/config.toml, above /etc/oncall/config.toml
[keys]
save = "ctrl+s"            # an action's id, as `?` shows it
"incident.sql" = "Q"
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from textual.binding import Binding
from textual.keys import _character_to_key, format_key
from textual.screen import Screen

from oncall.core.configuration import read_tables
from oncall.core.errors import BadInput

ScreenT = TypeVar("ScreenT", bound=Screen[Any], contravariant=True)


def always(_: Screen[Any]) -> str | None:
    """The `why_not` of what can always be done."""
    return None


@dataclass(frozen=True)
class ActionEntry(Generic[ScreenT]):
    """Something a key does. It is performed by the method `action_<last part of id>`, or by the one
    that `by` names, with its arguments.

    `id` is `save` for everybody, `incident.copy` on the screen `incident`; it is what a
    configuration remaps. `why_not` tells why it cannot be done now, None if it can. `bar`: shown
    in the line of keys.
    """

    id: str
    key: str  # of textual, several with commas; empty: none
    title: str  # one or two words
    description: str  # one sentence
    why_not: Callable[[ScreenT], str | None] = always
    bar: bool = False
    by: tuple[Any, ...] = ()

    def perform(self, on: Any) -> Any:
        """Do it, as the application or a screen can."""
        method, *arguments = self.by or (self.id.rpartition(".")[2],)
        return getattr(on, f"action_{method}")(*arguments)

    @property
    def of_app(self) -> bool:
        return "." not in self.id


def bindings(actions: Iterable[ActionEntry[Any]]) -> list[Binding]:
    """The keys of actions. All go through `App.action_perform`, which knows why not."""
    return [
        Binding(
            entry.key,
            f"app.perform('{entry.id}')",
            entry.title,
            id=entry.id,
            tooltip=entry.description,
            show=entry.bar,
        )
        for entry in actions
        if entry.key
    ]


# ------------------------------------------------------------------------ keys

_NAMES = {"escape": "esc", "upper_g": "G"}


def key_phrase(key: str) -> str:
    """A key of textual as people call it: a sign as itself."""
    sign = format_key(key)
    return sign if len(sign) == 1 and sign.isascii() else _NAMES.get(key, key)


def keys_by_id(screen: Screen[Any]) -> dict[str, list[str]]:
    """Which keys do what, on a screen as it is now, remapped ones included; where one types, what
    is typed does nothing else."""
    keys: dict[str, list[str]] = {}
    for key, active in screen.active_bindings.items():
        if active.binding.id is not None and not _is_typed(screen, key):
            keys.setdefault(active.binding.id, []).append(key)
    return keys


def _is_typed(screen: Screen[Any], key: str) -> bool:
    """Whether what has focus takes the key as text. textual knows that of most keys, but some it
    calls by names that it does not find again, such as `slash`."""
    character = key_phrase(key)
    focused = screen.focused
    return focused is not None and len(character) == 1 and focused.check_consume_key(key, character)


def read_keymap(
    files: Sequence[Path], actions: Callable[[], Mapping[str, Sequence[ActionEntry[Any]]]]
) -> tuple[Mapping[str, str], list[BadInput]]:
    """`[keys]` of the configuration, a later file over an earlier one; and what is wrong there: no
    TOML, no known action, no key, a key that does something else already. `actions`: what can be
    done on each screen, by its title. Absent files are skipped."""
    keymap: dict[str, str] = {}
    places: dict[str, Path] = {}
    tables, problems = read_tables("keys", files)
    by_screen = actions() if any(table.values for table in tables) else {}
    names = list(dict.fromkeys(entry.id for each in by_screen.values() for entry in each))
    for table in tables:
        for action, key in table.values.items():
            if why := _why_not(action, key, names):
                problems.append(BadInput(str(table.path), f"[keys] {action}{why}"))
            else:
                keymap[action] = ",".join(map(_name, key.split(",")))
                places[action] = table.path
    for action, clash in _clashes(keymap, by_screen).items():
        problems.append(BadInput(str(places[action]), f"[keys] {action}: {clash}"))
    return keymap, problems


def _clashes(
    keymap: Mapping[str, str], by_screen: Mapping[str, Sequence[ActionEntry[Any]]]
) -> dict[str, str]:
    """Which remapped actions have a key of another one, on any screen, and what it does there."""
    found: dict[str, str] = {}
    for title, entries in by_screen.items():
        keys = {entry.id: set(keymap.get(entry.id, entry.key).split(",")) for entry in entries}
        for entry in entries:
            if entry.id not in keymap:
                continue
            for other in entries:
                shared = sorted(keys[entry.id] & keys[other.id])
                if shared and other is not entry and other.id not in found:
                    key = key_phrase(shared[0])
                    clash = f"{key} is already {other.title} ({other.id}) on {title}"
                    found.setdefault(entry.id, clash)
    return found


def _name(key: str) -> str:
    """`?` is `question_mark` to textual; everybody may write either."""
    key = key.strip()
    return _character_to_key(key) if len(key) == 1 else key


def _why_not(action: str, key: Any, names: Sequence[str]) -> str | None:
    """Why an action cannot have that key."""
    if action not in names:
        near = difflib.get_close_matches(action, names, n=1)
        hint = f"did you mean {near[0]}?" if near else "`?` in the console lists them"
        return f": unknown action; {hint}"
    if not isinstance(key, str) or not key.strip():
        return ': expected a key such as "ctrl+s"'
    return None
