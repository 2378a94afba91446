"""Evidence of a fault agrees across layers: operations, NICs, GPUs, hosts, probes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from tests.sql import rows

from oncall.core.units import NS_PER_S
from oncall.evidence.incident import Incident
from oncall_lab import FaultTruth, TrainingFault, TrainingScenario, simulate
from oncall_lab.recording import EPOCH_NS

BASE = TrainingScenario(
    tp=8, pp=2, dp=2, gpus_per_node=8, duration_ns=80 * NS_PER_S, dp_bytes=8 * 2**30,
    clock_offset_ns=0, clock_drift_ppm=0.0, recorder="hooks", warm_up_steps=0,
)  # fmt: skip
AT = 40 * NS_PER_S
RANK = 10
HERE = "node = 'gpu002' AND nic = 'mlx5_2'"


@contextmanager
def under(kind: str, how: str, severity: int = 2) -> Iterator[tuple[Incident, FaultTruth]]:
    fault = TrainingFault(kind, (RANK,), AT, how=how, severity=severity)
    incident, truth = simulate(replace(BASE, faults=(fault,)))
    with incident:
        yield incident, truth.faults[0]


def change(incident: Incident, value: str, source: str) -> float:
    """A value under the fault against before it; `source` has the columns at_ns and those used."""
    found = incident.con.execute(
        f"SELECT (SELECT {value} FROM {source} AND at_ns >= {EPOCH_NS + AT}) / "
        f"nullif((SELECT {value} FROM {source} AND at_ns < {EPOCH_NS + AT}), 0)"
    ).fetchall()
    return float(found[0][0])


def operations(role: str) -> str:
    return (
        "(SELECT o.*, o.started_ns AS at_ns FROM ops o JOIN comms c USING (comm, rank) "
        f"WHERE c.role = '{role}' AND o.bytes > 1000 AND o.done AND o.comm IN "
        f"(SELECT comm FROM comms WHERE rank = {RANK})) WHERE true"
    )


def test_the_worked_case_of_the_paper() -> None:
    """TFD 4.2: DP and PP slow, TP as before, NIC slower, no congestion, host latency up."""
    with under("PCIE_LINK", "width") as (incident, truth):
        took = "min(ended_ns - started_ns)"
        assert change(incident, took, operations("dp")) > 2
        assert change(incident, took, operations("pp")) > 2
        assert change(incident, took, operations("tp")) == pytest.approx(1, abs=0.1)
        most = "max(bytes)"
        rate = (
            "(SELECT at_ns, tx_bytes - lag(tx_bytes) OVER (ORDER BY at_ns) AS bytes FROM nics "
            f"WHERE {HERE}) WHERE true"
        )
        assert change(incident, most, rate) < 0.6
        marks = f"nics WHERE {HERE}"
        assert change(incident, "1 + max(ecn_marked) - min(ecn_marked)", marks) < 5
        stalls = "max(pcie_stalls) - min(pcie_stalls)"
        assert change(incident, stalls, f"nics WHERE {HERE}") > 100
        assert change(incident, "max(pfc_tx_pause) - min(pfc_tx_pause)", f"nics WHERE {HERE}") > 10
        host = f"pings WHERE {HERE} AND kind = 'end_to_end'"
        assert change(incident, "max(rtt_ns)", host) > 1.3
        assert truth.blame == ({"node": "gpu002", "nic": "mlx5_2", "gpu": 2, "rank": RANK},)


def test_a_slower_port_marks_and_the_senders_hear_of_it() -> None:
    with under("LINK", "lanes") as (incident, _):
        assert change(incident, "max(ecn_marked) - min(ecn_marked)", f"nics WHERE {HERE}") > 50
        others = "nics WHERE node <> 'gpu002' AND nic = 'mlx5_2'"
        handled = "sum(most - least)"
        of = (
            f"(SELECT any_value(at_ns) AS at_ns, max(cnp_handled) AS most, min(cnp_handled) AS "
            f"least FROM {others} GROUP BY node, at_ns >= {EPOCH_NS + AT}) WHERE true"
        )
        assert change(incident, handled, of) > 10
        assert change(incident, "median(rtt_ns)", f"pings WHERE {HERE} AND kind = 'network'") > 1.1


def test_a_throttled_gpu_computes_slower_and_says_why() -> None:
    with under("THROTTLE", "thermal") as (incident, truth):
        gpu = "gpus WHERE node = 'gpu002' AND gpu = 2"
        assert change(incident, "avg(sm_clock_mhz)", gpu) < 0.7
        reasons = rows(incident, f"SELECT DISTINCT throttle_reasons & 32 FROM {gpu} "
                                 f"AND at_ns > {EPOCH_NS + AT + NS_PER_S}")  # fmt: skip
        assert reasons == [(32,)]
        assert truth.slowdown and truth.slowdown > 1.2


def test_a_rank_that_collects_garbage_has_an_idle_gpu_and_its_peers_a_spinning_one() -> None:
    with under("GC", "regular", 3) as (incident, _):
        assert change(incident, "avg(utilisation)", "gpus WHERE node = 'gpu002' AND gpu = 2") < 0.9
        others = "gpus WHERE node = 'gpu002' AND gpu <> 2"
        assert change(incident, "avg(utilisation)", others) == pytest.approx(1, abs=0.03)
        assert change(incident, "avg(power_w)", others) < 0.95


def test_a_deadlock_stops_bytes_and_rdma_but_not_udp() -> None:
    with under("PFC_DEADLOCK", "mutual") as (incident, _):
        later = f"at_ns > {EPOCH_NS + AT + 5 * NS_PER_S}"
        ((paused, sent),) = rows(
            incident,
            "SELECT max(pfc_rx_pause_ns) - min(pfc_rx_pause_ns), max(tx_bytes) - min(tx_bytes) "
            f"FROM nics WHERE {HERE} AND {later}",
        )
        assert paused > 0.7 * 34 * NS_PER_S and sent < 2**30
        answers = rows(incident, f"SELECT kind, avg(lost::INTEGER) FROM pings WHERE {HERE} "
                                 f"AND {later} GROUP BY kind")  # fmt: skip
        lost = dict(answers)
        assert lost["network"] < 0.1 and lost["end_to_end"] > 0.8
        waits = rows(incident, "SELECT DISTINCT waits_for FROM transfers WHERE ended_ns IS NULL")
        assert {"send_wire", "recv_wire"} & {word for (word,) in waits}
        assert rows(incident, "SELECT count(*) > 0 FROM ops WHERE NOT done") == [(True,)]


def test_sockets_leave_rdma_counters_still() -> None:
    with under("PATTERN", "sockets") as (incident, truth):
        assert truth.started_ns == EPOCH_NS
        ((rdma,),) = rows(incident, f"SELECT max(tx_bytes) - min(tx_bytes) FROM nics WHERE {HERE}")
        ((tcp,),) = rows(incident, "SELECT max(tx_bytes) - min(tx_bytes) FROM nic_priorities "
                                   f"WHERE {HERE} AND priority = 0")  # fmt: skip
        assert tcp > 50 * rdma


def test_a_spread_group_lies_on_two_nodes_and_crossed_rails_on_other_nics() -> None:
    with under("PATTERN", "spread", 1) as (incident, truth):
        spread = rows(
            incident,
            "SELECT comm FROM comms JOIN ranks USING (job, rank) WHERE role = 'tp' "
            "GROUP BY comm HAVING count(DISTINCT node) = 2",
        )
        assert {f"0x{comm:016x}" for (comm,) in spread} == {b["comm"] for b in truth.blame}
        assert len(spread) == 2
    with under("PATTERN", "rails", 1) as (incident, _):
        crossed = rows(incident, "SELECT DISTINCT node FROM ranks WHERE nic <> 'mlx5_' || gpu")
        assert crossed == [("gpu002",)]


def test_settings_show_in_the_operations_that_run_with_them() -> None:
    with under("SETTINGS", "channels", 3) as (incident, _):
        slow = "SELECT channels, min(ended_ns - started_ns) FROM ops WHERE op = 'ReduceScatter' " \
               "GROUP BY channels ORDER BY channels"  # fmt: skip
        (one, long), (four, short) = rows(incident, slow)
        assert (one, four) == (1, 4) and long > 2.5 * short
