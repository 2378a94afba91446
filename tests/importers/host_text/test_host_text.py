# ruff: noqa: E501 - what tools print, column by column
"""Text of hosts, as kernels and tools print it: rows as the collectors', and whose host it is."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncall.diagnose import diagnose
from oncall.evidence.codes.kernel_lines import WORDS
from oncall.evidence.incident import Incident
from oncall.importers.detect import load
from oncall.importers.host_text import importer, kernel_log
from oncall.importers.host_text.places import hosts_of
from oncall.rules.language.load import load_rulebooks, shipped_folder

XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=7, name=python, GPU has fallen off the bus."
AT_NS = int(datetime(2026, 11, 20, 3, 10, tzinfo=UTC).timestamp()) * 10**9


@pytest.fixture
def incident() -> Iterator[Incident]:
    with Incident.empty() as incident:
        yield incident


def reported(incident: Incident, path: Path, text: str, columns: str, table: str) -> list[Any]:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    load([path], incident)
    return incident.con.execute(f"SELECT {columns} FROM {table} ORDER BY ALL").fetchall()


def events(incident: Incident, path: Path, text: str) -> list[Any]:
    return reported(incident, path, text, "node, at_ns, code, device, line", "host_events")


# ------------------------------------------------------------------- kernel logs

JOURNAL = json.dumps(
    {
        "__REALTIME_TIMESTAMP": str(AT_NS // 1000),
        "_HOSTNAME": "gpu7",
        "SYSLOG_IDENTIFIER": "kernel",
        "MESSAGE": XID,
    }
)


@pytest.mark.parametrize(
    ("line", "node", "at_ns"),
    [
        (f"[86400.123456] {XID}", None, None),
        (f"[86400.123456][  T812] {XID}", None, None),
        (f"<4>[86400.123456] {XID}", None, None),
        (f"kern  :err   : [86400.123456] {XID}", None, None),
        (f"[Fri Nov 20 03:10:00 2026] {XID}", None, AT_NS),
        (f"kern  :err   : [Fri Nov 20 03:10:00 2026] {XID}", None, AT_NS),
        (f"2026-11-20T03:10:00,000000+00:00 {XID}", None, AT_NS),
        (f"2026-11-20T03:10:00+0000 gpu7 kernel: {XID}", "gpu7", AT_NS),
        (f"2026-11-20T04:10:00+0100 gpu7 kernel: {XID}", "gpu7", AT_NS),
        (f"2026-11-19T21:40:00,000000-05:30 {XID}", None, AT_NS),
        (f"2026-11-20T03:10:00.000000+00:00 gpu7 kernel: [ 86.123456] {XID}", "gpu7", AT_NS),
        (f"Nov 20 03:10:00 gpu7 kernel: {XID}", "gpu7", AT_NS),
        (f"Nov 20 03:10:00 gpu7 kernel: [86400.123456] {XID}", "gpu7", AT_NS),
        (f"kernel: {XID}", None, None),
        (XID, None, None),
        (JOURNAL, "gpu7", AT_NS),
    ],
)
def test_every_stamp_of_a_kernel_line(
    tmp_path: Path, incident: Incident, line: str, node: str | None, at_ns: int | None
) -> None:
    path = tmp_path / "dmesg.txt"
    other = line.replace(XID, "usb 1-1: new device")
    path.write_text(f"{other}\n{line}\n{other}\n" if line != XID else f"{line}\n")
    import os

    os.utime(path, ns=(AT_NS, AT_NS))  # the year that syslog leaves out
    load([path], incident)

    found = incident.con.execute("SELECT node, at_ns, code, device FROM host_events").fetchall()
    assert found == [(node, at_ns, "xid_79", "0000:9b:00.0")]


def test_a_gpu_lost_over_three_lines(tmp_path: Path, incident: Incident) -> None:
    text = (
        "[ 2210.117145] NVRM: The NVIDIA GPU 0000:ca:00.0\n"
        "               NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
        "               NVRM: fallen off the bus and is not responding to commands.\n"
    )
    found = events(incident, tmp_path / "dmesg.txt", text)
    assert found == [(None, None, "gpu_lost", "0000:ca:00.0", 3)]


def test_links_that_come_up_while_the_host_starts_are_no_fault(
    tmp_path: Path, incident: Incident
) -> None:
    text = (
        "[   12.100000] mlx5_core 0000:41:00.0 ens1f0np0: Link down\n"
        "[   13.100000] mlx5_core 0000:41:00.0: Port module event: module 0, Cable unplugged\n"
        "[  900.100000] docker0: veth12 Link is Down\n"
        "[  901.100000] mlx5_core 0000:41:00.0 ens1f0np0: Link down\n"
    )
    found = events(incident, tmp_path / "dmesg.txt", text)
    assert found == [(None, None, "link_down", "0000:41:00.0", 4)]


def test_links_come_up_after_the_kernels_first_line_where_stamps_are_dates(
    tmp_path: Path, incident: Incident
) -> None:
    text = (
        "[Fri Nov 20 03:09:00 2026] Linux version 5.15.0-119-generic (buildd@lcy02)\n"
        "[Fri Nov 20 03:09:12 2026] mlx5_core 0000:41:00.0 ens1f0np0: Link down\n"
        "[Fri Nov 20 03:20:00 2026] mlx5_core 0000:41:00.0 ens1f0np0: Link down\n"
    )
    found = events(incident, tmp_path / "dmesg.txt", text)
    assert [row[4] for row in found] == [3]


def test_a_journal_that_is_gzipped_and_names_its_host(tmp_path: Path, incident: Incident) -> None:
    path = tmp_path / "messages.gz"
    stamp = "2026-11-20T03:10:00+00:00 gpu7"
    text = f"{stamp} sshd[12]: ok\n{stamp} kernel: {XID}\n"
    path.write_bytes(gzip.compress(text.encode()))
    load([path], incident)
    assert incident.con.execute("SELECT node, code, line FROM host_events").fetchall() == [
        ("gpu7", "xid_79", 2)
    ]


def test_a_flood_is_cut(tmp_path: Path, incident: Incident) -> None:
    line = "[86400.123456] pcieport 0000:00:03.1: AER: PCIe Bus Error: severity=Corrected, type=x\n"
    assert len(events(incident, tmp_path / "dmesg.txt", line * 5000)) == 200


def test_a_jobs_log_with_lines_of_the_kernel_is_a_jobs_log(
    tmp_path: Path, incident: Incident
) -> None:
    text = f"[rank0]: Traceback (most recent call last):\n[86400.123456] {XID}\n"
    assert reported(incident, tmp_path / "job.log", text, "kind, code", "log_events")
    assert incident.is_empty("host_events")


def test_daemons_of_the_fabric_in_a_journal(tmp_path: Path, incident: Incident) -> None:
    text = (
        "Nov 20 03:09:00 gpu7 kernel: usb 1-1: new device\n"
        "Nov 20 03:10:00 gpu7 nv-fabricmanager[812]: detected NVSwitch fatal error 20034\n"
        "Nov 20 03:11:00 gpu7 nv-fabricmanager[812]: Successfully configured all the NVSwitches\n"
    )
    found = events(incident, tmp_path / "journal.txt", text)
    assert [(row[0], row[2], row[4]) for row in found] == [("gpu7", "fabric_manager", 2)]


def test_every_word_is_long_enough_to_be_searched() -> None:
    assert all(len(word) >= 4 for word in WORDS)


# ------------------------------------------------------------------------ nvidia-smi

QUERY = """
==============NVSMI LOG==============

