# ruff: noqa: E501 - what tools print, column by column
"""What nvidia-smi prints, in all its forms, as rows of the collectors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.importers.host_text.host_files import AT_NS, reported

from oncall.evidence.incident import Incident
from oncall.importers.detect import load
from oncall.importers.host_text import importer
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.diagnose import diagnose

QUERY = """
==============NVSMI LOG==============

Timestamp                                 : Fri Nov 20 03:10:00 2026
Driver Version                            : 550.54.15
CUDA Version                              : 12.4

Attached GPUs                             : 2
GPU 00000000:18:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Serial Number                         : 1650923001234
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
        ("gpu7", "remap_pending", "0000:18:00.0", 50),
        ("gpu7", "fabric_not_ready", "0000:9b:00.0", 67),
    ]
    devices = "SELECT device, pci_bus, serial FROM devices ORDER BY 1"
    assert incident.con.execute(devices).fetchall() == [
        ("0", "0000:18:00.0", "1650923001234"),
        ("1", "0000:9b:00.0", None),
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


RETIRED = """
==============NVSMI LOG==============

Timestamp                                 : Fri Nov 20 03:10:00 2026
Attached GPUs                             : 2
GPU 00000000:18:00.0
    Retired Pages
        Single Bit ECC                    : 3
        Double Bit ECC                    : {double}
        Pending Page Blacklist            : {pending}

GPU 00000000:9B:00.0
    Retired Pages
        Single Bit ECC                    : 0
        Double Bit ECC                    : 0
        Pending Page Blacklist            : No
"""


@pytest.mark.parametrize(
    ("double", "pending", "codes"),
    [
        ("2", "Yes", [("pages_pending", "0000:18:00.0", 10)]),
        ("0", "Yes", [("retirement_pending", "0000:18:00.0", 10)]),
        ("2", "No", []),
    ],
)
def test_pages_that_wait_to_be_retired(
    tmp_path: Path, incident: Incident, double: str, pending: str, codes: list[object]
) -> None:
    text = RETIRED.format(double=double, pending=pending)
    columns = "code, device, line"
    found = reported(incident, tmp_path / "nvidia-smi-q.txt", text, columns, "host_events")
    assert found == codes
