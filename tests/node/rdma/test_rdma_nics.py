"""NICs' counters from trees like sysfs: what each column is, and what may be wrong with a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from oncall.core.units import NS_PER_S
from oncall.node.common.source import Collected, Instant
from oncall.node.rdma.rdma_nics import RdmaNicSource, link_rate

from .. import sysfs

Row = dict[str, Any]
QUARTER_NS = NS_PER_S // 4


class DriverStatistics:
    """What the drivers of network interfaces tell, by interface."""

    def __init__(self) -> None:
        self.statistics: dict[str, Mapping[str, int]] = {}

    def read(self, interface: str) -> Mapping[str, int]:
        if interface not in self.statistics:
            raise OSError(19, "No such device")
        return self.statistics[interface]

    def close(self) -> None:
        pass


class Node:
    """The source over a tree, and the clock that it is read by."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.drivers = DriverStatistics()
        self.source = RdmaNicSource(root, "gpu017", QUARTER_NS, self.drivers, self.tick)
        self.now = Instant(1_700_000_000 * NS_PER_S, 50 * NS_PER_S)
        self.collected = Collected()
        self.passed_ns = 0  # since the reading began
        self.tick_ns = 0  # how long a port takes

    def tick(self) -> int:
        self.passed_ns += self.tick_ns
        return self.now.monotonic_ns + self.passed_ns

    def read(self, after_ns: int = QUARTER_NS) -> dict[str, list[Row]]:
        """The rows of the next reading, by table."""
        self.now = Instant(self.now.realtime_ns + after_ns, self.now.monotonic_ns + after_ns)
        self.passed_ns = 0
        self.collected = self.source.collect(self.now)
        return rows(self.collected.batches)


def rows(batches: Any) -> dict[str, list[Row]]:
    return {
        batch.table: [
            dict(zip(batch.columns, values, strict=True))
            for values in zip(*batch.columns.values(), strict=True)
        ]
        for batch in batches
    }


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_connectx_tells_its_counters_in_our_units(node: Node) -> None:
    sysfs.mlx5(node.root)
    for number, name in enumerate(
        ("counters/port_xmit_data", "counters/port_rcv_data", "counters/link_downed"), start=1
    ):
        sysfs.counter(node.root, name, 1000 * number)
    for number, name in enumerate(sysfs.HW_COUNTERS, start=1):
        sysfs.counter(node.root, f"hw_counters/{name}", number)
    node.drivers.statistics["eth0"] = {}
    (row,) = node.read()["nics"]
    count = {name: number for number, name in enumerate(sysfs.HW_COUNTERS, start=1)}
    statistics = {name: value for name, value in row.items() if value is not None}
    assert statistics == {
        "node": "gpu017",
        "nic": "mlx5_0",
        "port": 1,
        "at_ns": node.now.realtime_ns,
        "tx_bytes": 4000,
        "rx_bytes": 8000,
        "cnp_sent": count["np_cnp_sent"],
        "cnp_handled": count["rp_cnp_handled"],
        "ecn_marked": count["np_ecn_marked_roce_packets"],
        "out_of_sequence": count["out_of_sequence"],
        "retransmits": count["packet_seq_err"]
        + count["implied_nak_seq_err"]
        + count["roce_adp_retrans"],
        "timeouts": count["local_ack_timeout_err"] + count["roce_adp_retrans_to"],
        "out_of_buffer": count["out_of_buffer"],
        "link_downs": 3000,
        "link_errors": 0,
        "rx_discards": 0,
        "tx_discards": 0,
        "pcie_errors": 3,
        "link_up": True,
        "rate_bytes_per_s": 50 * 10**9,
        "pcie_gen": 5,
        "pcie_gen_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
    }
    assert node.collected.problems == node.collected.notes == ()


def test_each_port_is_reported_with_the_instant_of_its_own_reading(node: Node) -> None:
    """A driver that takes 3 ms for each of 8 NICs must not bend the rate of the last."""
    for number in range(3):
        sysfs.mlx5(node.root, number)
        node.drivers.statistics[f"eth{number}"] = {"rx_prio3_pause": 1}
    node.tick_ns = 3_000_000
    statistics = node.read()
    began_ns = node.now.realtime_ns
    expected = [began_ns + 3_000_000, began_ns + 6_000_000, began_ns + 9_000_000]
    assert [row["at_ns"] for row in statistics["nics"]] == expected
    assert [row["at_ns"] for row in statistics["nic_priorities"]] == expected


