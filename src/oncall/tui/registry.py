"""Every screen and every action, in one place: what feeds keys, palette, help and the key bar.

A screen is a line in SCREENS and a module with a `ConsoleScreen`; its own actions are its
`ACTIONS`. What everybody can do is in `oncall.tui.actions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from textual.binding import Binding

if TYPE_CHECKING:
    from oncall.tui.screen import ConsoleScreen


def always(_: ConsoleScreen) -> str | None:
    """The `why_not` of what can always be done."""
    return None


@dataclass(frozen=True)
class ActionEntry:
    """Something a key does. It is performed by the method `action_<last part of id>`.

    `id` is `save` for everybody, `incident.copy` on the screen `incident`; it is what a
    configuration remaps. `why_not` tells why it cannot be done now, None if it can. `bar`: shown
    in the line of keys.
    """

    id: str
    key: str  # of textual, several with commas
    title: str  # one or two words
    description: str  # one sentence
    why_not: Callable[[ConsoleScreen], str | None] = always
    bar: bool = False

    @property
    def method(self) -> str:
        return "action_" + self.id.rpartition(".")[2]

    @property
    def of_app(self) -> bool:
        return "." not in self.id


@dataclass(frozen=True)
class ScreenEntry:
    """A screen: `place` is module:class, imported when it is first shown. `goes_to`: the kinds
    of thing (goto.py) that it can put its cursor on."""

    id: str
    title: str
    key: str
    place: str
    shows: str  # one sentence, for the help
    goes_to: tuple[str, ...] = ()

    def load(self) -> type[ConsoleScreen]:
        module, name = self.place.split(":")
        found: type[ConsoleScreen] = getattr(import_module(module), name)
        return found

    def factory(self) -> ConsoleScreen:
        screen = self.load()()
        screen.entry = self
        return screen


SCREENS: tuple[ScreenEntry, ...] = (
    ScreenEntry(
        "jobs",
        "Jobs",
        "0",
        "oncall.tui.screens.jobs:JobsScreen",
        "The jobs found on the fleet or in the recording, and what is wrong with the way to it.",
        ("job",),
    ),
    ScreenEntry(
        "incident",
        "Incident",
        "1",
        "oncall.tui.screens.incident:IncidentScreen",
        "What is wrong, who it is, why that is believed step by step, and what to do next.",
        ("finding", "rule"),
    ),
    ScreenEntry(
        "fleet",
        "Fleet",
        "2",
        "oncall.tui.screens.fleet:FleetScreen",
        "Every rank as a cell, by what it does, and the card of the one under the cursor.",
        ("rank", "node"),
    ),
    ScreenEntry(
        "communicators",
        "Comms",
        "3",
        "oncall.tui.screens.communicators:CommunicatorsScreen",
        "Communicators, the worst first: who entered each round, who waits for whom.",
        ("comm",),
    ),
    ScreenEntry(
        "rates",
        "Rates",
        "4",
        "oncall.tui.screens.rates:RatesScreen",
        "Rates of ranks and NICs over time, suspects first, against what is usual for them.",
    ),
    ScreenEntry(
        "rules",
        "Rules",
        "5",
        "oncall.tui.screens.rules:RulesScreen",
        "The rulebooks with what came of each, and an editor that tries a change before saving.",
        ("rule",),
    ),
    ScreenEntry(
        "stages",
        "Stages",
        "6",
        "oncall.tui.screens.stages:StagesScreen",
        "One training iteration: what each pipeline stage did when, and the critical path.",
        ("iteration",),
    ),
    ScreenEntry(
        "network",
        "Network",
        "7",
        "oncall.tui.screens.network:NetworkScreen",
        "One collective's steps, what held up a late one in the network, and whose flows did.",
    ),
    ScreenEntry(
        "log",
        "Log",
        "9",
        "oncall.tui.screens.log:LogScreen",
        "What happened in this console: worlds that came, questions that failed, and why.",
    ),
)


def screen_entry(name: str) -> ScreenEntry:
    """The screen of that id. Raises KeyError."""
    return {entry.id: entry for entry in SCREENS}[name]


def bindings(actions: Iterable[ActionEntry]) -> list[Binding]:
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
    ]
