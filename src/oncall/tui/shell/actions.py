"""What everybody can do, on every screen. A screen's own actions are its `ACTIONS`."""

from __future__ import annotations

from oncall.tui.shell.action import ActionEntry
from oncall.tui.shell.registry import SCREENS
from oncall.tui.shell.screen import ConsoleScreen


def needs_world(screen: ConsoleScreen) -> str | None:
    """Why not, as long as nothing is known of a job."""
    if screen.state.world is None:
        return "there is no evidence yet" if screen.state.busy else "no job is open; choose one"
    return None


def _needs_time(screen: ConsoleScreen) -> str | None:
    if why := needs_world(screen):
        return why
    return None if screen.state.cursor.movable else "this evidence does not tell the time"


def _needs_past(screen: ConsoleScreen) -> str | None:
    if why := _needs_time(screen):
        return why
    return "the end is what is shown" if screen.state.cursor.follows else None


def _needs_findings(screen: ConsoleScreen) -> str | None:
    if why := _needs_time(screen):
        return why
    return None if screen.app.known_moments else "there is no finding with a time"


def _needs_job(screen: ConsoleScreen) -> str | None:
    state = screen.state
    if not state.jobs and state.problem:
        return None  # the way to the nodes, once more
    if why := needs_world(screen):
        return why
    return None if state.live else "this is a recording; there are no nodes to ask"


def _needs_something_to_copy(screen: ConsoleScreen) -> str | None:
    return None if screen.copies() else "there is nothing here to copy"


def _needs_cause_to_go_back(screen: ConsoleScreen) -> str | None:
    return None if screen.app.can_go_back else "this is where you began; ctrl+q quits"


ACTIONS: tuple[ActionEntry[ConsoleScreen], ...] = (
    ActionEntry("help", "question_mark,f1", "Help", "Explain this screen and its keys.", bar=True),
    ActionEntry("go_to", "colon", "Go to", "Go to a node, rank, rule, communicator or time.",
                needs_world, bar=True),
    ActionEntry("filter", "slash", "Filter", "Show only what matches a text.", bar=True),
    ActionEntry("faults", "f", "Faults", "Show only what is at fault, or all again.",
                needs_world, bar=True),
    ActionEntry("pause", "space", "Pause/play",
                "Stop at this moment, or play on from it (from the start, at the end).",
                _needs_time, bar=True),
    ActionEntry("step_back", "left_square_bracket", "Back in time",
                "Go a step back in time; a sixtieth of what there is.", _needs_time),
    ActionEntry("step_on", "right_square_bracket", "On in time", "Go a step on in time.",
                _needs_past),
    ActionEntry("stride_back", "left_curly_bracket", "Far back", "Go ten steps back in time.",
                _needs_time),
    ActionEntry("stride_on", "right_curly_bracket", "Far on", "Go ten steps on in time.",
                _needs_past),
    ActionEntry("next_finding", "n", "Next finding", "Go to when the next finding began.",
                _needs_findings),
    ActionEntry("previous_finding", "N", "Previous finding",
                "Go to when the finding before began.", _needs_findings),
    ActionEntry("slower", "less_than_sign", "Slower", "Play at a lower speed.", _needs_time),
    ActionEntry("faster", "greater_than_sign", "Faster", "Play at a higher speed.", _needs_time),
    ActionEntry("follow", "full_stop", "To the end",
                "Follow the end of the evidence again, which of a running job is now.",
                _needs_past),
    ActionEntry("copy", "y", "Copy", "Copy what the cursor is on: text, Markdown or command.",
                _needs_something_to_copy, bar=True),
    ActionEntry("save", "s", "Save", "Save the whole evidence to a file that `oncall open` reads.",
                needs_world, bar=True),
    ActionEntry("gather", "R", "Gather again", "Ask the nodes again, now.", _needs_job),
    ActionEntry("mark", "m", "Note", "Write a note about this moment.", needs_world),
    ActionEntry("export", "x", "Export",
                "Write the report in Markdown, with notes, and the evidence beside it.",
                needs_world),
    ActionEntry("theme", "T", "Theme", "Change the colours: dark, light, high contrast ..."),
    ActionEntry("back", "escape", "Back", "Leave what was opened last.",
                _needs_cause_to_go_back),
    ActionEntry("palette", "ctrl+p", "All actions", "Find an action by name."),
    ActionEntry("quit", "ctrl+q", "Quit", "Leave, at once.", bar=True),
    *(
        ActionEntry[ConsoleScreen](f"show_{entry.id}", entry.key, entry.title, entry.shows)
        for entry in SCREENS
    ),
)  # fmt: skip
