"""What Perfetto (https://ui.perfetto.dev) shows of an incident, and where: the verdict first, then
a process for each rank, those blamed above the others, then one for each node.

What overlaps on a thread gets another thread of that name, as events of one must nest.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from oncall.core.diagnosis import Diagnosis
from oncall.views.incident_tracks import Arrow, Clocks, Event
from oncall.views.words import who


class Process(NamedTuple):
    """A process by its number, its place among them; named again once its node is known."""

    pid: int
    name: str
    order: int


class Thread(NamedTuple):
    """A track of a process. Its number is no other thread's; `reads`: of readings."""

    pid: int
    tid: int
    name: str
    reads: bool


class Placed(NamedTuple):
    """An event on a thread."""

    pid: int
    tid: int
    event: Event


class End(NamedTuple):
    """Where an arrow starts, or ends: at what lasts then on the thread. Unix ns."""

    number: int
    starts: bool
    pid: int
    tid: int
    name: str
    at_ns: int


Item = Process | Thread | Placed | End


def trace(
    diagnosis: Diagnosis, clocks: Clocks, events: Iterable[Event], arrows: Iterable[Arrow]
) -> Iterator[Item]:
    """All of a trace; what an item refers to comes before it. Nothing where no event has a time."""
    places = _Places(diagnosis)
    found = iter(events)
    first = [*_verdicts(diagnosis), *(one for one in (next(found, None),) if one)]
    if not first:
        return
    origin_ns = min(filter(None, (diagnosis.since_ns, *(one.at_ns for one in first))))
    for event in chain((_recording(diagnosis, clocks, origin_ns),), first, found):
        yield from places.put(event)
    for number, arrow in enumerate(arrows):
        yield from places.connect(number, arrow)


class _Places:
    """The numbers of processes and threads, in the order in which they are asked for."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        findings = (one.blame for one in diagnosis.findings)
        suspects = (one.blame for one in diagnosis.suspects)
        named = chain.from_iterable(chain(findings, suspects))
        self._blamed = {blame.where.get("rank") for blame in named}
        self._processes: dict[tuple[int | None, str | None], Process] = {}
        self._threads: dict[tuple[int, str], list[int]] = defaultdict(list)
        self._until_ns: list[int] = []  # of each thread, where its last event ends

    def put(self, event: Event) -> Iterator[Item]:
        """The event, after the process and the thread if they are new."""
        key = (event.rank, event.node if event.rank is None else None)
        before = self._processes.get(key)
        process = self._named(event, before)
        if process != before:
            self._processes[key] = process
            yield process
        reads = event.value is not None
        until_ns = max(event.until_ns or event.at_ns, event.at_ns)
        numbers = self._threads[process.pid, event.thread]
        free = (one for one in numbers if reads or self._until_ns[one] <= event.at_ns)
        number = next(free, None)
        if number is None:
            number = len(self._until_ns)
            self._until_ns.append(0)
            numbers.append(number)
            yield Thread(process.pid, number + 1, event.thread, reads)
        self._until_ns[number] = max(until_ns, event.at_ns + 1)
        yield Placed(process.pid, number + 1, event)

    def connect(self, number: int, arrow: Arrow) -> Iterator[Item]:
        """Both ends of an arrow, of which one may be at what is not shown: then neither."""
        ends = ((True, arrow.rank, arrow.thread, arrow.at_ns),
                (False, arrow.to_rank, arrow.to_thread, arrow.to_ns))  # fmt: skip
        placed = [
            End(number, starts, process.pid, threads[0] + 1, arrow.name, at_ns)
            for starts, rank, thread, at_ns in ends
            if (process := self._processes.get((rank, None)))
            and (threads := self._threads.get((process.pid, thread)))
        ]
        if len(placed) == len(ends):
            yield from placed

    def _named(self, event: Event, before: Process | None) -> Process:
        pid = before.pid if before else len(self._processes) + 1
        if event.rank is None:
            return Process(pid, event.node or "job", 10_000_000 + pid if event.node else 0)
        if before and (event.node is None or " on " in before.name):
            return before
        name = f"rank {event.rank}" + (f" on {event.node}" if event.node else "")
        return Process(pid, name, event.rank + (1 if event.rank in self._blamed else 1_000_000))


def _recording(diagnosis: Diagnosis, clocks: Clocks, origin_ns: int) -> Event:
    """What was diagnosed, and how far its times can be compared."""
    about = {
        "result": diagnosis.result,
        "doubt": diagnosis.doubt if diagnosis.result == "inconclusive" else "",
        "clocks": f"{clocks.aligned} hosts on one clock, to within {clocks.error_ns} ns; "
        f"{clocks.unknown} hosts by their own clocks",
        "ranks_seen": diagnosis.coverage.of_ranks,
    }
    name = diagnosis.job or "job"
    return Event(None, None, "recording", name, origin_ns, None, None, json.dumps(about))


def _verdicts(diagnosis: Diagnosis) -> Iterator[Event]:
    """Each finding with its steps; without a time of its own, at the end of the evidence."""
    for one in diagnosis.findings:
        at_ns = one.at_ns or diagnosis.until_ns
        if at_ns is not None:
            steps = enumerate((f"{step.ask} {step.say}" for step in one.story), 1)
            about: dict[str, Any] = {
                "verdict": f"{one.rulebook}.{one.verdict}",
                "severity": one.severity,
                "confidence": one.confidence,
            }
            about |= {f"step {number}": text for number, text in steps}
            about |= {f"next {number}": text for number, text in enumerate(one.next, 1)}
            until_ns = one.until_ns or diagnosis.until_ns
            name = f"{one.title}: {who(one.blame)}" if one.blame else one.title
            yield Event(None, None, "verdict", name, at_ns, until_ns, None, json.dumps(about))
