"""A line of a log as recognisers get it, and what they make of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any


@dataclass
class Line:
    """One line, its prefixes peeled off: `text` is what the program itself wrote.

    What the prefixes say is None where they do not say it. `rank` is the global rank, `gpu` the
    CUDA device in its process (NCCL's brackets), `above` and `below` give neighbouring lines
    without their prefixes, nearest first; `raw_above` and `raw_below` with them. `around` gives
    the stamps of the stamped lines before and after it.
    """

    number: int
    text: str
    above: Callable[[int], list[str]] = field(default=lambda _: [])
    below: Callable[[int], list[str]] = field(default=lambda _: [])
    raw_above: Callable[[int], list[str]] = field(default=lambda _: [])
    raw_below: Callable[[int], list[str]] = field(default=lambda _: [])
    around: Callable[[], tuple[int | None, int | None]] = field(default=lambda: (None, None))
    rank: int | None = None
    world: int | None = None
    local_rank: int | None = None
    task: int | None = None
    node: str | None = None
    pid: int | None = None
    gpu: int | None = None
    at_ns: int | None = None
    level: str | None = None
    nccl: str | None = None

    @cached_property
    def unwrapped(self) -> str:
        """The text with the lines below it, for messages that a viewer wrapped: between words, and
        again, on a second line, as one that cut through words."""
        below = self.below(4)
        spaced = " ".join([self.text.rstrip(), *(line.strip() for line in below)])
        return spaced + "\n" + "".join([self.text, *below])


@dataclass
class Found:
    """A row for `table`: columns that the recogniser sets; the importer adds where and when."""

    table: str
    columns: dict[str, Any]


def event(kind: str, code: str | None = None, **columns: Any) -> Found:
    """A row of `log_events`."""
    return Found("log_events", {"kind": kind, "code": code, **columns})


@dataclass(frozen=True)
class Recogniser:
    """What reads lines that hold any of `words`."""

    name: str
    words: Sequence[str]
    read: Callable[[Line], Sequence[Found]]
