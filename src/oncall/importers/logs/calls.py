"""Collectives that NCCL prints as processes call them: the first that they do not all call alike.

Communicators are known by size alone, as each process prints its own address of one: a size is
judged where as many processes have one of it as it has ranks.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import zip_longest

from oncall.importers.logs.line import Found, Line, event

_MOST_OPEN = 10_000  # operations that some have called: one that falls further behind hangs


@dataclass(frozen=True)
class Call:
    """A collective that one process calls, in the communicator of `size` ranks at `comm`."""

    size: int
    comm: str
    seq: int
    said: str
    rank: int | None


_Process = tuple[str | None, int | None]


@dataclass
class _Communicator:
    """What the processes of one size called, by number: several calls may share one."""

    open: dict[int, dict[_Process, list[tuple[Line, Call]]]] = field(default_factory=dict)
    last: dict[_Process, int] = field(default_factory=dict)
    comms: set[tuple[_Process, str]] = field(default_factory=set)

    def add(self, process: _Process, line: Line, call: Call) -> None:
        self.comms.add((process, call.comm))
        self.open.setdefault(call.seq, {}).setdefault(process, []).append((line, call))
        behind = self.last.get(process, call.seq) < call.seq
        self.last[process] = call.seq
        if behind and len(self.last) == call.size:
            self._forget(min(self.last.values()))
        if len(self.open) > _MOST_OPEN:
            del self.open[min(self.open)]

    def _forget(self, before: int) -> None:
        """Drop what all have called alike and have gone on from."""
        for seq in [seq for seq, calls in self.open.items() if seq < before]:
            said = {tuple(call.said for _, call in made) for made in self.open[seq].values()}
            if len(said) == 1:
                del self.open[seq]

    def first_difference(self, size: int) -> list[tuple[Line, Call]]:
        """The calls of one number and place that differ, of all processes."""
        if len(self.last) != size or len(self.comms) != size:
            return []
        for seq in sorted(self.open):
            for calls in zip_longest(*self.open[seq].values()):
                known = [one for one in calls if one is not None]
                if len(known) < size:
                    break
                if len({call.said for _, call in known}) > 1:
                    return known
        return []


class Calls:
    """The calls of one log."""

    def __init__(self) -> None:
        self._of_size: dict[int, _Communicator] = defaultdict(_Communicator)

    def add(self, line: Line, call: Call) -> None:
        """Add a call, whose line is kept without its neighbours."""
        known = Line(line.number, line.text, node=line.node, pid=line.pid, gpu=line.gpu)
        known.at_ns = line.at_ns
        self._of_size[call.size].add((line.node, line.pid), known, call)

    def first_difference(self) -> list[tuple[Line, Found]]:
        """The first collective that processes call differently, as an event of each of them. On one
        host the devices of all ranks are their numbers."""
        for size, communicator in sorted(self._of_size.items()):
            if not (made := communicator.first_difference(size)):
                continue
            gpus = {line.gpu for line, _ in made}
            alone = len({line.node for line, _ in made}) == 1 and gpus == set(range(size))
            ranks = [line.gpu if alone and call.rank is None else call.rank for line, call in made]
            calls = [call.said for _, call in made]
            if None in ranks:
                calls = [" against ".join(dict.fromkeys(calls))] * len(calls)
            return [
                (line, event("mismatch", "fingerprint", seq=call.seq, text=said, rank=rank))
                for (line, call), said, rank in zip(made, calls, ranks, strict=True)
            ]
        return []
