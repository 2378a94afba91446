"""Counters of ports as a shell shows them: SONiC's tables, and what ethtool prints."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from oncall.core.errors import BadInput
from oncall.evidence.incident import Incident
from oncall.importers.detect import load

AT_NS = int(datetime(2026, 11, 20, 3, 10, tzinfo=UTC).timestamp()) * 10**9
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
Ethernet8       0     oops      0       1
"""
QUEUES = """admin@leaf3:~$ show queue counters Ethernet0
For namespace :
     Port    TxQ    Counter/pkts    Counter/bytes    Drop/pkts    Drop/bytes
---------  -----  --------------  ---------------  -----------  ------------
Ethernet0    UC0           1,201          130,112            0             0
Ethernet0    UC3      81,000,112  113,400,156,800            5         7,000
Ethernet0    UC4             N/A              N/A          N/A           N/A
Ethernet0    MC8               3              300            0             0
Ethernet0   ALL3      81,000,112  113,400,156,800            5         7,000
"""
MARKED = """admin@leaf3:~$ show queue counters Ethernet16
      Port    TxQ    Counter/pkts    Counter/bytes    Drop/pkts    Drop/bytes    EcnMarked/pkts    EcnMarked/bytes
----------  -----  --------------  ---------------  -----------  ------------  ----------------  -----------------
Ethernet16    UC3           9,000       12,600,000            0             0               412            576,800
"""  # noqa: E501
WATERMARKS = """admin@leaf3:~$ show queue watermark unicast
Egress shared pool occupancy per unicast queue:
       Port    UC0    UC1    UC2      UC3    UC4
-----------  -----  -----  -----  -------  -----
  Ethernet0      0      0      0  2057328      0
 Ethernet12      0      0      0        0     20

admin@leaf3:~$ show queue watermark multicast
Egress shared pool occupancy per multicast queue:
       Port    MC8    MC9
-----------  -----  -----
  Ethernet0    100    200
admin@leaf3:~$ show priority-group watermark headroom
Ingress headroom per PG:
       Port    PG0    PG3
-----------  -----  -----
  Ethernet0      0  93184
"""
HISTORY = """admin@leaf3:~$ show pfc counters --history
     Port    Priority    RX Pause Transitions    Total RX Pause Time MS    Recent RX Pause Time MS    Recent RX Pause Timestamp
---------  ----------  ----------------------  ------------------------  -------------------------  ---------------------------
Ethernet0        PFC3                      12                    12,000                      1,200         01/10/2008, 21:20:00
Ethernet0        PFC4                     N/A                       N/A                        N/A                          N/A
"""  # noqa: E501
WATCHDOG = """admin@leaf3:~$ show pfcwd stats
      QUEUE       STATUS    STORM DETECTED/RESTORED    TX OK/DROP    RX OK/DROP    TX LAST OK/DROP    RX LAST OK/DROP
-----------  -----------  -------------------------  ------------  ------------  -----------------  -----------------
Ethernet0:3      stormed                        3/2       100/300       100/300              0/200              0/200
Ethernet0:4  operational                        2/2       100/100       100/100                0/0                0/0
"""  # noqa: E501
ETHTOOL = """root@gpu017:~# ethtool -S ens1f0
NIC statistics:
     rx_packets: 17
     rx_bytes_phy: 9000
     tx_bytes_phy: 8000
     rx_prio3_bytes: 7000
     rx_prio3_pause: 120
     rx_prio3_pause_duration: 45
     tx_prio3_pause: 0
     rx_prio3_discards: 4
     tx_pause_storm_error_events: 2
"""
BNXT = """NIC statistics:
     rx_pfc_ena_frames_pri3: 12
     tx_pfc_ena_frames_pri3: 1
     pfc_pri3_rx_duration_us: 90
     tx_total_bytes: 10
"""


def reported(incident: Incident, path: Path, text: str, table: str, columns: str) -> list[Any]:
    path.write_text(text)
    load([path], incident)
    return incident.con.execute(f"SELECT {columns} FROM {table} ORDER BY ALL").fetchall()


def problems(incident: Incident) -> list[str | None]:
    rows = incident.con.execute("SELECT problem FROM recordings").fetchall()
    return [problem for (problem,) in rows]


