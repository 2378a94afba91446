"""Who hears how the work goes on: a command's terminal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

    from oncall.fleet.gather import Progress
    from oncall.importers.so_far import ReadSoFar
    from oncall.rules.engine.engine import SoFar


def _ignore(*_: object) -> None:
    """Nobody listens."""


@dataclass(frozen=True)
class Listener:
    """`reads`: which recordings are read, and how far that is; `gathers`: how far a gather is;
    `finds`: what rulebooks found so far; `warns`: what went wrong and cost nothing but itself.
    `interruptible`: what the work on an incident's connection is done within."""

    reads: Callable[[str, ReadSoFar], None] = _ignore
    gathers: Callable[[Progress], None] = _ignore
    finds: Callable[[SoFar], None] = _ignore
    warns: Callable[[str], None] = _ignore
    interruptible: Callable[[duckdb.DuckDBPyConnection], AbstractContextManager[object]] = (
        nullcontext
    )


SILENT = Listener()