def test_the_driver_tells_of_pauses_by_priority(node: Node) -> None:
    sysfs.mlx5(node.root)
    node.drivers.statistics["eth0"] = {
        "rx_prio3_pause": 7,
        "rx_prio3_pause_duration": 5,
        "tx_prio3_pause": 2,
        "tx_prio3_pause_duration": 1,
        "rx_prio4_pause": 1,
        "rx_prio4_pause_duration": 1,
        "rx_prio0_bytes": 10,
        "rx_prio3_buf_discard": 4,
        "rx_prio3_cong_discard": 1,
        "tx_pause_storm_warning_events": 1,
        "tx_pause_storm_error_events": 2,
        "rx_crc_errors_phy": 3,
        "rx_symbol_err_phy": 4,
        "rx_corrected_bits_phy": 99,
        "outbound_pci_stalled_rd_events": 5,
        "outbound_pci_stalled_wr_events": 6,
        "outbound_pci_stalled_rd": 3,
        "outbound_pci_stalled_wr": 41,
        "outbound_pci_buffer_overflow": 7,
        "rx_pci_signal_integrity": 1,
        "tx_pci_signal_integrity": 1,
        "link_down_events_phy": 2,
    }
    statistics = node.read()
    (row,) = statistics["nics"]
    assert (row["pfc_rx_pause"], row["pfc_rx_pause_ns"]) == (8, 6000)
    assert (row["pfc_tx_pause"], row["pfc_tx_pause_ns"]) == (2, 1000)
    assert (row["pause_storms"], row["link_errors"], row["corrected_bits"]) == (3, 7, 99)
    assert (row["pcie_stalls"], row["pcie_overflows"], row["pcie_errors"]) == (11, 7, 3 + 2)
    assert (row["link_downs"], row["pcie_waiting"]) == (2, 0.41)
    by_priority = {row["priority"]: row for row in statistics["nic_priorities"]}
    assert set(by_priority) == {0, 3, 4}
    of_three = by_priority[3]
    assert (of_three["rx_pause"], of_three["rx_pause_ns"], of_three["discards"]) == (7, 5000, 5)
    assert (by_priority[0]["rx_bytes"], by_priority[0]["rx_pause"]) == (10, None)


def test_on_infiniband_the_port_counts_its_own_errors(node: Node) -> None:
    sysfs.mlx5(node.root)
    sysfs.write(sysfs.ports(node.root, "mlx5_0") / "1/link_layer", "InfiniBand")
    sysfs.counter(node.root, "counters/symbol_error", 5)
    sysfs.counter(node.root, "counters/port_rcv_errors", 2)
    node.drivers.statistics["eth0"] = {
        "rx_crc_errors_phy": 0,
        "rx_symbol_err_phy": 0,
        "outbound_pci_buffer_overflow": 3,
    }
    (row,) = node.read()["nics"]
    assert (row["link_errors"], row["pcie_overflows"]) == (7, 3)


def test_statistics_are_of_its_own_interface_not_of_a_virtual_function(node: Node) -> None:
    sysfs.mlx5(node.root)
    net = node.root / "sys/class/infiniband/mlx5_0/device/net"
    (net / "a_representor").mkdir()
    node.drivers.statistics["eth0"] = {"tx_discards_phy": 6}
    (row,) = node.read()["nics"]
    assert row["tx_discards"] == 6


def test_of_a_bond_the_first_port_counts(node: Node) -> None:
    sysfs.mlx5(node.root)
    port = sysfs.ports(node.root, "mlx5_0") / "1"
    for index in (0, 1):
        sysfs.write(port / "gid_attrs/ndevs" / str(index), "bond0")
    node.drivers.statistics |= {"eth0": {"tx_discards_phy": 6}, "bond0": {}}
    statistics = node.read()
    assert statistics["nics"][0]["tx_discards"] == 6
    assert statistics["devices"][0]["interface"] == "bond0"


