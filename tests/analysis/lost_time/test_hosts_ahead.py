"""Calls alone, of hosts that run ahead of their devices and let gradients go on beside them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.together import Job

from oncall.analysis.lost_time.books import books_of
from oncall.analysis.lost_time.causes import excess_of_own
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.programs import read_programs
from oncall.evidence import Incident

from .jobs import GROUPS, LAYERS, MS, UNIX_NS, layers, no_offset

WORK_MS, ITERATIONS, SLOW_FROM = 10, 10, 5
REPLICAS = ((0, 2), (1, 3))  # ranks that reduce the same gradients
EVERYONE = (0, 1, 2, 3)
Call = tuple[int, str, int]  # communicator, operation, elements


@dataclass
class Iteration:
    """What four devices do in one iteration, ms: `pieces` of work, and the `calls` behind each."""

    number: int
    slow: int | None
    at: list[float]
    pieces: list[list[tuple[float, float]]] = field(default_factory=lambda: [[], [], [], []])
    calls: list[list[Call]] = field(default_factory=lambda: [[], [], [], []])

    def meet(self, members: tuple[int, ...], work_ms: float, call: Call) -> float:
        """Let members work, then call; when the operation is over."""
        for rank in members:
            begin = self.at[rank]
            jitter = 0.1 * ((7 * rank + 3 * self.number + len(self.pieces[rank])) % 5)
            factor = 2 if rank == self.slow and self.number >= SLOW_FROM else 1
            self.at[rank] += (work_ms + jitter) * factor if work_ms else 0.05
            self.pieces[rank].append((begin, self.at[rank]))
            self.calls[rank].append(call)
        return max(self.at[rank] for rank in members) + 0.2

    def wait(self, members: tuple[int, ...], until: float) -> None:
        for rank in members:
            self.at[rank] = max(self.at[rank], until)

    def run(self, overlap: bool) -> None:
        """Tensor groups reduce twice a layer, replicas once, beside the layers if they `overlap`;
        all meet at the end."""
        pending: list[tuple[tuple[int, ...], float]] = []
        for _ in range(LAYERS):
            for number, members in enumerate(GROUPS):
                for _ in range(2):
                    self.wait(members, self.meet(members, WORK_MS, (number, "AllReduce", 4096)))
            for number, members in enumerate(REPLICAS):
                over = self.meet(members, 0, (number + 5, "ReduceScatter", 65536))
                pending.append((members, over))
                if not overlap:
                    self.wait(members, over)
        for members, over in pending:
            self.wait(members, over)
        self.wait(EVERYONE, self.meet(EVERYONE, 1, (9, "AllReduce", 1)))

    def called_ms(self, rank: int, begin: float, lead: float) -> list[float]:
        """When a host makes its calls, which runs so many pieces of work ahead."""
        found, last = [], begin
        for number in range(len(self.calls[rank])):
            if number >= int(lead):
                started, ended = self.pieces[rank][number - int(lead)]
                last = max(last + 0.001, started + (ended - started) * (1 - lead % 1))
            found.append(last)
        return found


def played(slow: int | None, lead: float, *, overlap: bool) -> tuple[dict[str, Any], list[float]]:
    """Columns of `ops`, and how long each iteration takes, ms. From iteration SLOW_FROM on the work
    of a rank takes twice as long."""
    rows: list[dict[str, Any]] = []
    begin, lengths = 0.0, []
    for number in range(ITERATIONS):
        one = Iteration(number, slow, [begin] * 4)
        one.run(overlap)
        for rank in EVERYONE:
            comms = [comm for comm, *_ in one.calls[rank]]
            times = one.called_ms(rank, begin, lead)
            for place, (comm, op, count) in enumerate(one.calls[rank]):
                seq = number * comms.count(comm) + comms[:place].count(comm)
                rows.append(
                    {"job": "j", "comm": comm, "seq": seq, "rank": rank, "kind": "coll"}
                    | {"op": op, "count": count, "done": True}
                    | {"enqueued_ns": UNIX_NS + int(times[place] * MS)}
                )
        lengths.append(max(one.at) - begin)
        begin = max(one.at)
    return {name: [row[name] for row in rows] for name in rows[0]}, lengths


def entries(job: Job, columns: dict[str, Any]) -> list[tuple[Any, ...]]:
    job.append("ops", columns)
    return job.found("lost_time", "cause, rank, share", "cause <> 'account'")


@pytest.mark.parametrize("lead", [0, 0.5, 0.8])
@pytest.mark.parametrize("overlap", [False, True])
def test_all_that_a_slow_rank_costs_is_its_own(job: Job, lead: float, overlap: bool) -> None:
    columns, lengths = played(2, lead, overlap=overlap)
    _, without = played(None, lead, overlap=overlap)
    true = 1 - sum(without[SLOW_FROM:]) / sum(lengths[SLOW_FROM:])
    ((cause, rank, share),) = entries(job, columns)
    assert (cause, rank) == ("own", 2)
    assert share == pytest.approx(true, rel=0.05)


@pytest.mark.parametrize("lead", [0, 0.8, 1.3])
@pytest.mark.parametrize("overlap", [False, True])
def test_even_work_loses_nothing(job: Job, lead: float, overlap: bool) -> None:
    assert entries(job, played(None, lead, overlap=overlap)[0]) == []


def test_who_waits_for_a_late_host_may_call_ahead_of_its_own_device(job: Job) -> None:
    """Rank 2 is late for the second call of three iterations; its partner makes its third before
    its device is through the second. Nothing of that time is the partner's own."""
    late_ms, work_ms, takes_ms = 100.0, 10.0, 1.0
    rows: list[dict[str, Any]] = []
    now, lengths = [0.0] * 4, []
    for number in range(ITERATIONS):
        begin, late = max(now), number in (5, 6, 8)
        called = [0.0] * 4
        for place in range(LAYERS + 1):
            now[2] += late_ms * (late and place == 1)
            for comm, members in enumerate(GROUPS) if place < LAYERS else [(9, EVERYONE)]:
                began = {rank: now[rank] + work_ms for rank in members}
                over = max(began.values()) + takes_ms
                for rank in members:
                    ahead = late and rank == 3 and place == 2
                    called[rank] = called[rank] + 0.1 if ahead else began[rank]
                    rows.append(
                        {"job": "j", "comm": comm, "rank": rank, "kind": "coll", "op": "AllReduce"}
                        | {"seq": number * LAYERS + place if comm < 9 else number, "done": True}
                        | {"count": 4096 if comm < 9 else 1}
                        | {"enqueued_ns": UNIX_NS + int(called[rank] * MS)}
                        | {"duration_ns": int((over - began[rank]) * MS)}
                    )
                    now[rank] = over
        lengths.append(max(now) - begin)
    ((cause, rank, share),) = entries(job, {name: [row[name] for row in rows] for name in rows[0]})
    assert (cause, rank) == ("own", 2)
    assert share == pytest.approx(late_ms / max(lengths), rel=0.05)


