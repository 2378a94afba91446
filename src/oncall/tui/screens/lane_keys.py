"""What can be done on every screen with lanes, and why it cannot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from oncall.tui.actions import needs_world
from oncall.tui.registry import ActionEntry

if TYPE_CHECKING:
    from oncall.tui.screen import ConsoleScreen
    from oncall.tui.screens.lanes import LaneScreen


@dataclass(frozen=True)
class Words:
    """What a screen calls its pictures where something cannot be done."""

    picture: str  # "iteration"
    known: str  # "that was recorded", of the first and the last one
    worst: str  # "the worst iteration"
    one: str  # "rank": what a lane is
    bar: str  # "task"


def lane_actions(screen: str, words: Words) -> dict[str, ActionEntry]:
    """The actions that every screen with lanes has, by the last part of their ids."""
    entries = (
        ActionEntry(f"{screen}.critical", "c", "Critical",
                    f"Go to the next {words.bar} on the critical path.", _needs_path, bar=True),
        ActionEntry(f"{screen}.before", "left_parenthesis", "Before",
                    f"Show the {words.picture} before this one.", _needs_before, bar=True),
        ActionEntry(f"{screen}.after", "right_parenthesis", "After",
                    f"Show the {words.picture} after this one.", _needs_after, bar=True),
        ActionEntry(f"{screen}.worst", "w", "Worst",
                    f"Show {words.worst} again.", _needs_choice),
        ActionEntry(f"{screen}.rank", "r", "Rank",
                    f"Show this {words.one} in the fleet.", needs_picture),
    )  # fmt: skip
    return {entry.id.rpartition(".")[2]: entry for entry in entries}


def needs_picture(screen: ConsoleScreen) -> str | None:
    """Why not, as long as nothing is drawn."""
    if why := needs_world(screen):
        return why
    shown = cast("LaneScreen", screen)
    return None if shown.has_view else shown.why_nothing


def _needs_before(screen: ConsoleScreen) -> str | None:
    return _needs_neighbour(screen, -1, "first")


def _needs_after(screen: ConsoleScreen) -> str | None:
    return _needs_neighbour(screen, 1, "last")


def _needs_neighbour(screen: ConsoleScreen, step: int, which: str) -> str | None:
    if why := needs_picture(screen):
        return why
    shown = cast("LaneScreen", screen)
    why_not = f"this is the {which} {shown.WORDS.picture} {shown.WORDS.known}"
    return why_not if shown.neighbour(step) is None else None


def _needs_choice(screen: ConsoleScreen) -> str | None:
    if why := needs_picture(screen):
        return why
    shown = cast("LaneScreen", screen)
    return None if shown.chosen else f"{shown.WORDS.worst} is what is shown"


def _needs_path(screen: ConsoleScreen) -> str | None:
    if why := needs_picture(screen):
        return why
    shown = cast("LaneScreen", screen)
    unknown = f"the critical path of this {shown.WORDS.picture} is not known: it is not whole"
    return None if shown.lanes.path() else unknown