def test_without_priorities_global_pause_counts(node: Node) -> None:
    sysfs.mlx5(node.root)
    node.drivers.statistics["eth0"] = {"rx_global_pause": 3, "rx_global_pause_duration": 4}
    (row,) = node.read()["nics"]
    assert (row["pfc_rx_pause"], row["pfc_rx_pause_ns"], row["pfc_tx_pause"]) == (3, 4000, None)


def test_soft_roce_has_other_counters_and_no_pci_device(node: Node) -> None:
    sysfs.rxe(node.root)
    sysfs.counter(node.root, "hw_counters/completer_retry_err", 9, "rxe0")
    sysfs.counter(node.root, "hw_counters/out_of_seq_request", 5, "rxe0")
    sysfs.write(node.root / "sys/class/net/veth0/statistics/tx_bytes", 4096)
    node.drivers.statistics["veth0"] = {}
    statistics = node.read()
    (row,) = statistics["nics"]
    assert (row["retransmits"], row["out_of_sequence"], row["tx_bytes"]) == (9, 5, 4096)
    assert (row["rate_bytes_per_s"], row["link_up"]) == (1_250_000_000, True)
    assert row["cnp_sent"] is row["pcie_width"] is row["pcie_errors"] is None
    (device,) = statistics["devices"]
    assert (device["device"], device["interface"], device["address"]) == (
        *("rxe0", "veth0", "10.77.0.1"),
    )
    assert device["pci_bus"] is device["pcie_port"] is device["model"] is None
    assert node.collected.problems == ()


def test_a_device_is_reported_in_its_place_when_found_and_when_changed(node: Node) -> None:
    sysfs.mlx5(node.root)
    (device,) = node.read()["devices"]
    assert device == {
        "node": "gpu017",
        "kind": "nic",
        "device": "mlx5_0",
        "at_ns": node.now.realtime_ns,
        "pci_bus": "0000:18:00.0",
        "pcie_port": "0000:16:00.0",
        "pcie_path": ("0000:15:01.0", "0000:16:00.0", "0000:17:00.0"),
        "numa_node": 0,
        "model": "ConnectX-7 (MT4129)",
        "firmware": "28.41.1000",
        "address": "10.77.0.1",
        "interface": "eth0",
    }
    assert "devices" not in node.read()
    assert rows(node.source.current_state(node.now))["devices"][0]["device"] == "mlx5_0"
    sysfs.write(node.root / "sys/class/infiniband/mlx5_0/fw_ver", "28.42.0000")
    (device,) = node.read(after_ns=10 * NS_PER_S)["devices"]
    assert device["firmware"] == "28.42.0000"


def test_no_device_is_noted_and_one_that_comes_is_read(node: Node) -> None:
    assert node.read() == {}
    where = node.root / "sys/class/infiniband"
    assert node.collected.notes == (f"no RDMA device found: {where} does not exist",)
    where.mkdir(parents=True)
    assert node.read() == {}
    assert node.collected.notes == (f"no RDMA device found: {where} is empty",)
    assert node.source.current_state(node.now) == []
    sysfs.mlx5(node.root)
    node.drivers.statistics["eth0"] = {}
    assert len(node.read()["nics"]) == 1
    assert node.collected.notes == node.collected.problems == ()


def test_a_device_that_goes_is_said_until_it_is_back(node: Node) -> None:
    sysfs.mlx5(node.root, 0)
    sysfs.mlx5(node.root, 1)
    node.drivers.statistics |= {"eth0": {}, "eth1": {}}
    assert [row["nic"] for row in node.read()["nics"]] == ["mlx5_0", "mlx5_1"]
    sysfs.remove(node.root, "mlx5_1")
    statistics = node.read()
    assert [row["nic"] for row in statistics["nics"]] == ["mlx5_0"]
    (event,) = statistics["host_events"]
    assert (event["code"], event["device"]) == ("nic_gone", "mlx5_1")
    assert "host_events" not in node.read()
    assert node.collected.problems == ("mlx5_1 has disappeared",)
    sysfs._link(  # as its driver takes it back
        node.root / "sys/class/infiniband/mlx5_1/device",
        next((node.root / "sys/devices").glob("pci0000:1d/*/*/*/*")).resolve(),
    )
    node.read()
    assert node.collected.problems == ()


