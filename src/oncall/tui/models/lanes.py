"""What pictures with lanes have in common: bars of time on lines, and a strip of all pictures.

A picture is an iteration or a collective, a lane what one rank did in it, a bar one task or step.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

Look = Literal["normal", "late", "open"]
Strip = list[tuple[str, Look, bool]]
BLOCKS, BLOCKS_ASCII = "▁▂▃▄▅▆▇█", "_.,-~=*#"


class Bar(Protocol):
    """Something that took its time. Instants are Unix ns; the end is None where it is not over."""

    @property
    def started_ns(self) -> int: ...
    @property
    def ended_ns(self) -> int | None: ...


class Lane(Protocol):
    """What one rank did. `blamed`: some of it made the others wait."""

    @property
    def rank(self) -> int: ...
    @property
    def node(self) -> str: ...
    @property
    def blamed(self) -> bool: ...


class Drawing(Protocol):
    """Lanes, from above, and the instants between which they are drawn."""

    @property
    def lanes(self) -> Sequence[Any]: ...
    @property
    def shown_ns(self) -> tuple[int, int]: ...


AnyBar = TypeVar("AnyBar", bound=Bar)
AnyLane = TypeVar("AnyLane", bound=Lane)


# ----------------------------------------------------------------------- strip


def window(count: int, width: int, at: int) -> tuple[int, int]:
    """Which of `count` pictures fit into `width` columns: the last ones, and `at` always."""
    first = max(0, min(max(0, count - width), at - width // 4))
    return first, min(count, first + width)


def strip(
    heights: Sequence[tuple[float | None, Look]], width: int, at: int, plain: bool = False
) -> Strip:
    """A glyph for each picture that fits, by its height from 0 to 1 (None: not known), its look,
    and whether it is the one drawn, which is number `at`."""
    blocks = BLOCKS_ASCII if plain else BLOCKS
    first, last = window(len(heights), max(width, 1), at)
    return [
        (
            "?" if height is None else blocks[min(max(int(height * len(blocks)), 0), 7)],
            look,
            place == at,
        )
        for place, (height, look) in enumerate(heights[first:last], first)
    ]


@dataclass(frozen=True)
class Pictures:
    """All pictures of a view, in order: the key of each, and its height as `strip` takes it;
    `shown` is the key of the one that is drawn."""

    keys: Sequence[Hashable]
    heights: Sequence[tuple[float | None, Look]]
    shown: Hashable

    @property
    def at(self) -> int:
        """Which of them is drawn."""
        return self.keys.index(self.shown) if self.shown in self.keys else 0

    def neighbour(self, step: int) -> Any:
        """The key of the one before (-1) or after (1) it; None at the end."""
        at = self.at + step
        return self.keys[at] if 0 <= at < len(self.keys) else None

    def strip(self, width: int, plain: bool = False) -> Strip:
        return strip(self.heights, width, self.at, plain)


# ---------------------------------------------------------------------- cursor


def matching(lanes: Sequence[AnyLane], text: str, faults_only: bool) -> tuple[AnyLane, ...]:
    """Those whose title, rank and node hold every word, and that hold something blamed."""
    words = text.lower().split()
    return tuple(
        lane
        for lane in lanes
        if all(word in _called(lane) for word in words) and (lane.blamed or not faults_only)
    )


def _called(lane: Lane) -> str:
    return f"{getattr(lane, 'title', '')} rank {lane.rank} {lane.node}".lower()


def instant(drawing: Drawing, column: int, columns: int) -> int:
    """The instant in the middle of a column of the picture."""
    first, last = drawing.shown_ns
    return first + (2 * column + 1) * (last - first) // (2 * columns)


def inside(bar: Bar) -> int:
    """An instant within a bar, by which it is found again."""
    return bar.started_ns if bar.ended_ns is None else (bar.started_ns + bar.ended_ns) // 2


def away(bar: Bar, at_ns: int) -> int:
    """How far an instant is from a bar, in ns; 0 within it."""
    end_ns = at_ns if bar.ended_ns is None else bar.ended_ns
    return max(bar.started_ns - at_ns, at_ns - end_ns, 0)


def beside(stops: Sequence[AnyBar], here: Bar, by: int) -> AnyBar | None:
    """The bar before (-1) or after (1) this one, by start; None at the end of the lane."""
    if here in stops:
        at = stops.index(here) + by
    else:
        earlier = sum(bar.started_ns <= here.started_ns for bar in stops)
        at = earlier if by > 0 else earlier - 1
    return stops[at] if 0 <= at < len(stops) else None


def next_on_path(path: Sequence[tuple[int, AnyBar]], here: Bar | None) -> tuple[int, AnyBar] | None:
    """The lane and bar after this one on a path; after the last one, the first; None: no path."""
    if not path:
        return None
    at = next((number for number, (_, bar) in enumerate(path) if bar == here), None)
    if at is not None:
        return path[(at + 1) % len(path)]
    later = (one for one in path if here is not None and one[1].started_ns > here.started_ns)
    return next(later, path[0])
