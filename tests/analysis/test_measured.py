"""What devices and hosts counted and were, between readings: rates, states, latency."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sql import found

from oncall.evidence import Incident

S = 10**9
GB = 10**9


def computed(table: str, columns: Mapping[str, Any], relation: str, select: str) -> list[Any]:
    """Rows of `select` over `relation`, computed from rows of one table."""
    with Incident.empty() as incident:
        incident.append(table, dict(columns))
        incident.require([relation])
        return incident.con.execute(f"SELECT {select} FROM {relation} ORDER BY at_ns").fetchall()


def nic(select: str, **columns: Any) -> list[Any]:
    defaults = {"node": "a", "nic": "mlx5_0", "port": 1}
    return computed("nics", defaults | columns, "nic_rates", select)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=8),
)
def test_increases_survive_wraps_at_32_bits(start: int, grown: list[int]) -> None:
    values = [start]
    for each in grown:
        values.append((values[-1] + each) % 2**32)
    instants = [k * S for k in range(len(values))]
    assert nic("cnp_sent", at_ns=instants, cnp_sent=values) == [(each,) for each in grown]


def test_bytes_counted_in_words_wrap_later() -> None:
    before, after = 2**34 - GB, 2 * GB
    assert nic("tx_bytes", at_ns=[0, S], tx_bytes=[before, after]) == [(3 * GB,)]


def test_a_counter_that_was_set_back_or_vanished_tells_nothing_of_that_interval() -> None:
    measured = nic("tx_bytes, tx_bytes_per_s", at_ns=[0, S, 2 * S, 3 * S], tx_bytes=[9, 4, 6, None])
    assert measured == [(None, None), (2, 2.0), (None, None)]


@pytest.mark.parametrize("garbage", [0, 2**32 - 1, 2**62])
def test_a_reading_that_its_neighbours_belie_is_none(garbage: int) -> None:
    measured = nic(
        "tx_bytes, retransmits",
        at_ns=[0, S, 2 * S, 3 * S],
        tx_bytes=[7_000, 7_500, garbage, 9_000],
        retransmits=[50, 50, garbage, 51],
    )
    assert measured == [(500, 0), (None, None), (None, None)]


def test_more_than_a_port_can_count_is_unknown() -> None:
    measured = nic(
        "tx_bytes, retransmits",
        at_ns=[0, S // 4, S // 2],
        tx_bytes=[0, 2**62, 2**62],
        retransmits=[3, 2**32 - 1, 2**32 - 1],
    )
    assert measured == [(None, None), (0, 0)]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 1000), min_size=3, max_size=30),
    st.integers(0, 2**40),
    st.data(),
)
def test_garbage_never_adds_to_what_a_counter_grew_by(
    steps: list[int], start: int, data: st.DataObject
) -> None:
    true = list(accumulate(steps, initial=start))
    read = list(true)
    for at in range(1, len(true) - 1, 2):
        read[at] = data.draw(st.sampled_from([true[at], 0, 2**32 - 1, 2**63 - 1]))
    measured = nic("tx_bytes", at_ns=[at * S for at in range(len(true))], tx_bytes=read)
    assert sum(grown or 0 for (grown,) in measured) <= true[-1] - true[0]


@pytest.mark.parametrize(
    ("tx", "rx", "set_back"),
    [
        ([9_000, 10], [8_000, 0], True),
        ([2**32 - 9, 10], [2**32 - 9, 0], False),  # both wrapped
        ([9_000, None], [8_000, None], None),
        ([9_000, 9_000], [8_000, 8_000], False),
    ],
)
def test_counters_that_began_anew_are_reported_from_those_that_vanished(
    tx: list[int | None], rx: list[int | None], set_back: bool | None
) -> None:
    assert nic("set_back", at_ns=[0, S], tx_bytes=tx, rx_bytes=rx) == [(set_back,)]


def test_pauses_are_shares_of_time_and_long_gaps_tell_amounts_but_no_rates() -> None:
    measured = nic(
        "tx_bytes, tx_bytes_per_s, rx_paused, tx_paused",
        at_ns=[0, S // 2, 100 * S],
        tx_bytes=[0, 10, 50],
        pfc_rx_pause_ns=[0, S // 4, S],
    )
    assert measured == [(10, 20.0, 0.5, None), (40, None, None, None)]


def test_ports_and_priorities_are_distinguished() -> None:
    columns = {
        "node": "a",
        "nic": "mlx5_0",
        "port": 1,
        "priority": [0, 3, 0, 3],
        "at_ns": [0, 0, S, S],
        "tx_bytes": [5, 100, 6, 107],
    }
    measured = computed("nic_priorities", columns, "priority_rates", "priority, tx_bytes")
    assert sorted(measured) == [(0, 1), (3, 7)]


def test_throttle_reasons_and_pcie_generation_count_under_load_only() -> None:
    columns = {
        "node": "a",
        "gpu": 0,
        "at_ns": [0, S, 2 * S],
        "utilisation": [0.0, 0.95, None],
        "throttle_reasons": [0x1, 0x44, 0x44],
        "pcie_gen": [1, 4, 1],
        "pcie_gen_max": 5,
        "pcie_width": [16, 8, 16],
        "pcie_width_max": 16,
        "ecc_corrected": [7, 9, 9],
    }
    measured = computed(
        "gpus",
        columns,
        "gpu_states",
        "reasons, throttled, pcie_share, ecc_corrected",
    )
    assert measured == [
        (None, None, 1.0, None),
        (["power cap", "hardware thermal"], True, 0.25, 2),
        (None, None, 1.0, 0),
    ]


def test_the_highest_reliable_voltage_is_no_throttling_and_the_board_limit_is() -> None:
    columns = {
        "node": "a",
        "gpu": 0,
        "at_ns": [0, S],
        "utilisation": 1.0,
        "throttle_reasons": [0x400, 0x200],
    }
    measured = computed("gpus", columns, "gpu_states", "reasons, throttled")
    assert measured == [(["reliable voltage"], False), (["board limit"], True)]


def test_a_host_without_a_reading_of_errors_is_not_a_host_without_errors() -> None:
    columns = {"node": "a", "at_ns": [0, S, 2 * S], "memory_corrected": [3, 5, None]}
    assert computed("hosts", columns, "host_states", "memory_corrected") == [(None,), (2,), (None,)]


def test_a_process_that_began_anew_has_no_rate_across_its_beginning() -> None:
    columns = {
        "job": "j",
        "rank": 0,
        "node": "a",
        "pid": [1, 1, 2, 2],
        "at_ns": [0, S, 2 * S, 3 * S],
        "cpu_ns": [0, 4 * S, S, 3 * S],
        "throttled_ns": [0, S // 2, 0, 0],
    }
    measured = computed("host_processes", columns, "process_rates", "pid, cpus_used, throttled")
    assert measured == [(1, 4.0, 0.5), (2, 2.0, 0.0)]


def pings(kind: str, at_s: range, rtt_us: float | None) -> dict[str, Any]:
    return {
        "kind": kind,
        "at_ns": [s * S for s in at_s],
        "rtt_ns": None if rtt_us is None else int(rtt_us * 1000),
        "lost": rtt_us is None,
    }


def test_host_latency_is_end_to_end_without_the_network_before_and_after() -> None:
    between = {"node": "a", "nic": "mlx5_0", "target_node": "b", "target_nic": "mlx5_0"}
    with Incident.empty() as incident:
        for kind, at_s, rtt in (
            ("network", range(40), 17),
            ("end_to_end", range(10), 20),
            ("end_to_end", range(10, 40), 45),
            ("network", range(30, 40, 5), None),
        ):
            incident.append("pings", between | pings(kind, at_s, rtt))
        rows = found(incident, "latency_split", "part, network_ns, host_ns, lost")
    assert rows[0] == (0, 17_000, 3_000, 0)
    assert rows[3] == (3, 17_000, 28_000, 2)


def test_an_end_that_is_not_measured_leaves_the_split_unknown() -> None:
    between = {"node": "a", "nic": "mlx5_0", "target_node": "b", "target_nic": "mlx5_0"}
    only = between | pings("network", range(4), 17)
    measured = computed("pings", only, "latency_split", "end_to_end_ns, host_ns")
    assert set(measured) == {(None, None)}


@pytest.mark.parametrize(
    "relation", ["nic_rates", "gpu_states", "host_states", "process_rates", "latency_split"]
)
def test_without_readings_they_are_missing_not_empty(relation: str) -> None:
    with Incident.empty() as incident:
        assert incident.missing(relation)


def test_events_find_their_device_by_address_or_interface() -> None:
    with Incident.empty() as incident:
        placed = {"node": "a", "at_ns": 0, "pcie_port": "0000:08:01.0"}
        gpu = {"kind": "gpu", "device": "3", "pci_bus": "0000:16:00.0"}
        nic = {"kind": "nic", "device": "mlx5_1", "pci_bus": "0000:17:00.0", "interface": "ens2"}
        incident.append("devices", placed | gpu)
        incident.append("devices", placed | nic)
        said = ["0000:16:00", "ens2", "0000:08:01.0", "python", None]
        columns = {"node": "a", "source": "kernel", "code": [f"c{k}" for k in range(5)]}
        incident.append("host_events", columns | {"at_ns": list(range(5)), "device": said})
        incident.require(["node_events"])
        rows = incident.con.execute(
            "SELECT said_of, gpu, nic, pcie_port FROM node_events ORDER BY at_ns"
        ).fetchall()
    port = "0000:08:01.0"
    assert rows == [
        ("0000:16:00", 3, None, port),
        ("ens2", None, "mlx5_1", port),
        (port, None, None, port),
        ("python", None, None, None),
        (None, None, None, None),
    ]


def test_events_of_ports_find_what_is_below() -> None:
    """A GPU and a NIC below one switch, another GPU below a second one of the same root port."""
    with Incident.empty() as incident:
        for kind, device, switch, own in (
            ("gpu", "0", "0000:16:00.0", "0000:17:00.0"),
            ("nic", "mlx5_0", "0000:16:00.0", "0000:17:01.0"),
            ("gpu", "1", "0000:36:00.0", "0000:37:00.0"),
        ):
            path = ["0000:15:01.0", switch, own]
            row = {"kind": kind, "device": device, "pcie_port": switch, "pcie_path": [path]}
            incident.append("devices", {"node": ["a"], "at_ns": 0, **row})
        said = ["0000:17:00.0", "0000:17:01.0", "0000:16:00.0", "0000:15:01.0", "0000:99:00.0"]
        incident.append("host_events", {"node": "a", "at_ns": list(range(5)), "device": said})
        incident.require(["node_events"])
        rows = incident.con.execute(
            "SELECT said_of, gpu, nic, pcie_port FROM node_events ORDER BY at_ns"
        ).fetchall()
    assert rows == [
        ("0000:17:00.0", 0, None, "0000:16:00.0"),
        ("0000:17:01.0", None, "mlx5_0", "0000:16:00.0"),
        ("0000:16:00.0", None, None, "0000:16:00.0"),
        ("0000:15:01.0", None, None, "0000:15:01.0"),
        ("0000:99:00.0", None, None, None),
    ]


def test_a_watched_host_that_says_nothing_is_no_lack_of_evidence() -> None:
    with Incident.empty() as incident:
        assert incident.missing("node_events")
        incident.append("hosts", {"node": "a", "at_ns": 0, "cpu_busy": 0.1})
        incident.require(["node_events"])
        assert incident.rows("node_events") == 0
