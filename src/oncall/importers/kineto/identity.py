"""Are two folders of traces of one job: parts of it, the same traces twice, or two jobs?

Often each rank has a folder of its own. Only the beginning of a trace is read to tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from oncall.core.errors import Unreadable
from oncall.importers.kineto.stream import TraceStream
from oncall.importers.kineto.trace import nanoseconds, rank_of, time_base_ns

_MOST_SAMPLES = 16
_HOUR_NS = 3600 * 10**9


@dataclass(frozen=True)
class Identity:
    """What tells one set of traces from another. `marks` are (rank, first event in ns)."""

    world: tuple[Any, ...]
    marks: frozenset[tuple[int | None, int]]
    files: int

    @property
    def worth(self) -> int:
        """Of two copies the one with more files is better."""
        return self.files


def identify(paths: Sequence[Path]) -> Identity:
    """The identity of a set of traces; an unreadable file says nothing."""
    worlds: list[tuple[Any, ...]] = []
    marks: set[tuple[int | None, int]] = set()
    for path in sorted(paths)[:_MOST_SAMPLES]:
        stream = TraceStream(path)
        with suppress(Unreadable, AttributeError, TypeError, ValueError, ArithmeticError):
            first = next((event.ts for event in stream if event.ts.is_finite()), None)
            if first is not None:
                at_ns = time_base_ns(stream.header) + nanoseconds(first)
                marks.add((rank_of(stream.header, path), at_ns))
                worlds.append(_world(stream.header))
    return Identity(worlds[0] if worlds else (), frozenset(marks), len(paths))


def relate(one: Identity, other: Identity) -> Literal["copy", "part"] | None:
    """How two sets belong together: as copies of the same traces, as parts of one job, or not."""
    if one.marks & other.marks:
        return "copy"
    if one.world != other.world or not (one.marks and other.marks):
        return None
    apart = min(abs(a - b) for _, a in one.marks for _, b in other.marks)
    return "part" if apart < _HOUR_NS else None


def _world(header: Mapping[str, Any]) -> tuple[Any, ...]:
    """What all ranks of one job tell alike."""
    distributed = header.get("distributedInfo")
    if not isinstance(distributed, dict):
        return ()
    return distributed.get("backend"), distributed.get("world_size")
