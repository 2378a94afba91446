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


@pytest.mark.parametrize("role", ["tp", "dp", "pp", "world", ""])
def test_h1_its_peers_wait_in_the_operation_it_never_enters(role: str) -> None:
    with under(TrainingFault("H1", (RANK,), AT, role=role)) as (incident, truth):
        assert truth.ranks == (RANK,) and truth.seq is not None
        waiting = in_flight(incident, truth)
        assert RANK not in waiting and waiting
        if role != "pp":
            assert {seq for seq, _, _ in waiting.values()} == {truth.seq}
            (last,) = rows(
                incident,
                "SELECT max(seq) FROM ops WHERE rank = ? AND comm = ? AND done",
                RANK,
                int(truth.comms[0], 16),
            )
            assert last == (truth.seq - 1,)
        assert rows(incident, "SELECT * FROM ops WHERE rank = ? AND NOT done", RANK) == []


def test_a_hang_reaches_everybody_and_is_observed_for_ten_minutes() -> None:
    with under(TrainingFault("H1", (RANK,), AT)) as (incident, truth):
        waiting = rows(incident, "SELECT DISTINCT rank FROM ops WHERE NOT done")
        assert {rank for (rank,) in waiting} == set(range(32)) - {RANK}
        (seen,) = rows(incident, "SELECT max(observed_ns) FROM ops")[0]
        assert seen == truth.started_ns + 600 * NS_PER_S
        assert (
            rows(incident, "SELECT max(ended_ns) FROM ops")[0][0] < truth.started_ns + 9 * NS_PER_S
        )


def test_before_a_fault_all_is_as_without_it() -> None:
    healthy, _ = simulate(BASE)
    with healthy, under(TrainingFault("H3", (RANK,), AT)) as (sick, truth):
        before = "FROM (SELECT * EXCLUDE (send_rate, recv_rate, enqueued_ns) FROM ops) "
        before += "WHERE ended_ns < ? ORDER BY ALL"
        assert rows(sick, before, truth.started_ns) == rows(healthy, before, truth.started_ns)


def test_h1_crashed_and_vanished_ranks_take_evidence_along() -> None:
    last = "SELECT max(ended_ns), count(*) FROM ops WHERE rank = ?"
    with under(TrainingFault("H1", (RANK,), AT, how="crash")) as (incident, truth):
        ended, left = rows(incident, last, RANK)[0]
        assert left > 0 and ended <= truth.started_ns - 10 * NS_PER_S
    with under(TrainingFault("H1", (RANK,), AT, how="vanish")) as (incident, _):
        assert rows(incident, last, RANK) == [(None, 0)]
        assert rows(incident, "FROM ranks WHERE rank = ?", RANK) == []
        assert rows(incident, "FROM comms WHERE rank = ?", RANK) != []


@pytest.mark.parametrize("role", ["tp", "dp"])
def test_h2_another_operation_leaves_both_sides_stuck(role: str) -> None:
    with under(TrainingFault("H2", (RANK,), AT, role=role)) as (incident, truth):
        calls = dict(
            rows(
                incident,
                "SELECT rank, op FROM ops WHERE comm = ? AND seq = ? AND NOT done",
                int(truth.comms[0], 16),
                truth.seq,
            )
        )
        assert len(calls) == 4
        odd = calls.pop(RANK)
        assert odd not in calls.values() and len(set(calls.values())) == 1


@pytest.mark.parametrize(("how", "out"), [("smaller", {RANK}), ("larger", {12, 14, 15})])
def test_h2_another_count_lets_the_smaller_side_out(how: str, out: set[int]) -> None:
    with under(TrainingFault("H2", (RANK,), AT, role="tp", how=how)) as (incident, truth):
        of_round = rows(
            incident,
            "SELECT rank, done, bytes, count FROM ops WHERE comm = ? AND seq = ?",
            int(truth.comms[0], 16),
            truth.seq,
        )
        assert {rank for rank, done, _, _ in of_round if done} == out
        sizes = {rank: size for rank, _, size, _ in of_round}
        others = {size for rank, size in sizes.items() if rank != RANK}
        assert len(others) == 1 and sizes[RANK] not in others
        # Those who got out wait one operation further on, or for something else by now.
        further = {rank: seq for rank, (seq, _, _) in in_flight(incident, truth).items()}
        assert all(further.get(rank, truth.seq + 1) == truth.seq + 1 for rank in out)


def test_h2_crossed_order_makes_a_cycle() -> None:
    """The odd rank waits in the world's operation for its group, the group waits for it."""
    base = replace(BASE, pp=1, dp=2, gpus_per_node=4)
    with under(TrainingFault("H2", (2,), AT, role="dp", how="order"), base=base) as (
        incident,
        truth,
    ):
        waits = dict(
            rows(
                incident,
                "SELECT rank, role FROM ops JOIN comms USING (comm, rank) WHERE NOT done",
            )
        )
        assert waits[2] == "world" and waits[6] == "dp"
        assert len(truth.comms) == 2


