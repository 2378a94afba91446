"""Calls as a log of NCCL's API shows them: counted launches, and all to all by Sends and Recvs."""

from __future__ import annotations

import numpy as np

from oncall_lab.pipeline import simulate_pipeline
from oncall_lab.pipeline.scenario import PipelineScenario

SCENARIO = PipelineScenario(iterations=3, recorder="calls", dp=4, ep=2)


def test_launches_are_counted_from_nought_without_a_gap() -> None:
    incident, _ = simulate_pipeline(SCENARIO)
    with incident:
        found = incident.con.execute(
            """SELECT min(low), bool_and(high = numbers - 1) FROM (
                SELECT min(seq) AS low, max(seq) AS high, count(DISTINCT seq) AS numbers
                FROM ops GROUP BY comm, rank)"""
        ).fetchall()
        grouped = incident.con.execute(
            "SELECT bool_and(group_id = seq) FROM ops WHERE kind = 'p2p'"
        ).fetchall()
    assert found == [(0, True)]
    assert grouped == [(True,)]


def test_all_to_all_is_a_send_and_a_recv_for_each_member_called_at_once() -> None:
    incident, _ = simulate_pipeline(SCENARIO)
    with incident:
        found = incident.con.execute(
            """WITH launched AS (
                SELECT comm, rank, seq, count(*) FILTER (op = 'Send') AS sends,
                    count(*) FILTER (op = 'Recv') AS receives,
                    max(enqueued_ns) - min(enqueued_ns) AS lasted_ns
                FROM ops WHERE kind = 'p2p' GROUP BY ALL)
            SELECT sends, receives, count(*) > 0, max(lasted_ns) < 10_000 FROM launched
            WHERE sends + receives > 2 GROUP BY ALL"""
        ).fetchall()
        assert found == [(SCENARIO.ep, SCENARIO.ep, True, True)]
        ops = incident.con.execute("SELECT count(*) FROM ops WHERE op = 'AllToAll'").fetchall()
    assert ops == [(0,)]


def test_a_log_names_neither_peers_nor_roles_nor_hosts() -> None:
    incident, _ = simulate_pipeline(SCENARIO)
    with incident:
        rows = incident.con.execute(
            """SELECT (SELECT count(peer) + count(bytes) + count(ended_ns) FROM ops),
                (SELECT count(role) + count(name) FROM comms), (SELECT count(node) FROM ranks),
                (SELECT count(*) FROM clocks)"""
        ).fetchall()
        times = incident.con.execute(
            "SELECT rank, enqueued_ns FROM ops ORDER BY rank, enqueued_ns"
        ).fetchnumpy()
    assert rows == [(0, 0, 0, 0)]
    assert not np.any((np.diff(times["enqueued_ns"]) == 0) & (np.diff(times["rank"]) == 0))
