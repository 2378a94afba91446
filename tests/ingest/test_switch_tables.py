"""Switch tables in CSV or Parquet, and pause counters as a shell shows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from oncall.errors import BadInput
from oncall.evidence.incident import Incident
from oncall.ingest.detect import load

SONIC = """admin@leaf3:~$ date -Is
2026-11-20T03:10:00+00:00
admin@leaf3:~$ show pfc counters
  Port Rx    PFC0    PFC1    PFC2    PFC3
---------  ------  ------  ------  ------
Ethernet0       0       0       0   1,234
Ethernet4       0       0       0       0

  Port Tx    PFC0    PFC1    PFC2    PFC3
---------  ------  ------  ------  ------
Ethernet0       0       0       0       7
Ethernet4       0       0       0     N/A
"""
ETHTOOL = """root@gpu017:~# ethtool -S ens1f0
NIC statistics:
     rx_packets: 17
     rx_prio3_pause: 120
     rx_prio3_pause_duration: 45
     tx_prio3_pause: 0
     tx_pause_storm_error_events: 2
"""


@pytest.fixture
def incident() -> Iterator[Incident]:
    with Incident.empty() as incident:
        yield incident


def test_csv_and_parquet_are_read_by_their_names(tmp_path: Path, incident: Incident) -> None:
    (tmp_path / "switch_ports-leaf3.csv").write_text(
        "switch,port,at_ns,queue_depth,colour\nleaf3,7,1000,12.5,red\nleaf3,,1000,1,blue\n"
    )
    duckdb.execute(
        "COPY (SELECT 'leaf3' AS switch, 7 AS port, 5 AS at_ns, true AS paused) TO "
        f"'{tmp_path}/switch_pauses.parquet'"
    )
    load([tmp_path], incident)
    assert incident.con.execute(
        "SELECT switch, port, at_ns, queue_depth, packets FROM switch_ports"
    ).fetchall() == [("leaf3", 7, 1000, 12.5, None)]
    assert incident.rows("switch_pauses") == 1
    told = incident.con.execute(
        "SELECT problem, note FROM recordings WHERE problem IS NOT NULL"
    ).fetchall()
    assert told == [
        ("1 of 2 rows lack a value they need", "columns of switch_ports not known: colour")
    ]


@pytest.mark.parametrize(
    ("written", "comm"), [("0x1F2e", 0x1F2E), ("17", 17), ("0xffffffffffffffff", 2**64 - 1)]
)
def test_a_communicator_is_written_in_either_base(
    tmp_path: Path, incident: Incident, written: str, comm: int
) -> None:
    (tmp_path / "flow_steps.csv").write_text(
        f"comm,flow,src,dst,step,started_ns,ended_ns\n{written},1,0,1,1,0,5\n"
    )
    load([tmp_path], incident)
    assert incident.con.execute("SELECT comm, seq FROM flow_steps").fetchall() == [(comm, 0)]


def test_a_table_without_what_it_needs_says_what(tmp_path: Path, incident: Incident) -> None:
    (tmp_path / "switch_pauses.csv").write_text("switch,port\nleaf3,1\n")
    with pytest.raises(BadInput, match="switch_pauses needs the column at_ns, paused"):
        load([tmp_path], incident)


@pytest.mark.parametrize("content", [b"PAR1 and then nothing", b"PAR1"])
def test_a_damaged_file_says_so(tmp_path: Path, incident: Incident, content: bytes) -> None:
    (tmp_path / "switch_ports.parquet").write_bytes(content)
    with pytest.raises(BadInput, match=r"switch_ports\.parquet"):
        load([tmp_path], incident)


def test_a_table_of_something_else_is_no_evidence(tmp_path: Path, incident: Incident) -> None:
    (tmp_path / "flows.csv").write_text("river,litres\nRhine,3000\n")
    with pytest.raises(BadInput, match="no recording here"):
        load([tmp_path], incident)


def test_sonic_counters_by_port_and_priority(tmp_path: Path, incident: Incident) -> None:
    (tmp_path / "leaf3.txt").write_text(SONIC)
    load([tmp_path / "leaf3.txt"], incident)
    assert incident.con.execute(
        "SELECT node, nic, at_ns, pfc_rx_pause, pfc_tx_pause FROM nics ORDER BY nic"
    ).fetchall() == [
        ("leaf3", "Ethernet0", 1763608200 * 10**9 + 365 * 86400 * 10**9, 1234, 7),
        ("leaf3", "Ethernet4", 1763608200 * 10**9 + 365 * 86400 * 10**9, 0, None),
    ]
    assert incident.con.execute(
        "SELECT rx_pause, tx_pause FROM nic_priorities WHERE nic = 'Ethernet0' AND priority = 3"
    ).fetchall() == [(1234, 7)]
    assert incident.con.execute("SELECT problem FROM recordings").fetchall() == [
        ("1 lines could not be read",)
    ]


def test_ethtool_counters_of_a_port(tmp_path: Path, incident: Incident) -> None:
    (tmp_path / "saved.log").write_text(ETHTOOL)
    load([tmp_path / "saved.log"], incident)
    assert incident.con.execute(
        "SELECT node, nic, pfc_rx_pause, pfc_rx_pause_ns, pfc_tx_pause, pause_storms FROM nics"
    ).fetchall() == [("gpu017", "ens1f0", 120, 45_000, 0, 2)]