@pytest.mark.parametrize("tree", [(), ("dp",)])
@pytest.mark.parametrize("role", ["tp", "dp"])
def test_h3_all_entered_and_the_faulty_one_did_least(role: str, tree: tuple[str, ...]) -> None:
    base = replace(BASE, distributed_optimizer=False, tree=tree)
    fault = TrainingFault("H3", (RANK,), AT, role=role, progress=0.3)
    with under(fault, base=base) as (incident, truth):
        waiting = in_flight(incident, truth)
        assert len(waiting) == 4 and {seq for seq, _, _ in waiting.values()} == {truth.seq}
        layers = dict(
            rows(
                incident,
                "SELECT rank, coalesce(tree_layer, 0) FROM comms WHERE comm = ?",
                int(truth.comms[0], 16),
            )
        )
        moved = {rank: sends + recvs for rank, (_, sends, recvs) in waiting.items()}
        assert all(n > 0 for n in moved.values())
        peers = [moved[rank] for rank in moved if layers[rank] == layers[RANK] and rank != RANK]
        assert all(moved[RANK] < other for other in peers)
        by_channel = rows(
            incident,
            "SELECT rank, sum(sends), sum(recvs), count(*) FROM op_channels "
            "WHERE comm = ? AND seq = ? GROUP BY rank",
            int(truth.comms[0], 16),
            truth.seq,
        )
        assert {rank: (truth.seq, int(s), int(r)) for rank, s, r, _ in by_channel} == waiting
        assert {n for _, _, _, n in by_channel} == {BASE.channels}


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


def test_s1_a_throttled_rank_comes_last_and_stays_shortest() -> None:
    with under(TrainingFault("S1", (RANK,), AT, factor=2.5)) as (incident, truth):
        after = rounds(incident, comm_of(incident, RANK, "tp"), truth.started_ns + NS_PER_S)
        assert sum(late == RANK for _, late, _, _ in after) > 0.9 * len(after)
        assert truth.slowdown is not None and truth.slowdown > 1.3
        assert truth.severity == 2.5


def test_s1_pauses_come_and_go() -> None:
    pause = TrainingFault(
        "S1", (RANK,), AT, how="pauses", pause_ns=NS_PER_S, period_ns=4 * NS_PER_S
    )
    with under(pause) as (incident, truth):
        after = rounds(incident, comm_of(incident, RANK, "tp"), truth.started_ns - 1)
        long = [late for apart, late, _, _ in after if apart > NS_PER_S // 2]
        assert set(long) == {RANK} and 3 <= len(long) <= 6


def test_s1_more_data_makes_the_whole_replica_late() -> None:
    replica = tuple(range(12, 16))
    with under(TrainingFault("S1", replica, AT, how="data", factor=3)) as (incident, truth):
        after = rounds(incident, comm_of(incident, RANK, "dp"), truth.started_ns + 5 * NS_PER_S)
        assert {late for apart, late, _, _ in after if apart > NS_PER_S // 10} == {RANK}


@pytest.mark.parametrize("role", ["tp", "dp"])
@pytest.mark.parametrize("tree", [(), ("dp",)])
def test_s2_all_stay_longer_and_the_slow_link_shows_in_the_rates(
    role: str, tree: tuple[str, ...]
) -> None:
    base = replace(BASE, distributed_optimizer=False, tree=tree, gpus_per_node=4)
    fault = TrainingFault("S2", (RANK,), AT, role=role, factor=20)
    with under(fault, base=base) as (incident, truth):
        comm = comm_of(incident, RANK, role)
        assert truth.comms == (comm,)
        after = rounds(incident, comm, truth.started_ns + NS_PER_S)
        before = rounds(incident, comm, 0, truth.started_ns - NS_PER_S)
        if role == "tp" or not tree:
            assert sum(slow == RANK for _, _, slow, _ in after) > 0.9 * len(after)
        assert min(shortest for *_, shortest in after) > 4 * max(s for *_, s in before[-5:])


def test_s2_takes_the_network_where_the_rank_uses_it() -> None:
    base = replace(BASE, gpus_per_node=4)
    with under(TrainingFault("S2", (RANK,), AT, factor=20), base=base) as (incident, truth):
        assert comm_of(incident, RANK, "tp") not in truth.comms
        assert {comm_of(incident, RANK, role) for role in ("dp", "pp")} == set(truth.comms)


def test_s3_is_late_and_slow_at_once() -> None:
    fault = TrainingFault("S3", (RANK,), AT, role="tp", factor=1.5, link_factor=15)
    with under(fault) as (incident, truth):
        after = rounds(incident, comm_of(incident, RANK, "tp"), truth.started_ns + NS_PER_S)
        assert sum(late == RANK for _, late, _, _ in after) > 0.9 * len(after)
        assert sum(slow == RANK for _, _, slow, _ in after) > 0.9 * len(after)


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
