"""Laws of waiting, read off the evidence alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.sql import rows

from oncall.core.units import NS_PER_S
from oncall.evidence.incident import Incident
from oncall.evidence.schema import TABLES
from oncall_lab import TrainingScenario, simulate

MINUTE = 60 * NS_PER_S
SHORT = TrainingScenario(
    tp=2, pp=4, dp=4, ep=2, micro_batches=6, duration_ns=23 * NS_PER_S, clock_offset_ns=0,
    clock_drift_ppm=0.0, clock_error_ns=0, hiccup_every_ns=5 * NS_PER_S, tree=("world",),
)  # fmt: skip
TAIL_NS = 30_000


@pytest.fixture(scope="module")
def healthy() -> Iterator[Incident]:
    incident, truth = simulate(SHORT)
    assert truth.healthy
    yield incident
    incident.close()


def count(incident: Incident, sql: str) -> int:
    return int(rows(incident, f"SELECT count(*) FROM ({sql})")[0][0])


def dump(incident: Incident, skip: str = "''") -> dict[str, list[tuple[Any, ...]]]:
    """Every table's rows in an order of their own."""
    return {
        table.name: rows(
            incident,
            f"SELECT * EXCLUDE ({skip}) FROM {table.name} ORDER BY ALL"
            if skip != "''"
            else f"SELECT * FROM {table.name} ORDER BY ALL",
        )
        for table in TABLES
        if incident.rows(table.name)
    }


def test_a_rank_never_begins_before_its_last_operation_ended(healthy: Incident) -> None:
    overlapping = """
        SELECT * FROM (
            SELECT started_ns, group_id, max(ended_ns) OVER earlier AS before,
                   last_value(group_id) OVER earlier AS group_before
            FROM ops
            WINDOW earlier AS (PARTITION BY rank ORDER BY started_ns, seq
                               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
        WHERE started_ns < before AND group_id IS DISTINCT FROM group_before"""
    assert count(healthy, overlapping) == 0


def test_members_leave_together_and_the_last_to_arrive_stays_shortest(healthy: Incident) -> None:
    rounds = """
        SELECT max(ended_ns) - min(ended_ns) AS apart,
               max(ended_ns - started_ns) AS longest, min(ended_ns - started_ns) AS shortest,
               arg_max(ended_ns - started_ns, started_ns) AS last_stayed
        FROM ops WHERE done AND kind = 'coll' GROUP BY comm, seq"""
    for apart, longest, shortest, last_stayed in rows(healthy, rounds):
        assert apart < TAIL_NS
        assert shortest <= last_stayed <= shortest + TAIL_NS <= longest + TAIL_NS


def test_every_member_counts_the_same_operations(healthy: Incident) -> None:
    completed = """
        SELECT o.comm, o.seq FROM ops o JOIN comms c USING (comm, rank)
        WHERE o.kind = 'coll' AND o.done
        GROUP BY o.comm, o.seq
        HAVING count(*) <> any_value(c.size) OR count(DISTINCT (o.op, o.bytes)) > 1"""
    assert count(healthy, completed) == 0
    gaps = "SELECT rank FROM ops GROUP BY comm, kind, rank HAVING max(seq) <> count(*)"
    assert count(healthy, gaps) == 0


def test_the_nth_send_meets_the_nth_receive(healthy: Incident) -> None:
    unmatched = """
        WITH p AS (SELECT *, row_number() OVER (PARTITION BY comm, rank, peer, op ORDER BY seq) AS n
                   FROM ops WHERE kind = 'p2p' AND done)
        SELECT * FROM (SELECT * FROM p WHERE op = 'Send') s
        FULL JOIN (SELECT * FROM p WHERE op = 'Recv') r
          ON s.comm = r.comm AND s.rank = r.peer AND s.peer = r.rank AND s.n = r.n
        WHERE s.rank IS NULL OR r.rank IS NULL OR s.bytes <> r.bytes
           OR s.started_ns > r.ended_ns OR r.started_ns > s.ended_ns"""
    assert count(healthy, "SELECT * FROM ops WHERE kind = 'p2p'") > 1000
    assert count(healthy, unmatched) == 0


def test_a_step_is_one_forward_one_backward(healthy: Incident) -> None:
    """Activations go down, gradients come up: as many of each as there are micro-batches."""
    per_step = rows(
        healthy,
        """SELECT count(*) FILTER (op = 'Send') / (SELECT max(seq) FROM ops JOIN comms
             USING (comm, rank) WHERE role = 'world' AND rank = 0) FROM ops
           WHERE kind = 'p2p' AND rank = 8""",
    )
    # Stage 1 sends each micro-batch forward and each gradient back; the last step is cut off.
    assert per_step[0][0] == pytest.approx(2 * SHORT.micro_batches, rel=0.2)