Timestamp                                 : Fri Nov 20 03:10:00 2026
Driver Version                            : 550.54.15
CUDA Version                              : 12.4

Attached GPUs                             : 2
GPU 00000000:18:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Minor Number                          : 0
    GPU Recovery Action                   : None
    PCI
        GPU Link Info
            PCIe Generation
                Max                       : 5
                Current                   : 5
            Link Width
                Max                       : 16x
                Current                   : 8x
        Replays Since Reset               : 4
    Fabric
        State                             : Completed
        Status                            : Success
    Clocks Event Reasons
        Idle                              : Not Active
        SW Power Cap                      : Not Active
        HW Slowdown                       : Active
            HW Thermal Slowdown           : Active
            HW Power Brake Slowdown       : Not Active
    FB Memory Usage
        Total                             : 81559 MiB
        Used                              : 71000 MiB
    Utilization
        Gpu                               : 100 %
        Memory                            : 3 %
    ECC Errors
        Volatile
            SRAM Correctable              : 0
            SRAM Uncorrectable Parity     : 1
            SRAM Uncorrectable SEC-DED    : 0
            DRAM Correctable              : 7
            DRAM Uncorrectable            : 2
        Aggregate
            DRAM Uncorrectable            : 90
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : 1
        Pending                           : Yes
        Remapping Failure Occurred        : No
    Temperature
        GPU Current Temp                  : 61 C
    GPU Power Readings
        Average Power Draw                : 650.10 W
        Instantaneous Power Draw          : 640.00 W
        Current Power Limit               : 700.00 W
    Clocks
        Graphics                          : 1200 MHz
        SM                                : 1200 MHz
    Max Clocks
        SM                                : 1980 MHz
