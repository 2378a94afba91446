"""Every screen, in one place. A screen is an entry here and a module with a `ConsoleScreen`."""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_lowercase


@dataclass(frozen=True)
class ScreenEntry:
    """A screen: `place` is module:class, which `screen.load` imports when it is first shown.
    `goes_to`: the kinds of thing (goto.py) that it can put its cursor on. `key`: empty where none
    is free; the list of all screens has it. `short`: three letters of the title for narrow
    terminals, which no other screen has."""

    id: str
    title: str
    key: str
    place: str
    shows: str  # one sentence, for the help
    goes_to: tuple[str, ...] = ()
    short: str = ""


SCREENS: tuple[ScreenEntry, ...] = (
    ScreenEntry("jobs", "Jobs", "0", "oncall.tui.screens.jobs:JobsScreen",
        "The jobs found on the fleet or in the recording, and problems reaching them.",
        ("job",), short="Job"),
    ScreenEntry("incident", "Incident", "1", "oncall.tui.screens.incident.screen:IncidentScreen",
        "What is wrong, the culprit, the reasoning step by step, and what to do next.",
        ("finding",), short="Inc"),
    ScreenEntry("fleet", "Fleet", "2", "oncall.tui.screens.fleet.screen:FleetScreen",
        "Every rank as a cell showing its state, and details of the rank under the cursor.",
        ("rank", "node"), short="Flt"),
    ScreenEntry("communicators", "Comms", "3",
        "oncall.tui.screens.communicators.screen:CommunicatorsScreen",
        "Communicators, worst first: which ranks entered each round, and which wait for which.",
        ("comm",), short="Com"),
    ScreenEntry("rates", "Rates", "4", "oncall.tui.screens.rates:RatesScreen",
        "Rates of ranks and NICs over time against their baseline, suspects first.",
        short="Rat"),
    ScreenEntry("rules", "Rules", "5", "oncall.tui.screens.rules.screen:RulesScreen",
        "The rulebooks and their results, and an editor that tries a change before you save it.",
        ("rule",), short="Rul"),
    ScreenEntry("stages", "Stages", "6", "oncall.tui.screens.stages.screen:StagesScreen",
        "One training iteration: what each pipeline stage did when, and the critical path.",
        ("iteration",), short="Stg"),
    ScreenEntry("network", "Network", "7", "oncall.tui.screens.network.screen:NetworkScreen",
        "The steps of one collective, and which ports and flows in the network delayed them.",
        short="Net"),
    ScreenEntry("stacks", "Stacks", "8", "oncall.tui.screens.stacks:StacksScreen",
        "Where each process is: equal stacks together, the ranks that others wait for first.",
        short="Stk"),
    ScreenEntry("log", "Log", "9", "oncall.tui.screens.log:LogScreen",
        "The story of the night: verdicts, nodes lost and back, notes; and the job's own logs.",
        short="Log"),
)  # fmt: skip


def screen_entry(name: str) -> ScreenEntry:
    """The screen of that id. Raises KeyError."""
    return {entry.id: entry for entry in SCREENS}[name]


def listed() -> list[tuple[str, ScreenEntry]]:
    """Every screen with its key in the list of screens; without a key of its own, a letter."""
    free = iter(ascii_lowercase)
    return [(entry.key or next(free), entry) for entry in SCREENS]
