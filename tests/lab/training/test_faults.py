"""Each fault changes its own rank only; what the others show follows from waiting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.sql import rows

from oncall.core.errors import UsageError
from oncall.core.units import NS_PER_S
from oncall.evidence.incident import Incident
from oncall_lab import FaultTruth, TrainingFault, TrainingScenario, simulate

BASE = TrainingScenario(
    tp=4, pp=2, dp=4, micro_batches=2, duration_ns=40 * NS_PER_S, clock_offset_ns=0,
    clock_drift_ppm=0.0, tp_bytes=256 * 2**20,
)  # fmt: skip
AT = 20 * NS_PER_S
RANK = 13  # stage 0, replica 3


@contextmanager
def under(
    *faults: TrainingFault, base: TrainingScenario = BASE
) -> Iterator[tuple[Incident, FaultTruth]]:
    incident, truth = simulate(replace(base, faults=faults))
    with incident:
        yield incident, truth.faults[0]


def in_flight(incident: Incident, truth: FaultTruth) -> dict[int, tuple[int, int, int]]:
    """Rank -> seq, sends, recvs of what it waits in, in the fault's communicator."""
    found = rows(
        incident,
        "SELECT rank, seq, sends, recvs FROM ops WHERE NOT done AND comm = ?",
        int(truth.comms[0], 16),
    )
    return {rank: (seq, sends, recvs) for rank, seq, sends, recvs in found}


def test_before_a_fault_all_is_as_without_it() -> None:
    healthy, _ = simulate(BASE)
    with healthy, under(TrainingFault("H3", (RANK,), AT)) as (sick, truth):
        before = "FROM (SELECT * EXCLUDE (send_rate, recv_rate, enqueued_ns) FROM ops) "
        before += "WHERE ended_ns < ? ORDER BY ALL"
        assert rows(sick, before, truth.started_ns) == rows(healthy, before, truth.started_ns)


def rounds(
    incident: Incident, comm: str, since_ns: int, until_ns: int = 2**62
) -> list[tuple[Any, ...]]:
    """Of each round between instants: the range of durations, who stayed shortest, the slowest."""
    return rows(
        incident,
        """SELECT max(ended_ns - started_ns) - min(ended_ns - started_ns),
                  arg_min(rank, ended_ns - started_ns), arg_min(rank, send_rate + recv_rate),
                  min(ended_ns - started_ns)
           FROM ops WHERE comm = ? AND done AND started_ns BETWEEN ? AND ? AND bytes > 1000
           GROUP BY seq ORDER BY seq""",
        int(comm, 16),
        since_ns,
        until_ns,
    )


def comm_of(incident: Incident, rank: int, role: str) -> str:
    found = rows(incident, "SELECT comm FROM comms WHERE rank = ? AND role = ?", rank, role)
    return f"0x{found[0][0]:016x}"


def test_a_slow_fault_ends_when_reported() -> None:
    fault = TrainingFault("S1", (RANK,), 10 * NS_PER_S, lasting_ns=10 * NS_PER_S, factor=4)
    with under(fault) as (incident, truth):
        after = rounds(incident, comm_of(incident, RANK, "tp"), truth.started_ns + 16 * NS_PER_S)
        assert sum(late == RANK for _, late, _, _ in after) < 0.5 * len(after)


def test_two_at_once() -> None:
    faults = (TrainingFault("H1", (1,), AT, role="tp"), TrainingFault("H3", (30,), AT, role="tp"))
    incident, truth = simulate(replace(BASE, faults=faults))
    with incident:
        assert [fault.kind for fault in truth.faults] == ["H1", "H3"]
        assert [fault.ranks for fault in truth.faults] == [(1,), (30,)]
        assert truth.unstruck == 0


def test_a_fault_that_never_acts_is_an_error() -> None:
    with pytest.raises(UsageError, match="no fault came to act"):
        simulate(replace(BASE, faults=(TrainingFault("H1", (RANK,), 100 * NS_PER_S),)))
    with pytest.raises(UsageError, match="ends before the first operation"):
        simulate(replace(BASE, pp=1, duration_ns=10**6))
