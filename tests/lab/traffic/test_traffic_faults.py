"""What each failure leaves in the traffic, as Pulse 6 and 7 say it does."""

from __future__ import annotations

from typing import Any

import pytest

from oncall.evidence.incident import Incident
from oncall_lab.traffic import TrafficFault, TrafficScenario, simulate_traffic

Row = dict[str, Any]


def last_collective(incident: Incident, rank: int) -> dict[int, Row]:
    """Of the last collective with traffic that `rank` took part in: each member's metrics."""
    rows = incident.con.execute(
        """
        WITH mine AS (
            SELECT comm, seq FROM op_traffic WHERE kind = 'coll' AND rank = ?
            ORDER BY started_ns DESC LIMIT 1)
        SELECT rank, sum(active_ns), sum(bytes), min(started_ns), bool_and(ended_ns IS NOT NULL)
        FROM op_traffic JOIN mine USING (comm, seq) WHERE kind = 'coll' GROUP BY rank
        """,
        [rank],
    ).fetchall()
    names = ("active", "bytes", "started", "done")
    return {row[0]: dict(zip(names, row[1:], strict=True)) for row in rows}


def broken(kind: str, rank: int, **severity: float) -> Incident:
    fault = TrafficFault(kind, rank, iteration=1, **severity)
    scenario = TrafficScenario(
        seed=rank, iterations=3, dp_bytes=128 * 2**20, op_traffic=True, faults=(fault,)
    )
    incident, truth = simulate_traffic(scenario)
    assert (truth.faults[0].kind, truth.faults[0].how) == (kind, fault.pulse_class)
    return incident


@pytest.mark.parametrize("workload", ["gpt2", "mixtral"])
def test_only_threads_of_a_busy_host_look_late_at_their_own_flushes(workload: str) -> None:
    """Steps of the proxy: as many and as large as what was sent; late where the CPU is short."""
    fault = TrafficFault("cpu_contention", 3, iteration=0)
    scenario = TrafficScenario(
        workload=workload, tp=2, iterations=2, dp_bytes=64 * 2**20, micro_batches=1, source="wr",
        device_times=True, faults=(fault,),
    )  # fmt: skip
    with simulate_traffic(scenario)[0] as incident:
        flushes = incident.con.execute(
            "SELECT node, sum(peer_wait_ns) / sum(steps) FROM transfers JOIN ranks USING (rank) "
            "WHERE direction = 'recv' GROUP BY node"
        ).fetchall()
        moved, sent, unknown = incident.con.execute(
            "SELECT sum(bytes) FILTER (direction = 'send'), (SELECT sum(bytes) FROM epochs "
            "WHERE bytes > 64 * 16), count(*) FILTER (seq IS NULL OR ended_ns IS NULL) "
            "FROM transfers"
        ).fetchall()[0]
    late = {node for node, flush_ns in flushes if flush_ns > 20e3}
    assert late == {"gpu002"} and len(flushes) == scenario.nodes
    assert unknown == 0 and moved == pytest.approx(sent, rel=0.01)


@pytest.mark.parametrize("rank", [0, 7])
def test_a_rank_that_never_called_tells_nothing_of_what_arrives_there(rank: int) -> None:
    """Its peers fill its buffers all the same; with the last rank no later call stands for it."""
    scenario = TrafficScenario(
        workload="mixtral", tp=2, iterations=2, dp_bytes=64 * 2**20, micro_batches=1, source="wr",
        device_times=True, faults=(TrafficFault("gpu_error", rank, iteration=1),),
    )  # fmt: skip
    with simulate_traffic(scenario)[0] as incident:
        rows, without_call = incident.con.execute(
            "SELECT count(*), count(*) FILTER (o.rank IS NULL) FROM transfers t LEFT JOIN "
            "(SELECT DISTINCT comm, kind, seq, rank FROM ops) o USING (comm, kind, seq, rank)"
        ).fetchall()[0]
    assert rows and not without_call


def test_half_the_resolution_folds_gaps_into_activity() -> None:
    """Pulse 7.2.1: at 64 us the straggler is still active longest, but the others seem longer
    active than they are at 32 us."""
    fault = TrafficFault("congestion", 42, iteration=1)
    active: dict[int, dict[int, int]] = {}
    for epoch_ns in (32_000, 64_000):
        scenario = TrafficScenario(
            seed=7, iterations=2, dp_bytes=256 * 2**20, epoch_ns=epoch_ns, op_traffic=True,
            faults=(fault,),
        )  # fmt: skip
        with simulate_traffic(scenario)[0] as incident:
            found = last_collective(incident, 42)
        active[epoch_ns] = {rank: row["active"] for rank, row in found.items()}
    fine, coarse = active[32_000], active[64_000]
    others = [rank for rank in fine if rank != 42]
    assert all(coarse[42] > coarse[rank] > 1.1 * fine[rank] for rank in others)
    assert coarse[42] < 1.05 * fine[42]


@pytest.mark.parametrize("source", ["dpa", "wr", "proxy"])
def test_a_source_tells_what_it_can_know(source: str) -> None:
    scenario = TrafficScenario(workload="neighbour_exchange", iterations=1, source=source)
    with simulate_traffic(scenario)[0] as incident:
        known = incident.con.execute(
            "SELECT count(qpn) > 0, count(rank) > 0, count(comm) > 0, count(peer) > 0 FROM epochs"
        ).fetchone()
        (sent,) = incident.con.execute("SELECT sum(bytes) FROM epochs").fetchone() or (0,)
        (due,) = incident.con.execute(
            "SELECT sum(bytes) FROM ops WHERE op = 'Send'"
        ).fetchone() or (0,)
    qpn, process, profiler = source != "proxy", source != "dpa", source == "proxy"
    assert known == (qpn, process, profiler, profiler)
    assert (1.01 if source == "dpa" else 1.0) * due <= sent < 1.03 * due


@pytest.mark.parametrize(("workload", "senders"), [("gpt2", {1, 9}), ("mixtral", {1, 9, 17, 25})])
def test_requests_that_stand_still_have_the_nic_that_is_down_at_one_end(
    workload: str, senders: set[int]
) -> None:
    """Completed bytes of it and of the rank before it are alike: work requests tell them apart."""
    fault = TrafficFault("nic_down", 9, iteration=1)
    scenario = TrafficScenario(
        workload=workload, iterations=2, dp_bytes=128 * 2**20, source="wr", faults=(fault,)
    )
    with simulate_traffic(scenario)[0] as incident:
        ends = incident.con.execute(
            "SELECT DISTINCT rank, peer_rank, probe "
            "FROM wr_windows JOIN qps USING (node, nic, qpn, rank)"
        ).fetchall()
    assert {9} < {rank for rank, _, _ in ends} <= senders
    assert all(9 in (rank, peer) and probe == "lost" for rank, peer, probe in ends)