def test_a_slow_rank_shows_though_hosts_call_a_whole_iteration_at_once(job: Job) -> None:
    """Each host makes all calls of an iteration as it begins, and then waits: the time between two
    calls is in no relation to what devices do meanwhile, which durations show."""
    work = {2: 13}
    played = layers(
        lambda _, rank, __: work.get(rank, 10), lambda *_: 1, 10, timed=True, clock=no_offset
    )
    made: dict[int, int] = {}
    begin_ns = UNIX_NS
    for place, (rank, comm) in enumerate(zip(played["rank"], played["comm"], strict=True)):
        played.setdefault("duration_ns", []).append(
            played["ended_ns"][place] - played["started_ns"][place]
        )
        made[rank] = made.get(rank, 0) + 1
        played.setdefault("enqueued_ns", []).append(begin_ns + made[rank] * MS // 50)
        if comm == 9 and len(played["duration_ns"]) % (4 * LAYERS + 4) == 0:
            begin_ns, made = played["ended_ns"][place], {}
    del played["started_ns"], played["ended_ns"]
    ((cause, rank, share),) = entries(job, played)
    assert (cause, rank) == ("own", 2)
    assert share == pytest.approx(3 * LAYERS / (13 * LAYERS), rel=0.1)
    with Incident.empty() as incident:
        incident.append("ops", played | {"job": "j"})
        incident.require(["operations", "members"])
        programs = read_programs(incident.con, "j", Limits())
    assert programs is not None
    books = books_of(programs, Limits())
    assert books is not None
    assert not books.in_step
    assert not books.joined(excess_of_own).any()
