"""What can be done on the incident screen, and why it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from oncall.tui.actions import needs_world
from oncall.tui.models.probe import why_not_probed
from oncall.tui.registry import ActionEntry

if TYPE_CHECKING:
    from oncall.tui.screen import ConsoleScreen
    from oncall.tui.screens.incident import IncidentScreen


def _no_step(screen: ConsoleScreen) -> str | None:
    step = cast("IncidentScreen", screen).step()
    return None if step else "this is no step of a story, and below none"


def _no_command(screen: ConsoleScreen) -> str | None:
    found = cast("IncidentScreen", screen).commands()
    return None if found else "this finding advises no command"


def _no_rank(screen: ConsoleScreen) -> str | None:
    found = cast("IncidentScreen", screen).rank() is not None
    return None if found else "this finding names no rank"


def _no_node(screen: ConsoleScreen) -> str | None:
    if why := needs_world(screen):
        return why
    nodes, world = cast("IncidentScreen", screen).nodes(), screen.state.world
    if not nodes or world is None:
        return "this finding blames no node"
    return why_not_probed(world, screen.state.live, nodes)


def _nothing_folded(screen: ConsoleScreen) -> str | None:
    line = cast("IncidentScreen", screen).line()
    return None if line and (line.folds or line.depth) else "this finding explains no other"


ACTIONS: tuple[ActionEntry, ...] = (
    ActionEntry("incident.rows", "w", "Why", "Show the rows behind this step, the parameters"
                " that decided, and the SQL that found them.", _no_step, bar=True),
    ActionEntry("incident.command", "c", "Next command",
                "Copy the next command of what to do; again for the one after it.",
                _no_command, bar=True),
    ActionEntry("incident.rank", "r", "Rank", "Go to the first rank that is blamed.", _no_rank),
    ActionEntry("incident.probe", "p", "Probe",
                "Have the nodes that are blamed and some others ping one another, now.",
                _no_node, bar=True),
    ActionEntry("incident.fold", "o", "Unfold",
                "Show the findings that this one explains, or fold them away.",
                _nothing_folded),
)  # fmt: skip
