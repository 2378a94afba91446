"""Counters of one host before and after, whose files may state no time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oncall.evidence.incident import Incident
from oncall.evidence.window import span
from oncall.importers.detect import load

WRITTEN_S = 1_795_800_000
ETHTOOL = """NIC statistics:
     rx_discards_phy: {}
     link_down_events_phy: 3
     rx_bytes_phy: 9
"""
OF_BNXT = """NIC statistics:
     rx_corrected_bits: 9
     rx_fcs_err_frames: 0
     rx_fec_corrected_blocks: 7
     rx_fec_uncorrectable_blocks: {}
"""
OF_MLX5 = """NIC statistics:
     rx_crc_errors_phy: 0
     rx_pcs_symbol_err_phy: {}
     rx_corrected_bits_phy: 5
"""
FEC = """FEC parameters for eth2:
Supported/Configured FEC encodings: Auto RS
Active FEC encoding: RS
Statistics:
  corrected_blocks: 5
    Lane 0: 5
  uncorrectable_blocks: {}
    Lane 0: 1
"""
MENDED = FEC.replace("corrected_blocks: 5", "corrected_blocks: {}", 1).replace(
    "ble_blocks: {}", "ble_blocks: 0"
)
PERFQUERY = """# Port counters: Lid 17 port 1 (CapMask: 0x5A00)
SymbolErrorCounter:..............{}
LinkDownedCounter:...............1
PortXmitData:....................4294967295
"""
RDMA = "link mlx5_2/1 out_of_sequence {} local_ack_timeout_err 7\n"
SYSFS = "/sys/class/infiniband/mlx5_2/ports/1/hw_counters/local_ack_timeout_err:{}\n/sys/class/infiniband/mlx5_2/ports/1/counters/link_downed:0\n"  # noqa: E501


def write(path: Path, text: str, written_s: int) -> None:
    path.write_text(text)
    os.utime(path, (written_s, written_s))


@pytest.mark.parametrize(
    ("form", "column"),
    [
        (ETHTOOL, "rx_discards"),
        (OF_BNXT, "link_errors"),
        (OF_MLX5, "link_errors"),
        (FEC, "link_errors"),
        (MENDED, "corrected_bits"),
        (PERFQUERY, "link_errors"),
        (RDMA, "out_of_sequence"),
        (SYSFS, "timeouts"),
    ],
)
@pytest.mark.parametrize("copied", [False, True])
def test_what_grew_between_two_files(
    form: str, column: str, copied: bool, tmp_path: Path, incident: Incident
) -> None:
    """Also where both were copied, and so written, at once; and neither is of a known time."""
    write(tmp_path / "gpu004-before.txt", form.format(100), WRITTEN_S)
    write(tmp_path / "gpu004-after.txt", form.format(142), WRITTEN_S + (0 if copied else 300))
    load([tmp_path], incident)
    incident.require(["nic_rates"])
    found = incident.con.execute(f"SELECT node, {column}, tx_bytes FROM nic_rates").fetchall()
    assert found == [("gpu004", 42, None)]  # a counter that saturated is unknown
    assert span(incident.con) == (None, None)


@pytest.mark.parametrize("date", ["Fri Nov 27 03:{}:00 UTC 2026", "2026-11-27 03:{}:00"])
def test_dates_between_two_readings_in_one_file(
    date: str, tmp_path: Path, incident: Incident
) -> None:
    parts = (date.format(10), ETHTOOL.format(1), date.format(20), ETHTOOL.format(5))
    (tmp_path / "gpu004.ens1f0np0.txt").write_text("\n".join(parts))
    load([tmp_path], incident)
    incident.require(["nic_rates"])
    found = incident.con.execute("SELECT nic, rx_discards, took_ns FROM nic_rates").fetchall()
    assert found == [("ens1f0np0", 4, 600 * 10**9)]
    assert span(incident.con)[0] is not None


def test_readings_that_follow_one_another_without_a_date(
    tmp_path: Path, incident: Incident
) -> None:
    (tmp_path / "gpu004.ens2.txt").write_text(ETHTOOL.format(1) + ETHTOOL.format(5))
    load([tmp_path], incident)
    incident.require(["nic_rates"])
    assert incident.con.execute("SELECT rx_discards FROM nic_rates").fetchall() == [(4,)]


def test_a_counter_that_stands_there_again_was_read_later(
    tmp_path: Path, incident: Incident
) -> None:
    """Lines cut from what ethtool printed, without its heading, in a file that names no host."""
    look = "     tx_pause_storm_error_events: {}\n     rx_discards_phy: 0\n     rx_bytes_phy: 9\n"
    text = f"# ethtool -S ens3f1 | grep\n{look.format(2)}# 10 s later\n{look.format(7)}"
    (tmp_path / "ethtool_S.txt").write_text(text)
    load([tmp_path], incident)
    incident.require(["nic_rates", "fault_reports"])
    found = incident.con.execute("SELECT node, nic, pause_storms FROM nic_rates").fetchall()
    assert found == [(None, "ens3f1", 5)]
    codes = incident.con.execute("SELECT event FROM fault_reports WHERE code = 'link_impaired'")
    assert codes.fetchall() == [("storms_grew",)]