GPU 00000000:9B:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Minor Number                          : 1
    Fabric
        State                             : In Progress
        Status                            : N/A
"""


def test_nvidia_smi_q(tmp_path: Path, incident: Incident) -> None:
    columns = (
        "gpu, at_ns, sm_clock_mhz, sm_clock_max_mhz, power_w, power_limit_w, temp_c, utilisation,"
        "throttle_reasons, pcie_gen, pcie_width, pcie_width_max, pcie_replays, ecc_corrected,"
        "ecc_uncorrected, remapped_rows, remap_failed, memory_used_bytes >> 20"
    )
    first, second = reported(
        incident, tmp_path / "gpu7" / "nvidia-smi-q.txt", QUERY, columns, "gpus"
    )
    assert first == (
        *(0, AT_NS, 1200, 1980, 640.0, 700.0, 61.0, 1.0, 0x48, 5, 8, 16, 4, 7, 3, 1, False, 71000),
    )
    assert second[:2] == (1, AT_NS) and not any(second[2:])
    assert incident.con.execute(
        "SELECT node, code, device, line FROM host_events ORDER BY line"
    ).fetchall() == [
        ("gpu7", "remap_pending", "0000:18:00.0", 49),
        ("gpu7", "fabric_not_ready", "0000:9b:00.0", 66),
    ]
    assert incident.con.execute("SELECT device, pci_bus FROM devices ORDER BY 1").fetchall() == [
        ("0", "0000:18:00.0"),
        ("1", "0000:9b:00.0"),
    ]


DMON = """# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk pviol  tviol
# Idx      W      C      C      %      %      %      %      %      %    MHz    MHz     %   bool
    0    112     41     52    100      0      0      0      0      0   2619   1980     0      0
    1    109     42      -    100      0      0      0      0      0   2619    900     0      1
    0    113     41     52    100      0      0      0      0      0   2619   1980     0      0
# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk pviol  tviol
# Idx      W      C      C      %      %      %      %      %      %    MHz    MHz     %   bool
    1    110     42      -     99      0      0      0      0      0   2619    900     0      1
"""
PMON = """# gpu         pid   type     sm    mem    enc    dec    jpg    ofa    command
# Idx           #    C/G      %      %      %      %      %      %    name
    0       4000     C    100      0      -      -      -      -    python
    1          -     -      -      -      -      -      -      -    -