def test_pauses_by_port_and_priority(tmp_path: Path, incident: Incident) -> None:
    columns = "node, nic, at_ns, pfc_rx_pause, pfc_tx_pause"
    assert reported(incident, tmp_path / "saved.txt", SONIC, "nics", columns) == [
        ("leaf3", "Ethernet0", AT_NS, 1234, 7),
        ("leaf3", "Ethernet4", AT_NS, 0, 0),
    ]
    assert incident.con.execute(
        "SELECT nic, rx_pause, tx_pause FROM nic_priorities WHERE priority = 3 ORDER BY nic"
    ).fetchall() == [("Ethernet0", 1234, 7), ("Ethernet4", 0, None)]
    assert problems(incident) == ["1 lines could not be read"]


def test_two_readings_in_one_file_are_a_rate(tmp_path: Path, incident: Incident) -> None:
    later = SONIC.replace("03:10:00", "03:20:00").replace("1,234", "1,300")
    reported(incident, tmp_path / "leaf3.txt", SONIC + later, "nics", "1")
    incident.require(["nic_rates"])
    rates = incident.con.execute("SELECT nic, pfc_rx_pause, took_ns FROM nic_rates ORDER BY nic")
    assert rates.fetchall() == [("Ethernet0", 66, 600 * 10**9), ("Ethernet4", 0, 600 * 10**9)]


def test_queues_count_bytes_and_drops(tmp_path: Path, incident: Incident) -> None:
    columns = "nic, priority, tx_bytes, discards, marked"
    found = reported(incident, tmp_path / "q.txt", QUEUES, "nic_priorities", columns)
    assert found == [
        ("Ethernet0", 0, 130_112, 0, None),
        ("Ethernet0", 3, 113_400_156_800, 5, None),
    ]
    assert problems(incident) == [None]


def test_watermarks_of_unicast_queues(tmp_path: Path, incident: Incident) -> None:
    columns = "nic, priority, queue_bytes"
    found = reported(incident, tmp_path / "w.txt", WATERMARKS, "nic_priorities", columns)
    assert [row for row in found if row[2]] == [
        ("Ethernet0", 3, 2_057_328),
        ("Ethernet12", 4, 20),
    ]
    assert problems(incident) == [None]


def test_time_that_a_priority_was_paused(tmp_path: Path, incident: Incident) -> None:
    columns = "nic, pfc_rx_pause, pfc_rx_pause_ns"
    found = reported(incident, tmp_path / "h.txt", HISTORY, "nics", columns)
    assert found == [("Ethernet0", None, 12_000 * 10**6)]
    assert problems(incident) == [None]


def test_storms_that_a_watchdog_found(tmp_path: Path, incident: Incident) -> None:
    found = reported(incident, tmp_path / "d.txt", WATCHDOG, "nics", "node, nic, pause_storms")
    assert found == [("leaf3", "Ethernet0", 5)]
    assert incident.rows("nic_priorities") == 0


def test_ethtool_of_mlx5(tmp_path: Path, incident: Incident) -> None:
    columns = "node, nic, tx_bytes, pfc_rx_pause, pfc_rx_pause_ns, pfc_tx_pause, pause_storms"
    found = reported(incident, tmp_path / "saved.log", ETHTOOL, "nics", columns)
    assert found == [("gpu017", "ens1f0", 8000, 120, 45_000, 0, 2)]
    assert incident.con.execute(
        "SELECT priority, rx_bytes, discards FROM nic_priorities"
    ).fetchall() == [(3, 7000, 4)]


def test_ethtool_of_bnxt_named_by_its_file(tmp_path: Path, incident: Incident) -> None:
    columns = "node, nic, pfc_rx_pause, pfc_rx_pause_ns, pfc_tx_pause, tx_bytes"
    found = reported(incident, tmp_path / "gpu018.ens2.txt", BNXT, "nics", columns)
    assert found == [("gpu018", "ens2", 12, 90_000, 1, 10)]


def test_a_table_of_something_else_is_no_evidence(tmp_path: Path, incident: Incident) -> None:
    text = "Interface    Admin    Oper\n---------  -------  ------\nEthernet0       up    down\n"
    with pytest.raises(BadInput, match="not a recording"):
        reported(incident, tmp_path / "s.txt", text, "nics", "1")


def test_counters_that_fit_no_column_are_reported(tmp_path: Path, incident: Incident) -> None:
    most = "9" * 18
    text = f"NIC statistics:\n  rx_prio3_pause_duration: {most}\n  rx_prio3_bytes: {most}\n"
    found = reported(incident, tmp_path / "gpu018.ens2.txt", text, "nic_priorities", "rx_bytes")
    assert found == [(int(most),)]
    assert problems(incident) == ["1 lines could not be read"]


