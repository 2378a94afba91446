"""Laws of what is measured: bytes are conserved, counters grow, equal scenarios agree, and what
the kernel says is what a collector understands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sql import rows

from oncall.core.units import NS_PER_S
from oncall.evidence.codes.kernel_lines import known_line
from oncall.evidence.incident import Incident
from oncall_lab import TrainingFault, TrainingScenario, simulate
from oncall_lab.drawn.training import random_scenario
from oncall_lab.training.fault import MEASURED_WAYS
from oncall_lab.training.measured.benign import OTHERS_BYTES_PER_S
from oncall_lab.training.measured.nics import WIRE_OVERHEAD
from oncall_lab.training.measured.pace import Pace
from oncall_lab.training.scenario import MEASURED_TABLES

HEALTHY = TrainingScenario(
    tp=4, pp=2, dp=4, gpus_per_node=8, duration_ns=60 * NS_PER_S, dp_bytes=4 * 2**30,
    measured=True, clock_offset_ns=0, clock_drift_ppm=0.0, seed=3,
)  # fmt: skip
Q_COUNTERS = ("cnp_sent", "cnp_handled", "ecn_marked", "out_of_sequence", "retransmits", "timeouts")
OTHER_COUNTERS = (
    "tx_bytes", "rx_bytes", "pfc_rx_pause", "pfc_tx_pause", "pfc_rx_pause_ns", "pfc_tx_pause_ns",
    "pause_storms", "link_downs", "link_errors", "corrected_bits", "rx_discards", "tx_discards",
    "out_of_buffer", "pcie_stalls", "pcie_overflows", "pcie_errors",
)  # fmt: skip


@pytest.fixture(scope="module")
def healthy() -> Iterator[Incident]:
    incident, truth = simulate(HEALTHY)
    assert truth.healthy
    yield incident
    incident.close()


def moved_by_operations(incident: Incident) -> dict[tuple[str, str], float]:
    """Bytes each NIC sent for data-parallel rings and stages, by what the operations are."""
    found = rows(
        incident,
        """
        WITH placed AS (
            SELECT c.comm, c.rank, c.comm_rank, c.size, c.role, r.node, r.nic
            FROM comms c JOIN ranks r USING (job, rank)),
        next AS (
            SELECT a.comm, a.rank, a.node, a.nic, a.size, a.role, b.node <> a.node AS crosses
            FROM placed a JOIN placed b
              ON b.comm = a.comm AND b.comm_rank = (a.comm_rank + 1) % a.size),
        sent AS (
            SELECT o.rank, n.node, n.nic, CASE
                WHEN o.op = 'AllReduce' AND n.crosses THEN 2.0 * (n.size - 1) / n.size * o.bytes
                WHEN o.op = 'ReduceScatter' AND n.crosses THEN (n.size - 1.0) / n.size * o.bytes
                WHEN o.op = 'AllGather' AND n.crosses THEN (n.size - 1.0) * o.bytes
                WHEN o.op = 'Send' AND (SELECT node FROM ranks p WHERE p.rank = o.peer) <> n.node
                THEN o.bytes ELSE 0 END AS bytes
            FROM ops o JOIN next n USING (comm, rank) WHERE o.done)
        SELECT node, nic, sum(bytes) FROM sent GROUP BY ALL""",
    )
    return {(node, nic): float(total) for node, nic, total in found}


def test_counters_of_bytes_show_what_operations_moved(healthy: Incident) -> None:
    expected = moved_by_operations(healthy)
    seen = rows(
        healthy,
        "SELECT node, nic, max(tx_bytes) - min(tx_bytes), max(at_ns) - min(at_ns) "
        "FROM nics GROUP BY ALL",
    )
    assert len(seen) == 32 and sum(total > 1e9 for total in expected.values()) == 32
    for node, nic, counted, span_ns in seen:
        others = 20 * OTHERS_BYTES_PER_S * span_ns * 1e-9
        least = expected[node, nic] * WIRE_OVERHEAD * 0.98
        assert least < counted < expected[node, nic] * WIRE_OVERHEAD * 1.02 + others


def test_what_is_sent_is_received(healthy: Incident) -> None:
    ((sent, received),) = rows(
        healthy,
        "SELECT sum(t), sum(r) FROM (SELECT max(tx_bytes) - min(tx_bytes) AS t, "
        "max(rx_bytes) - min(rx_bytes) AS r FROM nics GROUP BY node, nic)",
    )
    assert float(sent) == pytest.approx(float(received), rel=0.01)


def falls(incident: Incident, table: str, keys: str, counter: str) -> list[tuple[Any, ...]]:
    return rows(
        incident,
        f"SELECT * FROM (SELECT {keys}, at_ns, {counter}, lag({counter}) OVER "
        f"(PARTITION BY {keys} ORDER BY at_ns) AS before FROM {table}) WHERE {counter} < before",
    )


def test_counters_never_fall_but_by_wrapping(healthy: Incident) -> None:
    for counter in OTHER_COUNTERS:
        assert falls(healthy, "nics", "node, nic", counter) == []
    for counter in Q_COUNTERS:
        for *_, now, before in falls(healthy, "nics", "node, nic", counter):
            assert before > 2**31 > now
    for counter in ("pcie_replays", "ecc_corrected", "ecc_uncorrected", "nvlink_errors"):
        assert falls(healthy, "gpus", "node, gpu", counter) == []
    for counter in ("cpu_ns", "waited_ns", "major_faults", "read_bytes"):
        assert falls(healthy, "host_processes", "rank", counter) == []
    for counter in ("tx_bytes", "rx_bytes", "rx_pause", "tx_pause", "rx_pause_ns", "tx_pause_ns"):
        assert falls(healthy, "nic_priorities", "node, nic, priority", counter) == []


def test_counters_fall_where_a_nic_was_reset() -> None:
    fault = TrainingFault("NIC", (10,), 10 * NS_PER_S, how="resets", severity=3)
    incident, _ = simulate(replace(HEALTHY, faults=(fault,)))
    with incident:
        fell = falls(incident, "nics", "node, nic", "tx_bytes")
        assert fell and {(node, nic) for node, nic, *_ in fell} == {("gpu002", "mlx5_2")}
        stored = rows(incident, "SELECT count(*) FROM host_events WHERE code = 'nic_health'")
        assert len(fell) in (stored[0][0], stored[0][0] - 1)


def test_a_healthy_run_shows_no_fault(healthy: Incident) -> None:
    assert rows(healthy, "SELECT DISTINCT link_up, pcie_width, pcie_gen - pcie_gen_max FROM nics") \
        == [(True, 16, 0)]  # fmt: skip
    ((downs, lost, discards),) = rows(
        healthy,
        "SELECT max(l), max(o), max(d) FROM (SELECT max(link_downs) - min(link_downs) AS l, "
        "max(out_of_sequence) - min(out_of_sequence) AS o, max(rx_discards) - min(rx_discards) "
        "AS d FROM nics GROUP BY node, nic)",
    )
    assert (downs, lost, discards) == (0, 0, 0)
    paused = rows(healthy, "SELECT max(pfc_tx_pause_ns) - min(pfc_tx_pause_ns) FROM nics "
                           "GROUP BY node, nic")  # fmt: skip
    assert max(ns for (ns,) in paused) < 60 * NS_PER_S * 0.001
    times = dict(rows(healthy, "SELECT kind, median(rtt_ns) FROM pings GROUP BY kind"))
    assert 15_000 < times["network"] < 25_000  # TFD 4.2
    assert 2_000 < times["end_to_end"] - times["network"] < 10_000
    assert rows(healthy, "SELECT count(*) FROM gpus WHERE remap_failed OR ecc_uncorrected > 0 "
                         "OR nvlinks_up < nvlinks OR xid IS NOT NULL") == [(0,)]  # fmt: skip
    ((spread,),) = rows(healthy, "SELECT max(u) - min(u) FROM (SELECT avg(utilisation) AS u "
                                 "FROM gpus GROUP BY node, gpu)")  # fmt: skip
    assert spread < 0.05


def test_equal_scenarios_give_equal_measurements() -> None:
    scenario = random_scenario(11, ("CABLE",))
    one, truth = simulate(scenario)
    other, again = simulate(scenario)
    with one, other:
        assert truth == again
        for table in MEASURED_TABLES:
            query = f"FROM {table} ORDER BY ALL"
            assert rows(one, query) == rows(other, query), table


def test_measuring_changes_nothing_of_a_healthy_training(healthy: Incident) -> None:
    plain, _ = simulate(replace(HEALTHY, measured=False))
    with plain:
        query = "SELECT comm, seq, rank, started_ns, ended_ns FROM ops ORDER BY ALL"
        assert rows(healthy, query) == rows(plain, query)
        assert plain.rows("nics") == 0


@pytest.mark.parametrize("kind", ["CABLE", "NIC", "PCIE_PORT", "GPU", "NVLINK", "HOST_MEMORY"])
def test_a_collector_understands_what_the_kernel_says(kind: str) -> None:
    for how in MEASURED_WAYS[kind]:
        fault = TrainingFault(kind, (10,), 5 * NS_PER_S, how=how, severity=3)
        incident, _ = simulate(replace(HEALTHY, dp=2, faults=(fault,), duration_ns=12 * NS_PER_S))
        with incident:
            for source, code, device, text in rows(
                incident, "SELECT source, code, device, text FROM host_events"
            ):
                known = known_line(text)
                assert source == "kernel" and known
                assert (known.code, known.device) == (code, device)


@settings(max_examples=60, deadline=None)
@given(
    speeds=st.lists(st.floats(0.05, 1.0), min_size=1, max_size=6),
    start=st.floats(0, 1e10),
    work=st.floats(1, 1e10),
)
def test_work_at_a_pace_takes_longer_and_in_order(
    speeds: list[float], start: float, work: float
) -> None:
    pace = Pace(np.arange(len(speeds)) * 1e9, np.array(speeds))
    first, second = pace.ends(np.array([start, start]), np.array([work, 2 * work]))
    assert first >= start + work * (1 - 1e-6)
    assert first <= start + work / min(speeds) * (1 + 1e-6)
    assert second > first
