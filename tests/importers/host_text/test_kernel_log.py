"""Kernel logs and journals, as rows of the collectors, and what they tell."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from tests.importers.host_text.host_files import AT_NS, XID, events, reported

from oncall.evidence.codes.kernel_lines import WORDS
from oncall.evidence.incident import Incident
from oncall.importers.detect import load
from oncall.importers.host_text import kernel_log

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
        (f"<4>1 2026-11-20T03:10:00.000Z gpu7 kernel - - - {XID}", "gpu7", AT_NS),
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


def test_a_log_is_recognised_by_most_of_its_lines() -> None:
    prose = "We saw this on node 7:\n" + "Some words.\n" * 30 + f"[86400.123456] {XID}\n"
    assert not kernel_log.recognises(prose, "notes.txt")
