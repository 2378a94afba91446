"""An incident for Perfetto (https://ui.perfetto.dev) and chrome://tracing: the verdict first, then
a process for each rank, those blamed above the others, then one for each node.

The format is Chrome's Trace Event Format (JSON), times in microseconds since the first event: `X`
for what lasts, `C` for readings, `i` for instants, `s` and `f` for arrows. What overlaps on a
thread gets another thread of that name, as events of one must nest.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from oncall.core.diagnosis import Diagnosis
from oncall.core.printable import harmless
from oncall.views.incident_tracks import Arrow, Clocks, Event
from oncall.views.words import who

_Process = tuple[int | None, str | None]  # a rank, or a node; the job: neither


class _Places:
    """The numbers of processes and threads, in the order in which they are asked for."""

    def __init__(self) -> None:
        self.processes: dict[_Process, int] = {}
        self.nodes: dict[int, str] = {}  # of ranks
        self.threads: dict[tuple[int, str], list[int]] = defaultdict(list)
        self._until_ns: list[int] = []  # of each thread, where its last event ends

    def process(self, process: _Process) -> int:
        return self.processes.setdefault(process, len(self.processes) + 1)

    def free(self, process: _Process, thread: str, at_ns: int, until_ns: int) -> tuple[int, int]:
        """The process and the first thread of this name on which nothing lasts at `at_ns`."""
        pid = self.process(process)
        named = self.threads[pid, thread]
        for number in named:
            if self._until_ns[number] <= at_ns:
                break
        else:
            number = len(self._until_ns)
            self._until_ns.append(0)
            named.append(number)
        self._until_ns[number] = max(until_ns, at_ns + 1)
        return pid, number

    def names(self, blamed: Iterable[int | None]) -> Iterator[dict[str, Any]]:
        """What names processes and threads, and puts them in order."""
        first = set(blamed)
        for (rank, node), pid in self.processes.items():
            if rank is not None:
                at = f" on {self.nodes[rank]}" if rank in self.nodes else ""
                name, order = f"rank {rank}{at}", rank + (1 if rank in first else 1_000_000)
            else:
                name, order = (node, 10_000_000 + pid) if node is not None else ("job", 0)
            yield _about("process_name", pid, 0, name=name)
            yield _about("process_sort_index", pid, 0, sort_index=order)
        for (pid, thread), numbers in self.threads.items():
            for number in numbers:
                yield _about("thread_name", pid, number + 1, name=thread)


def perfetto_trace(
    diagnosis: Diagnosis, clocks: Clocks, events: Iterable[Event], arrows: Iterable[Arrow]
) -> Iterator[str]:
    """The pieces of the JSON text. Nothing where there is no event with a time."""
    places = _Places()
    origin_ns: int | None = None
    for event in chain(_verdicts(diagnosis), events):
        if origin_ns is None:
            origin_ns = min(filter(None, (diagnosis.since_ns, event.at_ns)))
            yield _head(diagnosis, clocks, origin_ns)
        yield f",\n{_event(event, places, origin_ns)}"
    if origin_ns is None:
        return
    for number, arrow in enumerate(arrows):
        yield from (f",\n{json.dumps(one)}" for one in _arrow(number, arrow, places, origin_ns))
    findings = (one.blame for one in diagnosis.findings)
    suspects = (one.blame for one in diagnosis.suspects)
    named = chain.from_iterable(chain(findings, suspects))
    blamed = (blame.where.get("rank") for blame in named)
    yield from (f",\n{json.dumps(one)}" for one in places.names(blamed))
    yield "\n]}\n"


def _head(diagnosis: Diagnosis, clocks: Clocks, origin_ns: int) -> str:
    about = {
        "job": diagnosis.job,
        "result": diagnosis.result,
        "doubt": diagnosis.doubt if diagnosis.result == "inconclusive" else "",
        "origin_unix_ns": origin_ns,
        "clocks": f"{clocks.aligned} hosts on one clock, to within {clocks.error_ns} ns; "
        f"{clocks.unknown} hosts by their own clocks",
        "ranks_seen": diagnosis.coverage.of_ranks,
    }
    return (
        f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(about)},\n"traceEvents": [\n'
        f"{json.dumps(_about('process_labels', 0, 0, labels=diagnosis.job))}"
    )


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


def _event(event: Event, places: _Places, origin_ns: int) -> str:
    process = (event.rank, None) if event.rank is not None else (None, event.node)
    if event.rank is not None and event.node is not None:
        places.nodes.setdefault(event.rank, event.node)
    ts = (event.at_ns - origin_ns) / 1000
    if event.value is not None:
        pid = places.process(process)
        counter = {"ph": "C", "pid": pid, "name": event.thread, "ts": ts}
        return json.dumps(counter | {"args": {event.name: event.value}})
    until_ns = max(event.until_ns or event.at_ns, event.at_ns)
    pid, number = places.free(process, event.thread, event.at_ns, until_ns)
    place = {"pid": pid, "tid": number + 1, "name": event.name, "ts": ts}
    head: dict[str, Any] = {"ph": "i", "s": "t"}
    if event.until_ns is not None:
        head = {"ph": "X", "dur": (until_ns - event.at_ns) / 1000}
    # What an event is about is JSON already, though not all of its characters are harmless.
    return f'{json.dumps(head | place)[:-1]}, "args": {harmless(event.about)}}}'


def _arrow(number: int, arrow: Arrow, places: _Places, origin_ns: int) -> Iterator[dict[str, Any]]:
    """From an event to another, which the viewer finds by process, thread and time."""
    ends = (("s", arrow.rank, arrow.thread, arrow.at_ns),
            ("f", arrow.to_rank, arrow.to_thread, arrow.to_ns))  # fmt: skip
    for phase, rank, thread, at_ns in ends:
        pid = places.process((rank, None))
        threads = places.threads.get((pid, thread))
        yield {
            "ph": phase,
            **({"bp": "e"} if phase == "f" else {}),
            "cat": "wait",
            "id": number,
            "name": arrow.name,
            "pid": pid,
            "tid": threads[0] + 1 if threads else 0,
            "ts": (at_ns - origin_ns) / 1000,
        }


def _about(kind: str, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args}