"""
READINGS = "gpu, at_ns, utilisation, power_w, sm_clock_mhz, throttle_reasons"


def test_nvidia_smi_dmon(tmp_path: Path, incident: Incident) -> None:
    import os

    path = tmp_path / "gpu7" / "dmon.txt"
    path.parent.mkdir()
    path.write_text(DMON)
    os.utime(path, ns=(AT_NS, AT_NS))
    load([path], incident)
    before = AT_NS - 10**9
    assert incident.con.execute(f"SELECT {READINGS} FROM gpus ORDER BY at_ns, gpu").fetchall() == [
        (0, before, 1.0, 112.0, 1980, 0),
        (1, before, 1.0, 109.0, 900, 0x20),
        (0, AT_NS, 1.0, 113.0, 1980, 0),
        (1, AT_NS, 0.99, 110.0, 900, 0x20),
    ]


def test_nvidia_smi_dmon_with_stamps_and_pmon(tmp_path: Path, incident: Incident) -> None:
    dated = (
        "#Date       Time        gpu    pwr  gtemp  mtemp\n#YYYYMMDD   HH:MM:SS    Idx      W      C      C\n"
        " 20261120   03:10:00      0    112     41      -\n"
    )
    assert reported(incident, tmp_path / "a" / "dmon.txt", dated, "at_ns, power_w", "gpus") == [
        (AT_NS, 112.0)
    ]
    found = reported(incident, tmp_path / "b" / "pmon.txt", PMON, "gpu, utilisation", "gpus")
    assert found == [(0, 1.0), (0, None), (1, None)]


def test_reasons_of_a_query(tmp_path: Path, incident: Incident) -> None:
    text = (
        "timestamp, pci.bus_id, clocks_event_reasons.active, clocks_event_reasons.hw_slowdown, power.draw [W]\n"
        "2026/11/20 03:10:00.000, 00000000:18:00.0, 0x0000000000000044, Active, 300.00 W\n"
        "2026/11/20 03:10:00.000, 00000000:9B:00.0, [N/A], Not Active, 690.00 W\n"
    )
    found = reported(
        incident, tmp_path / "gpus.csv", text, "gpu, throttle_reasons, power_w", "gpus"
    )
    assert found == [(0, 0x44, 300.0), (1, 0, 690.0)]


def test_what_holds_a_gpus_clocks_down_is_a_finding(tmp_path: Path, incident: Incident) -> None:
    """The first GPU is hot; all draw what they may, which is no sign; and two wait in a kernel."""
    capped = "    Clocks Event Reasons\n        SW Power Cap                      : Active\n"
    sound = QUERY.partition("GPU 00000000:9B")[0].replace(
        "Active\n            HW", "Not Active\n            HW"
    )
    hot = QUERY.partition("GPU 00000000:9B")[0].replace("             : Yes", "             : No")
    other = re.sub("    Clocks Event.*?(?=    FB Mem)", capped, sound, flags=re.DOTALL)
    other = other.partition("GPU 0000")[2].replace("0000:18", "0000:9b").replace(": Yes", ": No")
    text = (
        hot
        + "GPU 0000"
        + other.replace("Minor Number                          : 0", "Minor Number : 1")
    )
    (tmp_path / "gpu7.nvidia-smi-q.txt").write_text(text)
    (tmp_path / "gpu8.dmon.txt").write_text(DMON.replace("      1\n", "      0\n"))
    load([tmp_path], incident)
    found = diagnose(incident, load_rulebooks([shipped_folder()])).findings
    said = {one.verdict: (one.blame[0].where, one.story[-1].say) for one in found if one.blame}
    assert said["GPU_THROTTLED"] == (
        {"node": "gpu7", "gpu": "0000:18:00.0"},
        "gpu7 GPU 0000:18:00.0 (index 0): clocks held down by hardware slowdown, hardware thermal; "
        "SM clock 1200 MHz of 1980.",
    )
    assert "2 of 2 GPUs are busy and draw little power" in said["GPUS_WAIT"][1]
    assert "in 2 readings" in said["GPUS_WAIT"][1]


def test_of_an_excerpt_nobody_knows_the_index(tmp_path: Path, incident: Incident) -> None:
    text = QUERY.replace("Attached GPUs                             : 2", "Attached GPUs : 8")
    text = text.replace("    Minor Number", "    Serial Number")
    assert reported(incident, tmp_path / "nvidia-smi-q.txt", text, "code", "host_events") == [
        ("fabric_not_ready",),
        ("remap_pending",),
    ]
    assert incident.is_empty("gpus") and incident.is_empty("devices")


TABLE = """Fri Nov 20 03:10:00 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:18:00.0 Off |                    2 |
| N/A   41C    P0            118W /  700W |   71000MiB /  81559MiB |    100%      Default |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA H100 80GB HBM3          On  |   00000000:9B:00.0 Off |                 ERR! |
| N/A   ERR!   P0            ERR! / ERR!  |       0MiB /  81559MiB |    ERR!      Default |
+-----------------------------------------+------------------------+----------------------+
"""


def test_the_table_of_nvidia_smi(tmp_path: Path, incident: Incident) -> None:
    columns = "gpu, at_ns, temp_c, power_w, power_limit_w, utilisation, ecc_uncorrected"
    assert reported(incident, tmp_path / "smi.txt", TABLE, columns, "gpus") == [
        (0, AT_NS, 41.0, 118.0, 700.0, 1.0, 2)
    ]
    assert incident.con.execute("SELECT code, device FROM host_events").fetchall() == [
        ("gpu_reset_required", "0000:9b:00.0")
    ]


def test_a_gpu_that_nvidia_smi_cannot_open(tmp_path: Path, incident: Incident) -> None:
    text = "Unable to determine the device handle for GPU0000:03:00.0: Unknown Error\n"
    assert reported(incident, tmp_path / "smi.txt", text, "code, device", "host_events") == [
        ("gpu_unreachable", "0000:03:00.0")
    ]


@pytest.mark.parametrize(
    "text",
    [
        TABLE + "[rank3]: RuntimeError: boom\n",
        TABLE + "Traceback (most recent call last):\n  File 'a.py'\nKeyError: 'x'\n",
        TABLE + "loading\n" * 30 + "done\n" * 10,
        QUERY + "KeyError: 'x'\n",
        "step 1\nRuntimeError: NVML: GPU is lost\n",
        "RuntimeError: NVML: GPU is lost\n",
        "NCCL INFO Bootstrap\n" + "CA 'mlx5_0'\n\tPort 1:\n\t\tState: Down\n",
    ],
)
def test_a_jobs_log_that_begins_with_what_a_tool_prints_is_read_as_a_log(text: str) -> None:
    assert not importer.recognises(Path("slurm-17.out"), text.encode())


def test_the_failure_below_a_table_is_found(tmp_path: Path, incident: Incident) -> None:
    text = TABLE + "step 1 loss 2\nKeyError: 'x'\n"
    assert reported(incident, tmp_path / "slurm-17.out", text, "kind, code", "log_events") == [
        ("error", "KeyError")
    ]


def test_a_wide_gap_in_a_value_costs_little(tmp_path: Path, incident: Incident) -> None:
    line = "    A" + " " * 990 + "!\n"
    assert reported(incident, tmp_path / "q.txt", QUERY + line * 2000, "gpu", "gpus") == [
        (0,),
        (1,),
    ]


CSV = """timestamp, index, pci.bus_id, utilization.gpu [%], power.draw [W], clocks.sm [MHz]
2026/11/20 03:10:00.000, 0, 00000000:18:00.0, 100 %, 120.50 W, 1980 MHz
2026/11/20 03:10:01.000, 0, 00000000:18:00.0, 90 %, 121.50 W, 1980 MHz
2026/11/20 03:10:01.000, 1, 00000000:9B:00.0, [N/A], [Unknown Error], 1980 MHz
"""


def test_queries_of_nvidia_smi_as_csv(tmp_path: Path, incident: Incident) -> None:
    columns = "gpu, at_ns, utilisation, power_w, sm_clock_mhz"
    assert reported(incident, tmp_path / "smi.csv", CSV, columns, "gpus") == [
        (0, AT_NS, 1.0, 120.5, 1980),
        (0, AT_NS + 10**9, 0.9, 121.5, 1980),
        (1, AT_NS + 10**9, None, None, 1980),
    ]


# --------------------------------------------------------------------------- ports

IBSTAT = """CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tFirmware version: 28.39.1002
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
CA 'mlx5_1'
\tCA type: MT4129
\tPort 1:
\t\tState: Initializing
\t\tPhysical state: LinkUp
\t\tRate: 400
"""
DEVINFO = """hca_id:\tmlx5_0
\ttransport:\t\t\tInfiniBand (0)
\tfw_ver:\t\t\t\t28.39.1002
\tphys_port_cnt:\t\t\t1
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_DOWN (1)
\t\t\tactive_width:\t\t4X (2)
\t\t\tactive_speed:\t\t100.0 Gbps (128)
hca_id:\tmlx5_1
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_ACTIVE (4)
\t\t\tactive_width:\t\t4X (2)
\t\t\tactive_speed:\t\t100.0 Gbps (128)
"""
IBSTATUS = """Infiniband device 'mlx5_0' port 1 status:
\tstate:\t\t 4: ACTIVE
\tphys state:\t 5: LinkUp
\trate:\t\t 400 Gb/sec (4X NDR)
"""
LINKS = """link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens1f0np0
link mlx5_1/1 state DOWN physical_state DISABLED
"""
GBPS = 10**9 // 8


@pytest.mark.parametrize(
    ("text", "ports", "codes"),
    [
        (IBSTAT, [("mlx5_0", True, 400 * GBPS), ("mlx5_1", False, None)], ["port_init"]),
        (DEVINFO, [("mlx5_0", False, None), ("mlx5_1", True, 400 * GBPS)], ["port_down"]),
        (IBSTATUS, [("mlx5_0", True, 400 * GBPS)], []),
        (LINKS, [("mlx5_0", True, None), ("mlx5_1", False, None)], ["port_down"]),
        ("mlx5_2 port 1 ==> ib2 (Down)\n", [("mlx5_2", False, None)], ["port_down"]),
    ],
)
def test_ports(
    tmp_path: Path, incident: Incident, text: str, ports: list[Any], codes: list[str]
) -> None:
    columns = "nic, link_up, rate_bytes_per_s"
    assert reported(incident, tmp_path / "ports.txt", text, columns, "nics") == ports
    assert [
        code for (code,) in incident.con.execute("SELECT code FROM host_events").fetchall()
    ] == codes


def ibstat(nic: str, number: int, state: str, physical: str, rate: int, layer: str) -> str:
    heading = f"CA '{nic}'\n\tCA type: MT4129\n\tNumber of ports: 2\n" if number == 1 else ""
    return heading + (
        f"\tPort {number}:\n\t\tState: {state}\n\t\tPhysical state: {physical}\n\t\tRate: {rate}\n"
        f"\t\tBase lid: 4\n\t\tSM lid: 1\n\t\tLink layer: {layer}\n"
    )


@pytest.mark.parametrize(
    ("bad", "found"),
    [
        (("Active", "LinkUp", 400), []),
        (("Down", "Polling", 10), [("mlx5_2/1", "mlx5_2 port 1: state down, Polling, 10 Gb/s; the others run at 400 Gb/s")]),
        (("Initializing", "LinkUp", 400), [("mlx5_2/1", "mlx5_2 port 1: state initializing, LinkUp, 400 Gb/s; the others run at 400 Gb/s")]),
    ],
)  # fmt: skip
def test_of_many_ports_the_one_that_should_be_up_is_named(
    tmp_path: Path, incident: Incident, bad: tuple[str, str, int], found: list[Any]
) -> None:
    """No second port is cabled, and a port for management is of another kind."""
    text = "".join(
        ibstat(f"mlx5_{n}", 1, *(bad if n == 2 else ("Active", "LinkUp", 400)), "InfiniBand")
        + ibstat(f"mlx5_{n}", 2, "Down", "Disabled", 10, "InfiniBand")
        for n in range(8)
    ) + ibstat("mlx5_bond_0", 1, "Down", "Disabled", 25, "Ethernet")
    (tmp_path / "gpu7.ibstat.txt").write_text(text)
    load([tmp_path], incident)
    answer = diagnose(incident, load_rulebooks([shipped_folder()]))
    links = [one for one in answer.faults if one.verdict == "LINK_DOWN"]
    assert [
        (one.blame[0].where["nic"], one.story[-1].say.split(": ", 2)[2].partition(" (")[0])
        for one in links
    ] == found
    assert [one.verdict for one in answer.faults] == ["LINK_DOWN"] * len(found)


# ------------------------------------------------------------------ DCGM and the fabric

DIAG = """Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Deployment  --------+------------------------------------------------|
| Denylist                  | Pass                                           |
|-----  Hardware  ----------+------------------------------------------------|
| GPU Memory                | Fail - GPU: 3                                  |
| Warning                   | GPU 3 uncorrectable errors                     |
|-----  Stress  ------------+------------------------------------------------|
| Targeted Power            | Fail                                           |
| Warning                   | GPU 5 reached 55 W of 700 W                    |
+---------------------------+------------------------------------------------+
"""


def test_dcgm_names_the_gpu_once(tmp_path: Path, incident: Incident) -> None:
    columns = "code, device, line"
    assert reported(incident, tmp_path / "diag.txt", DIAG, columns, "host_events") == [
        ("dcgm_failed", "3", 8),
        ("dcgm_failed", "5", 12),
    ]


FABRIC = """[Nov 20 2026 03:09:00] [INFO] [tid 812] Fabric Manager version 550.54.15 is running
[Nov 20 2026 03:10:00] [ERROR] [tid 812] detected NVSwitch fatal error 20034 on link 48
"""


def test_the_fabric_managers_log(tmp_path: Path, incident: Incident) -> None:
    columns = "at_ns, source, code"
    assert reported(incident, tmp_path / "fabricmanager.log", FABRIC, columns, "host_events") == [
        (AT_NS, "fabricmanager", "fabric_manager")
    ]


def test_the_log_of_imex(tmp_path: Path, incident: Incident) -> None:
    found = reported(incident, tmp_path / "nvidia-imex.log", FABRIC, "source, code", "host_events")
    assert found == [("imex", "imex")]


# ---------------------------------------------------------------------- whose it is


@pytest.mark.parametrize(
    ("paths", "host"),
    [
        (["node01/dmesg.txt"], "node01"),
        (["gpu-017.dmesg.txt"], "gpu-017"),
        (["dmesg-gpu-017.txt"], "gpu-017"),
        (["nvidia-smi-q.ip-10-0-3-17.txt"], "ip-10-0-3-17"),
        (["dmesg_x3006c0s1.log"], "x3006c0s1"),
        (["incident42/dmesg.txt"], None),
        (["r4711/dmesg.txt", "r4712/dmesg.txt"], "r4711"),
        (["ibstat-node01-before.txt"], "node01"),
        (["case/dmesg.2.txt"], None),
        (["case/ibstat.txt"], None),
    ],
)
def test_whose_file_it_is(tmp_path: Path, paths: list[str], host: str | None) -> None:
    places = [tmp_path / path for path in paths]
    assert hosts_of(places)[places[0]] == host


# -------------------------------------------------------------------------- hostile


@settings(deadline=None)
@given(st.text(max_size=400))
def test_any_text_is_recognised_or_not(text: str) -> None:
    importer.recognises(Path("dmesg.txt"), text.encode("utf-8", "replace"))


@pytest.mark.parametrize(
    "text",
    [
        "GPU 00000000:18:00.0\n    Product Name : x\n    a" + " " * 100_000 + "!\n",
        "| NVIDIA-SMI 1 |\n" + "|   0  " + "N " * 50_000 + "\n|\n",
        "CA 'mlx5_0'\n\tPort 99999999999999999999:\n\t\tState: Down\n\t\tRate: 9e999\n",
        "index, pci.bus_id, power.draw [W]\n99999999999, x, 1e999\n-1, , \n0, \x07, nan W\n",
        "[86400.123456] NVRM: Xid (PCI:0000:9b:00): 99999999999999999999, \x1b[31mred\n",
        json.dumps({"__REALTIME_TIMESTAMP": "9" * 4000, "MESSAGE": XID}) + "\n",
        "[Nov 99 2026 03:10:00] [ERROR] [tid 1] x\n",
    ],
)
def test_what_others_made_up_is_read_or_refused(
    tmp_path: Path, incident: Incident, text: str
) -> None:
    path = tmp_path / "dmesg.txt"
    path.write_text(text)
    load([path], incident)
    incident.disbelieve()
    for (said,) in incident.con.execute("SELECT text FROM host_events").fetchall():
        assert said.isprintable()


def test_a_log_is_recognised_by_most_of_its_lines() -> None:
    prose = "We saw this on node 7:\n" + "Some words.\n" * 30 + f"[86400.123456] {XID}\n"
    assert not kernel_log.recognises(prose, "notes.txt")


@pytest.mark.parametrize(
    ("generation", "width", "said"),
    [(5, 16, None), (1, 16, None), (1, 4, "4 of 16 PCIe lanes")],
    ids=["all lanes", "all lanes, idle", "four of sixteen"],
)
def test_a_gpu_with_fewer_pcie_lanes_is_reported(
    tmp_path: Path, incident: Incident, generation: int, width: int, said: str | None
) -> None:
    """The generation drops while a GPU idles, the width does not."""
    path = tmp_path / "gpu017.csv"
    path.write_text(
        "index, pci.bus_id, pcie.link.gen.current, pcie.link.gen.max, pcie.link.width.current, "
        "pcie.link.width.max\n"
        f"0, 00000000:18:00.0, 5, 5, 16, 16\n1, 00000000:9B:00.0, {generation}, 5, {width}, 16\n"
    )
    load([path], incident)
    found = diagnose(incident, load_rulebooks([shipped_folder()])).faults
    assert [one.verdict for one in found] == ([] if said is None else ["HOST_HARDWARE"])
    assert said is None or said in str(found[0].story)
