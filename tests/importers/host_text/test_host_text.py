"""Text of hosts, as kernels and tools print it: rows as the collectors', and whose host it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.importers.host_text.host_files import XID

from oncall.evidence.incident import Incident
from oncall.importers.detect import load
from oncall.importers.host_names import hosts_of
from oncall.importers.host_text import importer


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
