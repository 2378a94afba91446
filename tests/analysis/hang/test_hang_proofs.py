"""A hang is proven by who is waited for: while that process does anything, the job is not stopped,
and once it rests for longer than ever before, it is, and is named."""

from __future__ import annotations

from dataclasses import dataclass
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

    def incident(self) -> Incident:
        made = Incident.empty()
        ops = [row for rank in range(self.ranks) for row in self._calls(rank)]
        made.append("ops", _columns(ops))
        everybody = range(self.ranks)
        made.append("comms", {"job": "j", "comm": 1, "rank": list(everybody), "size": self.ranks})
        made.append("ranks", {"job": "j", "rank": list(everybody), "node": "n"})
        boards = {"comm": 1, "source": "board", "state": "running", "at_ns": self.looked_ns}
        made.append("launches", {"job": "j", "rank": list(everybody)} | boards)
        made.append("host_processes", _columns(list(self._readings())))
        return made

    @property
    def looked_ns(self) -> int:
        return self._at(STEPS) + round(self.missing_s * S)

    def _at(self, step: int) -> int:
        return START + step * STEP + (round(self.paused_s * S) if step >= STEPS // 2 else 0)

    def _calls(self, rank: int) -> list[dict[str, Any]]:
        rows = []
        for step in range(STEPS + 1):
            called_ns = self._at(step) + rank * MS
            if step == STEPS // 2 and rank != self.late and not self.together:
                called_ns -= round(self.paused_s * S)
            ended_ns = None if step == STEPS else self._at(step) + 50 * MS
            if step == STEPS and rank == self.culprit:
                continue
            row = {"job": "j", "comm": 1, "seq": step, "rank": rank, "op": "AllReduce"}
            row |= {"kind": "coll", "bytes": 1 << 20, "enqueued_ns": called_ns}
            observed_ns = self.looked_ns if ended_ns is None else None
            rows.append(row | {"ended_ns": ended_ns, "observed_ns": observed_ns})
        return rows

    def _readings(self) -> Any:
        """A reading of each process while the job pauses, in between, and now."""
        pauses_ns = self._at(STEPS // 2)
        for rank in range(self.ranks):
            rested = self.rested if rank == self.late or self.together else True
            rests = self.rests if rank == self.culprit else True
            for at_ns, still_s in (
                (pauses_ns, self.paused_s if rested else 0),
                (self._at(STEPS), 0),
                (self.looked_ns, self.missing_s if rests else 0),
            ):
                reading = {"node": "n", "job": "j", "rank": rank, "pid": 100 + rank, "state": "S"}
                still_ns = round(still_s * S) or None
                yield reading | {"at_ns": at_ns, "cpu_ns": 5, "still_ns": still_ns}


def _columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def judged(job: Job) -> tuple[str | None, list[int]]:
    """Whether it is stopped, and whom a hang names."""
    with job.incident() as incident:
        incident.require(["job_progress", "hang_suspects"])
        state = incident.con.execute("SELECT state FROM job_progress").fetchone()
        named = incident.con.execute("SELECT DISTINCT rank FROM hang_suspects").fetchall()
    return state and state[0], [rank for (rank,) in named]


RANKS = st.integers(2, 8).flatmap(
    lambda ranks: st.tuples(st.just(ranks), st.integers(0, ranks - 1), st.integers(0, ranks - 1))
)


@settings(max_examples=25, deadline=None)
@given(RANKS, st.floats(0.2, 120), st.floats(0, 60), st.booleans(), st.booleans())
def test_a_job_in_which_who_is_waited_for_does_anything_is_not_stopped(
    ranks: tuple[int, int, int], missing_s: float, paused_s: float, rested: bool, together: bool
) -> None:
    """As in a checkpoint, which is longer than any pause before."""
    of, culprit, late = ranks
    job = Job(of, culprit, missing_s, False, late, paused_s, rested, together)
    assert judged(job)[0] != "stopped"


@settings(max_examples=25, deadline=None)
@given(RANKS, st.floats(0.2, 100), st.floats(0.1, 1.9), st.booleans())
def test_a_job_that_rests_as_it_did_before_is_not_stopped(
    ranks: tuple[int, int, int], paused_s: float, times: float, together: bool
) -> None:
    of, culprit, late = ranks
    missing_s = times * max(4, paused_s)
    job = Job(of, culprit, missing_s, True, late, paused_s, True, together)
    assert judged(job)[0] != "stopped"


@settings(max_examples=25, deadline=None)
@given(RANKS, st.floats(2.1, 30), st.floats(0, 9), st.floats(0, 60))
def test_one_that_rests_longer_than_ever_is_named(
    ranks: tuple[int, int, int], times: float, rested_s: float, saved_s: float
) -> None:
    """However long others waited before, in a call, while one worked."""
    of, culprit, late = ranks
    rested = Job(of, culprit, times * max(4, rested_s), True, late, rested_s, True)
    assert judged(rested) == ("stopped", [culprit])
    worked = Job(of, culprit, times * 4, True, late, saved_s, False)
    assert judged(worked) == ("stopped", [culprit])