@pytest.mark.parametrize("garbage", ["", "many", "-1", "99999999999999999999999", "1.5", "0x10"])
def test_a_counter_that_holds_garbage_is_null_and_said(node: Node, garbage: str) -> None:
    sysfs.mlx5(node.root)
    node.drivers.statistics["eth0"] = {}
    sysfs.counter(node.root, "hw_counters/np_cnp_sent", garbage)
    sysfs.counter(node.root, "counters/port_xmit_data", garbage)
    sysfs.counter(node.root, "hw_counters/rp_cnp_handled", 12)
    (row,) = node.read()["nics"]
    assert (row["cnp_sent"], row["tx_bytes"], row["cnp_handled"]) == (None, None, 12)
    if garbage.isdigit():
        return  # a number, and yet none that any counter reaches
    assert len(node.collected.problems) == 2
    assert "hw_counters/np_cnp_sent holds" in node.collected.problems[1]


def test_a_counter_that_the_device_does_not_support_is_null(node: Node) -> None:
    sysfs.mlx5(node.root)
    node.drivers.statistics["eth0"] = {}
    sysfs.counter(node.root, "counters/port_xmit_data", "N/A (no PMA)")
    (row,) = node.read()["nics"]
    assert (row["tx_bytes"], node.collected.problems) == (None, ())


def test_a_sum_that_lacks_a_part_is_null_until_the_part_is_known_to_be_gone(node: Node) -> None:
    """Else it would fall, and look like a reset."""
    sysfs.mlx5(node.root)
    node.drivers.statistics["eth0"] = {}
    sysfs.counter(node.root, "hw_counters/packet_seq_err", 5)
    sysfs.counter(node.root, "hw_counters/roce_adp_retrans", 2)
    assert node.read()["nics"][0]["retransmits"] == 7
    (sysfs.ports(node.root, "mlx5_0") / "1/hw_counters/packet_seq_err").unlink()
    assert node.read()["nics"][0]["retransmits"] is None
    assert node.read(after_ns=10 * NS_PER_S)["nics"][0]["retransmits"] == 2


def test_a_link_that_is_down_has_no_rate(node: Node) -> None:
    sysfs.mlx5(node.root)
    port = sysfs.ports(node.root, "mlx5_0") / "1"
    sysfs.write(port / "state", "1: DOWN")
    sysfs.write(port / "rate", "2.5 Gb/sec (1X SDR)")
    (row,) = node.read()["nics"]
    assert (row["link_up"], row["rate_bytes_per_s"]) == (False, None)
    (port / "state").unlink()
    assert node.read()["nics"][0]["link_up"] is None


def test_a_narrow_and_slow_pcie_link_is_reported(node: Node) -> None:
    sysfs.mlx5(node.root)
    device = node.root / "sys/class/infiniband/mlx5_0/device"
    sysfs.write(device / "current_link_width", 8)
    sysfs.write(device / "current_link_speed", "16.0 GT/s PCIe")
    sysfs.write(device / "max_link_width", 255)
    sysfs.write(device / "max_link_speed", "Unknown")
    (row,) = node.read()["nics"]
    assert (row["pcie_width"], row["pcie_gen"]) == (8, 4)
    assert row["pcie_width_max"] is row["pcie_gen_max"] is None


def test_an_interface_out_of_sight_is_said(node: Node) -> None:
    sysfs.mlx5(node.root)
    (row,) = node.read()["nics"]
    assert row["pfc_rx_pause"] is None
    assert node.collected.problems == ("mlx5_0: no statistics of eth0: No such device",)


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        ("400 Gb/sec (4X NDR)", 50_000_000_000),
        ("2.5 Gb/sec (1X SDR)", 312_500_000),
        ("0 Gb/sec", None),
        ("fast", None),
        ("nan Gb/sec", None),
        ("400 Mb/sec", None),
        (None, None),
    ],
)
def test_rates(text: str | None, bytes_per_s: int | None) -> None:
    assert link_rate(text) == bytes_per_s
