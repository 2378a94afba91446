"""Actions of every screen. A screen's own actions are its `ACTIONS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from oncall.tui.shell.keys import ActionEntry, always
from oncall.tui.shell.registry import SCREENS
from oncall.tui.shell.screen import ConsoleScreen

ScreenT = TypeVar("ScreenT", bound=ConsoleScreen)
Needs: TypeAlias = Callable[[ScreenT], str | None]


def needs_snapshot(screen: ConsoleScreen) -> str | None:
    """Why not, while no job is loaded."""
    if screen.state.snapshot is None:
        return "there is no evidence yet" if screen.state.busy else "no job is open; choose one"
    return None


def needs(
    why_not: str, holds: Callable[[ScreenT], object], after: Needs[ScreenT] = needs_snapshot
) -> Needs[ScreenT]:
    """Why not: what `after` says, else `why_not` unless this holds."""

    def why(screen: ScreenT) -> str | None:
        return after(screen) or (None if holds(screen) else why_not)

    return why


_needs_time: Needs[ConsoleScreen] = needs(
    "the evidence has no timestamps", lambda screen: screen.state.cursor.movable
)
_needs_past: Needs[ConsoleScreen] = needs(
    "already at the end", lambda screen: not screen.state.cursor.follows, _needs_time
)
_needs_findings: Needs[ConsoleScreen] = needs(
    "no finding has a start time", lambda screen: screen.app.known_moments, _needs_time
)


def _needs_job(screen: ConsoleScreen) -> str | None:
    state = screen.state
    if not state.jobs and state.problem:
        return None  # the way to the nodes, once more
    if why := needs_snapshot(screen):
        return why
    return None if state.live else "this is a recording, so there are no nodes to query"


_needs_something_to_copy: Needs[ConsoleScreen] = needs(
    "there is nothing to copy here", lambda screen: screen.copies(), always
)
_needs_cause_to_go_back: Needs[ConsoleScreen] = needs(
    "there is nothing to go back to; ctrl+q quits", lambda screen: screen.app.can_go_back, always
)
ACTIONS: tuple[ActionEntry[ConsoleScreen], ...] = (
    ActionEntry("help", "question_mark,f1", "Help", "Explain this screen and its keys.", bar=True),
    ActionEntry("go_to", "colon", "Go to", "Go to a node, rank, rule, communicator or time.",
                needs_snapshot, bar=True),
    ActionEntry("filter", "slash", "Filter", "Show only what matches a text.", bar=True),
    ActionEntry("faults", "f", "Faults", "Show only what is at fault, or everything again.",
                needs_snapshot, bar=True),
    ActionEntry("pause", "space", "Pause/play",
                "Pause at this moment, or play from here (from the start if at the end).",
                _needs_time, bar=True),
    ActionEntry("step_back", "left_square_bracket", "Back in time",
                "Go back in time by one step, 1/60 of the recorded time.", _needs_time,
                by=("step", -1)),
    ActionEntry("step_on", "right_square_bracket", "Forward", "Go forward in time by one step.",
                _needs_past, by=("step", 1)),
    ActionEntry("stride_back", "left_curly_bracket", "Ten back", "Go back in time by ten steps.",
                _needs_time, by=("step", -10)),
    ActionEntry("stride_on", "right_curly_bracket", "Ten forward",
                "Go forward in time by ten steps.", _needs_past, by=("step", 10)),
    ActionEntry("next_finding", "n", "Next finding", "Go to the start of the next finding.",
                _needs_findings, by=("finding", 1)),
    ActionEntry("previous_finding", "N", "Previous finding",
                "Go to the start of the previous finding.", _needs_findings,
                by=("finding", -1)),
    ActionEntry("slower", "less_than_sign", "Slower", "Play slower.", _needs_time,
                by=("speed", -1)),
    ActionEntry("faster", "greater_than_sign", "Faster", "Play faster.", _needs_time,
                by=("speed", 1)),
    ActionEntry("follow", "full_stop", "To the end",
                "Follow the end of the evidence again (the present, for a running job).",
                _needs_past),
    ActionEntry("copy", "y", "Copy", "Copy what is under the cursor: text, Markdown or command.",
                _needs_something_to_copy, bar=True),
    ActionEntry("save", "s", "Save", "Save all evidence to a file for `oncall open`.",
                needs_snapshot, bar=True),
    ActionEntry("gather", "R", "Gather again", "Query the nodes again now.", _needs_job),
    ActionEntry("mark", "m", "Note", "Write a note about this moment.", needs_snapshot),
    ActionEntry("solved", "S", "Solved",
                "Write down what fixed it; kept with the incident and in the archive.",
                needs_snapshot),
    ActionEntry("export", "x", "Export",
                "Write a ticket of one page with your notes, and the evidence next to it.",
                needs_snapshot),
    ActionEntry("theme", "T", "Theme", "Switch the colour theme: dark, light, high contrast ..."),
    ActionEntry("back", "escape", "Back", "Close what you opened last.",
                _needs_cause_to_go_back),
    ActionEntry("palette", "ctrl+p", "All actions", "Find an action by name."),
    ActionEntry("screens", "z,f2", "Screens", "Choose a screen from the list of all."),
    ActionEntry("leave", "q,ctrl+c", "Leave", "Quit; asks first where something would be lost."),
    ActionEntry("quit", "ctrl+q", "Quit", "Quit immediately.", bar=True),
    *(
        ActionEntry[ConsoleScreen](f"show_{entry.id}", entry.key, entry.title, entry.shows)
        for entry in SCREENS
    ),
)  # fmt: skip
