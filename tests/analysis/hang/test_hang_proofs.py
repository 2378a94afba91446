"""A hang is proven by who is waited for: while that process does anything, the job is not stopped,
and once it rests for longer than ever before, it is, and is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from oncall.evidence import Incident

S, MS = 10**9, 10**6
START = 1_700_000_000 * S
STEPS, STEP = 30, 100 * MS


@dataclass(frozen=True)
class Job:
    """Ranks that call one AllReduce a step, each later than the one before. Before one step rank
    `late` pauses for `paused_s`, where it moves or `rested`; the others wait in their call or, if
    `together`, pause as well. At the end `culprit` makes no call for `missing_s`, where it moves or
    rests."""

    ranks: int
    culprit: int
    missing_s: float
    rests: bool
    late: int = 0
    paused_s: float = 0
    rested: bool = False
    together: bool = False

    @property
    def looked_ns(self) -> int:
        return self._at(STEPS) + round(self.missing_s * S)

    def _at(self, step: int) -> int:
        return START + step * STEP + (round(self.paused_s * S) if step >= STEPS // 2 else 0)

    def calls(self, rank: int) -> list[dict[str, Any]]:
        rows = []
        for step in range(STEPS + 1):
            called_ns = self._at(step) + rank * MS
            if step == STEPS // 2 and rank != self.late and not self.together:
                called_ns -= round(self.paused_s * S)
            ended_ns = None if step == STEPS else self._at(step) + 50 * MS
            if step == STEPS and rank == self.culprit:
                continue
            row = {"seq": step, "rank": rank, "op": "AllReduce"}
            row |= {"kind": "coll", "bytes": 1 << 20, "enqueued_ns": called_ns}
            observed_ns = self.looked_ns if ended_ns is None else None
            rows.append(row | {"ended_ns": ended_ns, "observed_ns": observed_ns})
        return rows

    def readings(self) -> list[dict[str, Any]]:
        """A reading of each process while the job pauses, in between, and now."""
        rows = []
        pauses_ns = self._at(STEPS // 2)
        for rank in range(self.ranks):
            rested = self.rested if rank == self.late or self.together else True
            rests = self.rests if rank == self.culprit else True
            for at_ns, still_s in (
                (pauses_ns, self.paused_s if rested else 0),
                (self._at(STEPS), 0),
                (self.looked_ns, self.missing_s if rests else 0),
            ):
                reading = {"rank": rank, "pid": 100 + rank, "state": "S"}
                still_ns = round(still_s * S) or None
                rows.append(reading | {"at_ns": at_ns, "cpu_ns": 5, "still_ns": still_ns})
        return rows


def incident_of(jobs: Sequence[Job]) -> Incident:
    """All of them, each named by its place."""
    made = Incident.empty()
    for name, job in enumerate(jobs):
        rows = {"job": str(name), "rank": list(range(job.ranks))}
        boards = {"comm": 1, "source": "board", "state": "running", "at_ns": job.looked_ns}
        calls = [row for rank in range(job.ranks) for row in job.calls(rank)]
        for table, columns in (
            ("ops", {"job": str(name), "comm": 1} | _columns(calls)),
            ("comms", rows | {"comm": 1, "size": job.ranks}),
            ("ranks", rows | {"node": f"n{name}"}),
            ("launches", rows | boards),
            ("host_processes", {"job": str(name), "node": f"n{name}"} | _columns(job.readings())),
        ):
            made.append(table, columns)
    return made


def _columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def judged(jobs: Sequence[Job]) -> list[tuple[str | None, list[int]]]:
    """Of each whether it is stopped, and whom a hang names."""
    with incident_of(jobs) as incident:
        incident.require(["job_progress", "hang_suspects"])
        states = dict(incident.con.execute("SELECT job, state FROM job_progress").fetchall())
        named = incident.con.execute("SELECT DISTINCT job, rank FROM hang_suspects").fetchall()
    return [
        (states.get(str(name)), [rank for job, rank in named if job == str(name)])
        for name in range(len(jobs))
    ]


@st.composite
def jobs(draw: st.DrawFn, times: st.SearchStrategy[float], **fixed: bool) -> Job:
    """A job whose culprit is missing for `times` its normal rest, at least four seconds."""
    ranks = draw(st.integers(2, 8))
    job = Job(ranks, draw(st.integers(0, ranks - 1)), 0, False, draw(st.integers(0, ranks - 1)))
    paused_s = draw(st.floats(0, 60))
    drawn = {name: draw(st.booleans()) for name in ("rests", "rested", "together")} | fixed
    job = replace(job, paused_s=paused_s, **drawn)
    # What it rested by itself: neither work nor who waits in a call counts.
    normal_s = max(4.0, paused_s if job.rested else 0)
    return replace(job, missing_s=draw(times) * normal_s)


def many(times: st.SearchStrategy[float], **fixed: bool) -> st.SearchStrategy[list[Job]]:
    return st.lists(jobs(times, **fixed), min_size=12, max_size=12)


FEW = settings(max_examples=3, deadline=None)


def test_who_is_waited_for_decides() -> None:
    """Rank 2 of four makes no call; before, rank 1 was late by half a minute once."""
    moves = Job(4, culprit=2, missing_s=120, rests=False)
    rests = Job(4, culprit=2, missing_s=9, rests=True)
    worked = replace(rests, late=1, paused_s=30)
    rested = replace(worked, rested=True)
    all_rested = replace(rested, together=True)
    assert judged([moves, rests, worked, rested, all_rested, replace(rested, missing_s=61)]) == [
        ("unclear", [2]),
        ("stopped", [2]),
        ("stopped", [2]),
        ("moving", []),
        ("moving", []),
        ("stopped", [2]),
    ]


@FEW
@given(many(st.floats(0.1, 20), rests=False))
def test_a_job_in_which_who_is_waited_for_does_anything_is_not_stopped(some: list[Job]) -> None:
    """As in a checkpoint that takes longer than any pause before."""
    some = [replace(job, missing_s=min(job.missing_s, 120)) for job in some]
    assert [state for state, _ in judged(some) if state == "stopped"] == []


@FEW
@given(many(st.floats(0.1, 1), rests=True))
def test_a_job_that_rests_no_longer_than_it_did_is_not_stopped(some: list[Job]) -> None:
    assert [state for state, _ in judged(some) if state == "stopped"] == []


@FEW
@given(many(st.floats(2.05, 4), rests=True))
def test_one_that_rests_longer_than_ever_is_named(some: list[Job]) -> None:
    assert judged(some) == [("stopped", [job.culprit]) for job in some]