@pytest.mark.parametrize("date", ["0001-01-01 00:00:00+23:59", "9999-12-31T23:59:59Z"])
def test_a_date_that_no_clock_shows_is_none(tmp_path: Path, incident: Incident, date: str) -> None:
    path, text = tmp_path / "leaf3.txt", SONIC.replace("2026-11-20T03:10:00+00:00", date)
    [(at_ns,)] = set(reported(incident, path, text, "nics", "at_ns"))
    assert at_ns == path.stat().st_mtime_ns


ICE = """     rx_bytes.nic: 9000
     tx_bytes.nic: 8000
     rx_crc_errors.nic: 2
     rx_dropped.nic: 5
     rx_priority_3_xoff.nic: 11
     tx_priority_3_xoff.nic: 0
"""
ENA = """NIC statistics:
     tx_timeout: 0
     wd_expired: 0
     bw_in_allowance_exceeded: 7
     bw_out_allowance_exceeded: 0
     queue_0_tx_cnt: 12
"""
INTERFACES = """admin@leaf3:~$ show interfaces counters
      IFACE    STATE      RX_OK      RX_BPS    RX_UTIL    RX_ERR    RX_DRP    RX_OVR      TX_OK      TX_BPS    TX_UTIL    TX_ERR    TX_DRP    TX_OVR
-----------  -------  ---------  ----------  ---------  --------  --------  --------  ---------  ----------  ---------  --------  --------  --------
  Ethernet0        U  1,200,123   10.00 B/s      0.00%         4         3         0  1,100,123   11.00 B/s      0.00%         0         9         0
  Ethernet4        D          0    0.00 B/s      0.00%         0         0         0          0    0.00 B/s      0.00%         0         0         0
"""  # noqa: E501
RDMA = "link mlx5_0/1 rx_write_requests 9 out_of_sequence 4 np_cnp_sent 6 out_of_buffer 0 \n"


def test_ethtool_of_ice_with_its_heading_cut_off(tmp_path: Path, incident: Incident) -> None:
    columns = "node, nic, tx_bytes, link_errors, rx_discards, pfc_rx_pause, pfc_tx_pause"
    found = reported(incident, tmp_path / "gpu019.ens3.txt", ICE, "nics", columns)
    assert found == [("gpu019", "ens3", 8000, 2, 5, 11, 0)]


def test_ethtool_of_ena(tmp_path: Path, incident: Incident) -> None:
    found = reported(
        incident, tmp_path / "p5.ens32.txt", ENA, "nics", "nic, rx_discards, tx_discards"
    )
    assert found == [("ens32", 7, 0)]


def test_interfaces_of_sonic(tmp_path: Path, incident: Incident) -> None:
    columns = "node, nic, link_up, link_errors, rx_discards, tx_discards"
    found = reported(incident, tmp_path / "i.txt", INTERFACES, "nics", columns)
    assert found == [("leaf3", "Ethernet0", True, 4, 3, 9), ("leaf3", "Ethernet4", False, 0, 0, 0)]
    assert problems(incident) == [None]


FEC = """admin@leaf3:~$ show interfaces counters fec-stats
      IFACE    STATE    FEC_CORR    FEC_UNCORR    FEC_SYMBOL_ERR    FEC_PRE_BER    FEC_POST_BER
-----------  -------  ----------  ------------  ----------------  -------------  --------------
  Ethernet0        U   1,318,200            12             2,917    1.40e-07       0.00e+00
  Ethernet4        D           0             0                 0    0.00e+00       0.00e+00
"""


def test_codewords_that_sonic_could_not_correct(tmp_path: Path, incident: Incident) -> None:
    columns = "node, nic, link_up, link_errors"
    found = reported(incident, tmp_path / "fec.txt", FEC, "nics", columns)
    assert found == [("leaf3", "Ethernet0", True, 12), ("leaf3", "Ethernet4", False, 0)]
    assert problems(incident) == [None]


def test_rdma_statistic(tmp_path: Path, incident: Incident) -> None:
    columns = "node, nic, out_of_sequence, cnp_sent, out_of_buffer"
    found = reported(incident, tmp_path / "gpu020.rdma.txt", RDMA, "nics", columns)
    assert found == [("gpu020", "mlx5_0", 4, 6, 0)]
