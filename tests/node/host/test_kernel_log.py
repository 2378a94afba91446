"""The kernel log: what each line says, in which order, and what a log that lies cannot do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sql import found

from oncall.evidence.codes.event_catalogue import KERNEL, MEANINGS
from oncall.evidence.codes.kernel_lines import CODES, known_line
from oncall.evidence.incident import Incident
from oncall.node.common.source import Collected, Instant
from oncall.node.host import kernel_log
from oncall.node.host.kernel_log import KernelLogSource, parse_records

S = 10**9
NOW = Instant(1_800_000_000 * S, 5000 * S)
LINES = [
    (
        "NVRM: Xid (PCI:0000:18:00): 79, pid=1896, name=python, GPU has fallen off the bus.",
        ("xid_79", "0000:18:00.0"),
    ),
    ("NVRM: Xid (0000:01:00): 31, Ch 0000000b, engmask 00000120", ("xid_31", "0000:01:00.0")),
    (
        "NVRM: Xid (PCI:0000:c8:00 GPU-I:03): 43, pid=9, name=python, Ch 00000008",
        ("xid_43", "0000:c8:00.0"),
    ),
    (
        "NVRM: GPU 0000:18:00.0: RmInitAdapter failed! (0x24:0xffff:1220)",
        ("gpu_init_failed", "0000:18:00.0"),
    ),
    (
        "amdgpu 0000:46:00.0: amdgpu: {1}socket: 4, die: 0, 2 new uncorrectable hardware errors "
        "detected in umc block",
        ("gpu_ecc", "0000:46:00.0"),
    ),
    ("amdgpu 0000:46:00.0: amdgpu: 3 correctable hardware errors detected in umc block", None),
    ("amdgpu 0000:46:00.0: amdgpu: 0 uncorrectable hardware errors detected in umc block", None),
    (
        "amdgpu 0000:c5:00.0: amdgpu: ring sdma0 timeout, signaled seq=81, emitted seq=83",
        ("gpu_hung", "0000:c5:00.0"),
    ),
    ("amdgpu 0000:c5:00.0: amdgpu: ring sdma0 timeout, but soft recovered", None),
    ("amdgpu 0000:c5:00.0: amdgpu: GPU reset begin!", ("gpu_reset", "0000:c5:00.0")),
    (
        "amdgpu 0000:c5:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:8)",
        ("gpu_page_fault", "0000:c5:00.0"),
    ),
    (
        "mlx5_core 0000:41:00.0: mlx5_pcie_event:299:(pid 7): Detected insufficient power on the "
        "PCIe slot (27W).",
        ("nic_power", "0000:41:00.0"),
    ),
    ("ena 0000:00:05.0: Keep alive watchdog timeout.", ("nic_health", "0000:00:05.0")),
    (
        "xe 0000:4d:00.0: [drm] Tile0: GT1: Timedout job: seqno=51, lrc_seqno=51, guc_id=3, "
        "flags=0x0 in python3 [4711]",
        ("gpu_hung", "0000:4d:00.0"),
    ),
    (
        "xe 0000:4d:00.0: [drm] Tile0: GT1: Check job timeout: seqno=51, guc_id=3, not started",
        None,
    ),
    ("xe 0000:4d:00.0: [drm] Tile0: GT1: reset started", ("gpu_reset", "0000:4d:00.0")),
    ("xe 0000:4d:00.0: [drm] Tile0: GT1: reset done", None),
    (
        "xe 0000:4d:00.0: [drm] CRITICAL: Xe has declared device 0000:4d:00.0 as wedged.",
        ("gpu_reset_required", "0000:4d:00.0"),
    ),
    (
        "i915 0000:03:00.0: [drm] GPU HANG: ecode 12:1:85dffffb, in python3 [812]",
        ("gpu_hung", "0000:03:00.0"),
    ),
    (
        "i915 0000:03:00.0: [drm] Resetting chip for stopped heartbeat on rcs0",
        ("gpu_reset", "0000:03:00.0"),
    ),
    ("BUG: kernel NULL pointer dereference, address: 0000000000000010", ("oops", None)),
    ("Oops: 0000 [#1] SMP NOPTI", ("oops", None)),
    ("Internal error: Oops: 0000000096000004 [#2] SMP", ("oops", None)),
    ("usb 1-1: new device [#1]", None),
    ("VFS: file-max limit 9223372036854 reached", ("file_limit", None)),
    (
        "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping "
        "further processing",
        ("peer_memory", None),
    ),
    ("EXT4-fs error (device nvme0n1p2): ext4_find_entry:1463: inode #2", ("io_error", "nvme0n1p2")),
    ("nvme nvme3: controller is down; will reset: CSTS=0xffffffff", ("io_error", "nvme3")),
    ("ib2: Lost carrier", ("link_down", "ib2")),
    ("ib2: Gained carrier", ("link_up", "ib2")),
    (
        "<info>  [1763607000.1234] device (ens5f0): carrier: link disconnected",
        ("link_down", "ens5f0"),
    ),
    ("bnxt_en 0000:19:00.0 ens5f0np0: NIC Link is Down", ("link_down", "0000:19:00.0")),
    ("Kernel panic - not syncing: Fatal hardware error!", ("panic", None)),
    ("NVRM: GPU 0000:09:00.0: GPU has fallen off the bus.", ("gpu_lost", "0000:09:00.0")),
    (
        "NVRM: The NVIDIA GPU 0000:b3:00.0 NVRM: (PCI ID: 10de:26b5) installed in this system "
        "has NVRM: fallen off the bus and is not responding to commands.",
        ("gpu_lost", "0000:b3:00.0"),
    ),
    (
        "nvidia-nvswitch3: SXid (PCI:0000:07:00.0): 12028, Non-fatal, Link 32 egress error",
        ("sxid_12028", "0000:07:00.0"),
    ),
    ("mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN", ("link_down", "0000:ab:00.0")),
    ("mlx5_core 0000:0c:00.0 ens1f0np0: Link up", ("link_up", "0000:0c:00.0")),
    ("mlx5_core 0000:0c:00.0 ens1f0np0: Link down", ("link_down", "0000:0c:00.0")),
    ("igb 0000:01:00.0 eth0: igb: eth0 NIC Link is Down", ("link_down", "0000:01:00.0")),
    ("e1000e: eth0 NIC Link is Down", ("link_down", "eth0")),
    (
        "bnxt_en 0000:c1:00.0 eth0: NIC Link is Up, 100000 Mbps full duplex",
        ("link_up", "0000:c1:00.0"),
    ),
    (
        "mlx5_core 0000:01:00.0: mlx5_pcie_event:301: Port module event: module 0, Cable unplugged",
        ("cable_unplugged", "0000:01:00.0"),
    ),
    (
        "mlx5_core 0000:01:00.0: Port module event[error]: module 0, Cable error, Power budget",
        ("cable_error", "0000:01:00.0"),
    ),
    (
        "mlx5_core 0000:01:00.0: temp_warn:185: High temperature on sensors with bit set 0 1",
        ("nic_hot", "0000:01:00.0"),
    ),
    (
        "mlx5_core 0000:01:00.0: poll_health:955:(pid 0): Fatal error 1 detected",
        ("nic_health", "0000:01:00.0"),
    ),
    (
        "mlx5_core 0000:01:00.0: wait_func: QUERY_Q timeout. Will cause a leak of a command "
        "resource",
        ("nic_command_timeout", "0000:01:00.0"),
    ),
    (
        "NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 3 timed out",
        ("nic_queue_timeout", "eth0"),
    ),
    (
        "pcieport 0000:00:03.1: PCIe Bus Error: severity=Correctable, type=Data Link Layer",
        ("aer_corrected", "0000:00:03.1"),
    ),
    (
        "pcieport 0000:00:03.1: AER: PCIe Bus Error: severity=Corrected, type=Physical Layer",
        ("aer_corrected", "0000:00:03.1"),
    ),
    (
        "nvidia 0000:18:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction",
        ("aer_uncorrected", "0000:18:00.0"),
    ),
    (
        "nvidia 0000:18:00.0: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link",
        ("aer_fatal", "0000:18:00.0"),
    ),
    (
        "mlx5_core 0000:18:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe "
        "x8 link at 0000:17:00.0 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)",
        ("pcie_bandwidth", "0000:18:00.0"),
    ),
    ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1", ("edac_corrected", "MC0")),
    ("EDAC skx MC2: 1 UE memory scrubbing error on unknown memory", ("edac_uncorrected", "MC2")),
    ("Memory failure: 0x12345: recovery action for dirty LRU page", ("memory_failure", None)),
    ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: 8c0000400", ("machine_check", None)),
    ("mce: [Hardware Error]: Machine check events logged", ("machine_check_logged", None)),
    ("mce: CPU3: Core temperature above threshold, cpu clock throttled", ("cpu_hot", None)),
    ("Memory cgroup out of memory: Killed process 4321 (python) total-vm:1kB", ("oom", "4321")),
    ("INFO: task nvidia-smi:99 blocked for more than 120 seconds.", ("hung_task", "99")),
    ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:1234]", ("soft_lockup", "CPU#3")),
    ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 3", ("hard_lockup", None)),
    ("rcu: INFO: rcu_sched self-detected stall on CPU", ("cpu_stall", None)),
    ("python[123]: segfault at 0 ip 00007f sp 00007f error 4 in libc.so", ("segfault", "123")),
    ("blk_update_request: I/O error, dev nvme0n1, sector 1234", ("io_error", "nvme0n1")),
    ("nfs: server storage1 OK", ("storage_answers", "storage1")),
    ("nfs: server storage1 not responding, still trying", ("storage_stalled", "storage1")),
    # The same words where nothing is wrong, or what follows tells it better.
    ("mlx5_core 0000:01:00.0: Port module event: module 0, Cable plugged", None),
    ("pcieport 0000:00:03.1: AER: Multiple Correctable error message received", None),
    ("EDAC i10nm: No hbm memory", None),
    ("Linux version 6.18.44", None),
    ('audit: exe="NVRM: Xid (PCI:0000:18:00): 79, forged"', None),
    ("", None),
]


@pytest.mark.parametrize(("line", "said"), LINES)
def test_lines_as_kernels_print_them(line: str, said: tuple[str, str | None] | None) -> None:
    known = known_line(line)
    assert (None if known is None else (known.code, known.device)) == said


def test_every_code_has_an_example_and_a_meaning() -> None:
    shown = {said[0].split("_", 1)[0] if "xid" in said[0] else said[0] for _, said in LINES if said}
    assert shown == CODES
    assert CODES - {"xid"} <= KERNEL.keys()


@given(st.text(max_size=300))
def test_any_text_is_read_and_costs_little(text: str) -> None:
    known_line(text)
    known_line(f"NVRM: Xid (PCI:0000:18:00): {text}")


@given(st.binary(max_size=300))
def test_any_bytes_are_records_or_none(reported: bytes) -> None:
    for record in parse_records(reported):
        assert record.sequence >= 0
        assert record.text.isprintable()


class Log:
    """/dev/kmsg of a fixture tree, as a pipe."""

    def __init__(self, root: Path) -> None:
        (root / "dev").mkdir()
        self._path = root / "dev/kmsg"
        os.mkfifo(self._path)
        self.source = KernelLogSource(root, "gpu017", S)
        self.source.collect(NOW)  # a pipe is written only to who has opened it
        self._fd = os.open(self._path, os.O_WRONLY)

    def say(self, sequence: int, text: str, at_s: float = 5000) -> None:
        os.write(self._fd, f"4,{sequence},{int(at_s * 1e6)},-;{text}\n".encode())

    def close(self) -> None:
        self.source.close()
        os.close(self._fd)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = Log(tmp_path)
    yield log
    log.close()


def _rows(collected: Collected) -> list[tuple[object, ...]]:
    return [
        row
        for batch in collected.batches
        for row in zip(*(batch.columns[name] for name in ("code", "device", "at_ns")), strict=True)
    ]


def _later(seconds: float) -> Instant:
    return Instant(NOW.realtime_ns + int(seconds * S), NOW.monotonic_ns + int(seconds * S))


def test_faults_become_rows_and_the_rest_does_not(log: Log) -> None:
    log.say(1, "usb 1-1: new device", 5001)
    log.say(
        2, "NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen\\x0aoff \\x1b[2J\n SUBSYSTEM=pci", 5002
    )
    collected = log.source.collect(_later(3))
    assert _rows(collected) == [("xid_79", "0000:18:00.0", NOW.realtime_ns + 2 * S)]
    (text,) = collected.batches[0].columns["text"]
    assert text == "NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off  [2J"
    assert log.source.collect(_later(4)).batches == []


def test_history_read_in_pieces_is_not_taken_for_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"4,{n},{4000 + n}000000,-;e1000e: eth{n} NIC Link is Down\n" for n in range(1, 5)]
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").write_text("".join(lines))
    monkeypatch.setattr(kernel_log, "_RECORD_BYTES", len(lines[0]))
    monkeypatch.setattr(kernel_log, "_MOST_RECORDS", 3)
    source = KernelLogSource(tmp_path, "gpu017", S)
    first, second = source.collect(NOW), source.collect(_later(1))
    ages = [(NOW.realtime_ns - at_ns) // S for _, _, at_ns in (*_rows(first), *_rows(second))]
    assert (len(_rows(first)), ages) == (3, [999, 998, 997, 996])


def test_a_flood_is_cut_and_counted(log: Log) -> None:
    for sequence in range(100):
        log.say(sequence, "e1000e: eth0 NIC Link is Down")
    log.say(100, "e1000e: eth1 NIC Link is Down")
    collected = log.source.collect(_later(1))
    devices = [device for _, device, _ in _rows(collected)]
    assert devices == ["eth0"] * 10 + ["eth1"]
    assert collected.dropped == 90
    log.say(101, "e1000e: eth0 NIC Link is Down")
    assert len(_rows(log.source.collect(_later(61)))) == 1


def test_records_overwritten_before_they_were_read_are_counted(log: Log) -> None:
    log.say(7, "e1000e: eth0 NIC Link is Down")
    assert log.source.collect(_later(1)).dropped == 0
    log.say(12, "e1000e: eth0 NIC Link is Up")
    collected = log.source.collect(_later(2))
    assert (collected.dropped, len(_rows(collected))) == (4, 1)


def test_history_is_reported_for_an_hour_only(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").write_text(
        "4,1,1000000000,-;e1000e: eth0 NIC Link is Down\n"  # 4,000 s ago
        "4,2,4000000000,-;e1000e: eth1 NIC Link is Down\n"
    )
    collected = KernelLogSource(tmp_path, "gpu017", S).collect(NOW)
    assert _rows(collected) == [("link_down", "eth1", NOW.realtime_ns - 1000 * S)]


def test_without_a_log_it_says_so(tmp_path: Path) -> None:
    collected = KernelLogSource(tmp_path, "gpu017", S).collect(NOW)
    assert collected.batches == []
    assert "no kernel log" in collected.notes[0]


def test_meanings_are_joined_by_code() -> None:
    incident = Incident.empty()
    codes = [*MEANINGS, "sxid_12028", "xid_999", "no_such_code"]
    incident.append("host_events", {"node": ["n"] * len(codes), "code": codes})
    rows = found(incident, "event_meanings", "code, part, weight, meaning")
    meanings = {code: rest for code, *rest in rows}
    assert meanings.keys() == {*codes} - {"no_such_code"}
    assert meanings["xid_79"] == ["gpu", "fault", "the GPU has fallen off the PCIe bus"]
    assert meanings["sxid_12028"][0] == "nvlink"
    assert meanings["xid_999"][:2] == ["gpu", "warning"]