def test_what_is_in_flight_at_the_end_is_young(healthy: Incident) -> None:
    flying = rows(healthy, "SELECT observed_ns - started_ns, ended_ns FROM ops WHERE NOT done")
    assert flying
    assert all(0 <= age < 5 * NS_PER_S and ended is None for age, ended in flying)


def test_equal_scenarios_give_equal_evidence(healthy: Incident) -> None:
    again, _ = simulate(SHORT)
    other, _ = simulate(replace(SHORT, seed=1))
    with again, other:
        assert dump(again) == dump(healthy)
        assert dump(other) != dump(healthy)


def test_skew_shifts_only_instants(healthy: Incident) -> None:
    skewed, _ = simulate(replace(SHORT, clock_offset_ns=10**7))
    instants = "enqueued_ns, started_ns, ended_ns, observed_ns"
    with skewed:
        query = f"SELECT * EXCLUDE ({instants}) FROM ops ORDER BY ALL"
        assert rows(skewed, query) == rows(healthy, query)
        durations = "SELECT rank, comm, seq, ended_ns - started_ns FROM ops ORDER BY ALL"
        pairs = zip(rows(skewed, durations), rows(healthy, durations), strict=True)
        # Nanoseconds are rounded at both ends.
        assert all(abs((a[3] or 0) - (b[3] or 0)) <= 1 for a, b in pairs)
        offsets = rows(skewed, "SELECT node, offset_ns, error_ns FROM clocks ORDER BY node")
        shifts = dict(_shifts(skewed, healthy))
        assert [node for node, _, _ in offsets] == sorted(shifts)
        for node, offset, _ in offsets:
            assert offset == pytest.approx(shifts[node], abs=2)
        assert max(map(abs, shifts.values())) > 10**6


def _shifts(one: Incident, other: Incident) -> Iterator[tuple[str, int]]:
    query = """SELECT node, min(started_ns) FROM (
        SELECT DISTINCT rank, node FROM ranks) JOIN ops USING (rank) GROUP BY node ORDER BY node"""
    query = query.replace("started_ns", "ops.started_ns")
    for a, b in zip(rows(one, query), rows(other, query), strict=True):
        yield a[0], a[1] - b[1]


def test_holes_remove_rows_and_are_counted(healthy: Incident) -> None:
    holed, _ = simulate(replace(SHORT, holes=0.05))
    with holed:
        whole, left = set(rows(healthy, "FROM ops")), set(rows(holed, "FROM ops"))
        assert left < whole
        lost = len(whole) - len(left)
        assert 0.02 < lost / len(whole) < 0.08
        assert rows(holed, "SELECT sum(dropped) FROM collectors")[0][0] == lost
        assert count(holed, "FROM ops WHERE NOT done") == count(healthy, "FROM ops WHERE NOT done")


def test_a_missing_node_leaves_no_row_but_its_memberships(healthy: Incident) -> None:
    blind, truth = simulate(replace(SHORT, missing_nodes=(2,)))
    with blind:
        assert truth.missing_nodes == ("gpu003",)
        for table in ("ops", "ranks", "op_channels"):
            seen = {rank for (rank,) in rows(blind, f"SELECT DISTINCT rank FROM {table}")}
            assert not seen & set(range(16, 24))
        assert count(blind, "FROM clocks WHERE node = 'gpu003'") == 0
        assert rows(blind, "FROM comms ORDER BY ALL") == rows(healthy, "FROM comms ORDER BY ALL")


def test_first_steps_are_slower_and_checkpoints_pause_everybody() -> None:
    scenario = replace(
        SHORT, pp=2, duration_ns=90 * NS_PER_S, checkpoint_every_ns=30 * NS_PER_S,
        checkpoint_ns=10 * NS_PER_S, hiccup_every_ns=0, barrier_every=5,
    )  # fmt: skip
    incident, _ = simulate(scenario)
    with incident:
        ends = [end for (end,) in rows(incident, """
            SELECT max(ended_ns) FROM ops WHERE op = 'AllReduce' AND bytes = 8 AND done
            GROUP BY seq ORDER BY seq""")]  # fmt: skip
        steps = np.diff(ends)
        assert steps[0] > 1.3 * np.median(steps)
        assert (steps > 8 * NS_PER_S).sum() == 2
        assert count(incident, "SELECT DISTINCT seq FROM ops WHERE bytes = 1") >= 4
