"""What DCGM, the fabric manager and IMEX say."""

from __future__ import annotations

from pathlib import Path

from tests.importers.host_text.host_files import AT_NS, reported

from oncall.evidence.incident import Incident

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


LINKS = """+----------------------+
|  NvLink Link Status  |
+----------------------+
GPUs:
    gpuId 0:
        U U U U
    gpuId 1:
        U D U D
NvSwitches:
    No NvSwitches found.

Key: Up=U, Down=D, Disabled=X, Not Supported=_
"""


def test_links_that_dcgm_shows_down(tmp_path: Path, incident: Incident) -> None:
    columns = "code, device, text, line"
    assert reported(incident, tmp_path / "dcgmi.txt", LINKS, columns, "host_events") == [
        ("nvlinks_down", "1", "2 links of GPU 1 are down, 2 are up", 8)
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


def test_a_test_of_dcgm_that_is_called_after_the_gpu_is_no_detail(
    tmp_path: Path, incident: Incident
) -> None:
    rule = "+---------------------------+----------------------------------+\n"
    table = f"""{rule}| Diagnostic                | Result                           |
{rule}| PCIe                      | Pass - All                       |
| GPU Memory                | Pass - GPUs: 0, 1                |
|                           | Fail - GPU: 2                    |
{rule}"""
    found = reported(incident, tmp_path / "diag.txt", table, "device, text", "host_events")
    assert found == [("2", "GPU Memory: Fail - GPU: 2")]
