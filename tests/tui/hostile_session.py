"""A session in which every text that a console is given was chosen to do harm.

It stands in front of another session: each string in each answer begins with one of `pieces`, the
same string with the same one; what comes back in a question is the other session's own again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from oncall.console.queries import GetReport

from .fake_session import FakeSession

# A report is oncall's own text: its tests are beside it.
# Made by oncall and looked up by it: what numbers a finding, and keys of its own tables.
_OURS = frozenset({"id", "explained_by", "role", "unit", "group", "task", "key", "op"})


class HostileSession:
    """Implements oncall.console.session.Session by another one."""

    def __init__(self, session: FakeSession, pieces: Sequence[str]) -> None:
        self._session = session
        self._pieces = pieces
        self._instead: dict[str, str] = {}
        self._was: dict[str, str] = {}
        self.title = self.text(session.title)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._session, name)
        if not callable(found):
            return found

        def ask(*arguments: Any, **named: Any) -> Any:
            try:
                answer = found(*_mapped(arguments, self._own), **named)
            except Exception as error:
                error.args = tuple(map(self.text, map(str, error.args)))
                raise
            if arguments and isinstance(arguments[0], GetReport):
                return answer
            return _mapped(answer, self.text)

        return ask

    def text(self, text: str) -> str:
        if text and text not in self._instead:
            piece = self._pieces[len(self._instead) % len(self._pieces)]
            self._instead[text] = piece + text
            self._was[piece + text] = text
        return self._instead.get(text, text)

    def _own(self, text: str) -> str:
        return self._was.get(text, text)


def _mapped(value: Any, change: Any) -> Any:
    """The same value, with each string in it changed but those of a few words that oncall knows."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, tuple | list):
        return type(value)(_mapped(one, change) for one in value)
    if isinstance(value, Mapping):
        return {key: _mapped(one, change) for key, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        changed = {name: _mapped(getattr(value, name), change) for name in _texts(type(value))}
        return replace(value, **changed)
    return value


def _is_of_ours(hint: Any) -> bool:
    """Whether it is one of a few words, or none."""
    return Literal in map(get_origin, (hint, *get_args(hint)))


@cache
def _texts(of: type) -> tuple[str, ...]:
    """The fields of a dataclass that may hold text of others."""
    hints = _hints(of)
    return tuple(
        one.name
        for one in fields(of)
        if one.init and one.name not in _OURS and not _is_of_ours(hints.get(one.name))
    )


def _hints(of: type) -> Mapping[str, Any]:
    try:
        return get_type_hints(of)
    except NameError:  # a type that is imported for type checks only
        return {}
