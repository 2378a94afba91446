"""Something a key does, and how it is bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from textual.binding import Binding
from textual.screen import Screen

ScreenT = TypeVar("ScreenT", bound=Screen[Any], contravariant=True)


def always(_: Screen[Any]) -> str | None:
    """The `why_not` of what can always be done."""
    return None


@dataclass(frozen=True)
class ActionEntry(Generic[ScreenT]):
    """Something a key does. It is performed by the method `action_<last part of id>`.

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

    @property
    def method(self) -> str:
        return "action_" + self.id.rpartition(".")[2]

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
