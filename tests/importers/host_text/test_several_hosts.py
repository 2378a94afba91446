"""One file with the text of several hosts, and what tools print instead of their GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oncall.evidence.incident import Incident
from oncall.importers.detect import load
from oncall.importers.host_text.sections import sections

PORT = """CA 'mlx5_0'
\tCA type: MT4129
\tPort 1:
\t\tState: {}
\t\tPhysical state: LinkUp
\t\tRate: {}
\t\tLink layer: InfiniBand
"""
NO_GPU = "No devices were found"
NO_DRIVER = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
LOST = "Unable to determine the device handle for GPU0000:9B:00.0: Unknown Error"


def rows(incident: Incident, path: Path, text: str, columns: str, table: str) -> list[Any]:
    path.write_text(text)
    load([path], incident)
    return incident.con.execute(f"SELECT {columns} FROM {table} ORDER BY ALL").fetchall()


def of(text: str) -> dict[str | None, list[str]]:
    return {one.host: one.lines for one in sections(text.split("\n"))}


@pytest.mark.parametrize(
    "text",
    [
        "gpu001: up\ngpu002: down\n",
        "== gpu001\nup\n== gpu002\ndown",
        "=== gpu001 ===\nup\n=== gpu002 ===\ndown",
        "==> gpu001.ibstat.txt <==\nup\n==> gpu002.ibstat.txt <==\ndown",
        "-------\ngpu001\n-------\nup\n-------\ngpu002\n-------\ndown",
        "gpu001 | CHANGED | rc=0 >>\nup\ngpu002 | CHANGED | rc=0 >>\ndown",
        "root@gpu001:~# ibstat\nup\nroot@gpu002:~# ibstat\ndown",
        "[root@gpu001 ~]# ibstat\nup\n[root@gpu002 ~]# ibstat\ndown",
    ],
)
def test_each_host_has_its_lines(text: str) -> None:
    assert of(text) == {"gpu001": ["up"], "gpu002": ["down"]}


def test_hosts_that_print_the_same_are_folded() -> None:
    hosts = ("gpu001", "gpu002", "gpu003")
    assert of("----\ngpu[001-003]\n----\nup") == {host: ["up"] for host in hosts}


@pytest.mark.parametrize(
    "text",
    [
        "eth0: link is down\neth1: link is down",
        "CPU0: Core temperature above threshold\nCPU1: Core temperature above threshold",
        "==============NVSMI LOG==============\nAttached GPUs : 8",
        "[root@gpu001",
    ],
)
def test_lines_of_one_host_stay_together(text: str) -> None:
    assert list(of(text)) == [None]


def test_ports_of_several_hosts_behind_prefixes(tmp_path: Path, incident: Incident) -> None:
    text = "".join(
        f"{host}: {line}\n"
        for host, state, rate in (("gpu001", "Active", 400), ("gpu002", "Down", 10))
        for line in PORT.format(state, rate).splitlines()
    )
    path = tmp_path / "ibstat_all.txt"
    assert rows(incident, path, text, "node, nic, link_up", "nics") == [
        ("gpu001", "mlx5_0", True),
        ("gpu002", "mlx5_0", False),
    ]
    events = incident.con.execute("SELECT node, code, line FROM host_events").fetchall()
    assert events == [("gpu002", "port_down", 11)]  # the line of its state in the file


def test_what_nvidia_smi_prints_instead_of_gpus(tmp_path: Path, incident: Incident) -> None:
    text = (
        f"gpu1: GPU 0: NVIDIA H100 (UUID: GPU-1)\ngpu2: {NO_GPU}\ngpu3: {NO_DRIVER}\ngpu4: {LOST}\n"
    )
    found = rows(incident, tmp_path / "smi.txt", text, "node, code, device, line", "host_events")
    assert found == [
        ("gpu2", "gpus_absent", None, 2),
        ("gpu3", "driver_down", None, 3),
        ("gpu4", "gpu_unreachable", "0000:9b:00.0", 4),
    ]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (NO_GPU, "gpus_absent"),
        (NO_DRIVER, "driver_down"),
        (LOST, "gpu_unreachable"),
        (LOST.replace("Unknown Error", "GPU is lost.  Reboot the system"), "gpu_lost"),
        ("Failed to initialize NVML: Driver/library version mismatch", "driver_mismatch"),
        ("Failed to initialize NVML: Unknown Error", "nvml_failed"),
    ],
)
def test_a_line_alone_is_enough(text: str, code: str, tmp_path: Path, incident: Incident) -> None:
    found = rows(incident, tmp_path / "gpu7.nvidia-smi.txt", text, "node, code", "host_events")
    assert found == [("gpu7", code)]


SINFO_R = """REASON               USER      TIMESTAMP           NODELIST
Not responding       slurm     2026-11-27T02:51:14 gpu017
Kill task failed     root      2026-11-27T02:58:02 gpu[031-032]
"""
SINFO_N = """Fri Nov 27 03:05:11 2026
NODELIST   NODES PARTITION       STATE CPUS    S:C:T MEMORY REASON
gpu001         1      h100   allocated 192   2:48:2 2063838 none
gpu017         1      h100       down* 192   2:48:2 2063838 Not responding
gpu031         1      h100    draining 192   2:48:2 2063838 Kill task failed
"""
SINFO = """PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
h100*        up   infinite      1  down* gpu017
h100*        up   infinite     50  alloc gpu[001-016]
"""
SCONTROL = """NodeName=gpu044 Arch=x86_64 CoresPerSocket=48
   State=IDLE+DRAIN ThreadsPerCore=2 TmpDisk=0 Weight=1
   Reason=gres/gpu count reported lower than configured (7 < 8) [slurm@2026-11-27T02:51:14]
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            SINFO_R,
            [
                ("gpu017", "node_down", "Not responding", True),
                ("gpu031", "node_drained", "Kill task failed", True),
                ("gpu032", "node_drained", "Kill task failed", True),
            ],
        ),
        (
            SINFO_N,
            [
                ("gpu017", "node_down", "Not responding", False),
                ("gpu031", "node_drained", "Kill task failed", False),
            ],
        ),
        (SINFO, [("gpu017", "node_down", "state down*", False)]),
        (
            SCONTROL,
            [
                (
                    "gpu044",
                    "node_drained",
                    "gres/gpu count reported lower than configured (7 < 8)",
                    True,
                )
            ],
        ),
        (SCONTROL.replace("IDLE+DRAIN", "ALLOCATED").partition("   Reason")[0], []),
    ],
)
def test_nodes_that_slurm_takes_out_of_use(
    text: str, expected: list[Any], tmp_path: Path, incident: Incident
) -> None:
    columns = "node, code, text, at_ns IS NOT NULL"
    assert rows(incident, tmp_path / "slurm.txt", text, columns, "host_events") == expected


PS = "PID STAT WCHAN COMMAND\n41 D rpc_wait_bit_killable train"
NFS = "[86400.123456] nfs: server fs2 not responding, still trying"
GPUS = "index, pcie.link.width.current, pcie.link.width.max\n0, 16, 16\n3, 4, 16"


@pytest.mark.parametrize(
    ("prompt", "host"), [("root@gpu001:~# ", "gpu001"), ("$ ", None)], ids=["host", "bare"]
)
def test_each_command_of_a_paste_is_read_as_what_it_printed(
    prompt: str, host: str | None, tmp_path: Path, incident: Incident
) -> None:
    text = f"{prompt}ps -eo pid,stat,wchan,cmd\n{PS}\n{prompt}dmesg | tail\n{NFS}\n"
    text += f"{prompt}nvidia-smi --query-gpu=index --format=csv\n{GPUS}\n"
    found = rows(incident, tmp_path / "paste.txt", text, "code, node, line", "host_events")
    assert found == [("storage_stalled", host, 5), ("storage_waits", host, 3)]
    widths = incident.con.execute("SELECT gpu, pcie_width FROM gpus ORDER BY gpu").fetchall()
    assert widths == [(0, 16), (3, 4)]
