"""Training processes as the kernel treats them: quotas, affinity, waiting, and what is hidden."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ring_writer import RingWriter

from oncall.node.common.source import Collected, Instant
from oncall.node.host.host_processes import (
    ControlGroups,
    CpuLimit,
    HostProcessSource,
    Machine,
    read_place,
    reading,
)

S = 10**9
NOW = Instant(1_800_000_000 * S, 5000 * S)
STAT = "77 (odd) name) S 1 1 1 0 -1 0 10 0 42 0 150 50 0 0 20 0 9 0 100 0 250"
STATUS = """\
Name:	python
VmSwap:	       4 kB
Cpus_allowed:	ff
Cpus_allowed_list:	0-5,16-31
"""


def write(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.fixture
def ring(rings: Path) -> RingWriter:
    """This very process as rank 3 of a job."""
    return RingWriter(rings, 3)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    process = f"proc/{os.getpid()}"
    write(root, f"{process}/stat", STAT)
    write(root, f"{process}/status", STATUS)
    write(root, f"{process}/schedstat", "5000 7000 12\n")
    write(root, f"{process}/io", "rchar: 9\nread_bytes: 4096\nwrite_bytes: 1\n")
    write(root, f"{process}/cgroup", "0::/kubepods/pod1/main\n")
    write(root, "sys/devices/system/cpu/online", "0-7\n")
    write(root, "sys/devices/system/node/node0/cpulist", "0-3\n")
    write(root, "sys/devices/system/node/node1/cpulist", "4-7\n")
    groups = "sys/fs/cgroup"
    write(root, f"{groups}/kubepods/cpu.max", "max 100000\n")
    write(root, f"{groups}/kubepods/pod1/cpu.max", "800000 100000\n")
    write(root, f"{groups}/kubepods/pod1/cpu.stat", "nr_throttled 3\nthrottled_usec 70\n")
    write(root, f"{groups}/kubepods/pod1/main/cpu.max", "max 100000\n")
    write(root, f"{groups}/kubepods/pod1/main/cpu.stat", "nr_throttled 0\nthrottled_usec 5\n")
    return root


def rows(collected: Collected) -> list[dict[str, Any]]:
    return [
        {name: values[place] for name, values in batch.columns.items()}
        for batch in collected.batches
        for place in range(batch.rows)
    ]


@pytest.mark.usefixtures("ring")
def test_a_process_as_its_host_sees_it(root: Path, rings: Path) -> None:
    collected = HostProcessSource(root, rings, "gpu017", S).collect(NOW)
    tick_ns = S // os.sysconf("SC_CLK_TCK")
    assert rows(collected) == [
        {
            "node": "gpu017",
            "job": "llama",
            "rank": 3,
            "pid": os.getpid(),
            "at_ns": NOW.realtime_ns,
            "cpu_ns": 200 * tick_ns,
            "waited_ns": 7000,
            "cpu_quota": 8.0,
            "throttled_ns": 75_000,
            "cpus_allowed": 6,
            "numa_nodes": [0, 1],
            "major_faults": 42,
            "rss_bytes": 250 * os.sysconf("SC_PAGE_SIZE"),
            "swap_bytes": 4096,
            "read_bytes": 4096,
            "threads": 9,
            "state": "S",
            "blocked_in": None,
            "still_ns": None,
        }
    ]
    assert collected.notes == ()


@pytest.mark.usefixtures("ring")
def test_what_may_not_be_read_is_null(root: Path, rings: Path) -> None:
    process = root / "proc" / str(os.getpid())
    for name in ("io", "schedstat", "cgroup", "status"):
        (process / name).unlink()
    (row,) = rows(HostProcessSource(root, rings, "gpu017", S).collect(NOW))
    shown = {name for name, value in row.items() if value is not None}
    from_stat = {"cpu_ns", "major_faults", "rss_bytes", "state", "threads"}
    assert shown == {"node", "job", "rank", "pid", "at_ns"} | from_stat


def stat(state: str, ticks: int) -> str:
    return f"77 (python) {state} 1 1 1 0 -1 0 10 0 42 0 {ticks} 0 0 0 20 0 9 0 100 0 250"


@pytest.mark.usefixtures("ring")
@pytest.mark.parametrize(
    ("what", "path", "text"),
    [
        ("it uses CPU time", "stat", stat("S", 60)),
        ("it waits for a device", "stat", stat("D", 50)),
        ("it reads", "io", "read_bytes: 9000\n"),
        ("its child uses CPU time", "../78/stat", stat("S", 10)),
    ],
)
def test_a_process_that_does_anything_does_not_rest(
    root: Path, rings: Path, what: str, path: str, text: str
) -> None:
    process = root / "proc" / str(os.getpid())
    source = HostProcessSource(root, rings, "gpu017", S)

    def still_s(after_s: int) -> float | None:
        (row,) = rows(source.collect(Instant(0, NOW.monotonic_ns + after_s * S)))
        return None if row["still_ns"] is None else row["still_ns"] / S

    write(process, "stat", stat("S", 50))
    write(process, f"task/{os.getpid()}/children", "78 ")
    write(process, "wchan", "futex_do_wait")
    write(root, "proc/78/stat", stat("S", 5))
    assert [still_s(at) for at in (0, 1, 2, 5)] == [None, 1, 2, 5]
    write(process, path, text)
    assert still_s(6) is None, what
    for at in (7, 8):
        write(process, "stat", stat("S", 60))
        still = still_s(at)
    assert still in (1, 2), "and rests again"


@pytest.mark.parametrize("stat", [None, "", "77 (python", "77 (python) S 1 2"])
@pytest.mark.usefixtures("ring")
def test_a_process_that_is_hidden_or_just_died_has_no_row(
    root: Path, rings: Path, stat: str | None
) -> None:
    file = root / "proc" / str(os.getpid()) / "stat"
    file.unlink()
    if stat is not None:
        file.write_text(stat)
    collected = HostProcessSource(root, rings, "gpu017", S).collect(NOW)
    assert collected.batches == []
    assert "hidepid" in collected.notes[0]


# ------------------------------------------------------------------ control groups


def test_the_least_quota_above_counts_in_v1_too(tmp_path: Path) -> None:
    mount = "sys/fs/cgroup/cpu,cpuacct"
    for group, quota in (("", -1), ("/slurm", 1_600_000), ("/slurm/job", -1), ("/slurm/step", 400)):
        write(tmp_path, f"{mount}{group}/cpu.cfs_quota_us", f"{quota}\n")
        write(tmp_path, f"{mount}{group}/cpu.cfs_period_us", "100000\n")
        write(tmp_path, f"{mount}{group}/cpu.stat", "nr_periods 1\nthrottled_time 9\n")
    (tmp_path / "sys/fs/cgroup/cpu").symlink_to("cpu,cpuacct")  # as distributions do
    groups = ControlGroups(tmp_path)
    membership = "5:memory:/slurm/step\n3:cpu,cpuacct:/slurm/job\n0::/\n"
    assert groups.cpu_limit(membership) == CpuLimit(16.0, 27)
    assert groups.cpu_limit("3:cpu,cpuacct:/") == CpuLimit(None, 9)


@pytest.mark.parametrize(
    "membership",
    [None, "", "garbage", "0::", "0::/../../elsewhere", "3:cpu:/a\0b", "0::/\xff", "::::"],
)
def test_groups_that_cannot_be_seen_limit_nothing(tmp_path: Path, membership: str | None) -> None:
    write(tmp_path, "etc/cpu.max", "1 100000\n")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    assert ControlGroups(tmp_path).cpu_limit(membership) == CpuLimit(None, None)


@pytest.mark.parametrize("most", ["", "max", "max 100000", "-1 100000", "5 0", "a b", "0 100000"])
def test_what_is_no_quota(tmp_path: Path, most: str) -> None:
    write(tmp_path, "sys/fs/cgroup/job/cpu.max", most)
    assert ControlGroups(tmp_path).cpu_limit("0::/job").quota is None


@pytest.fixture
def quota_of_two() -> Iterator[Path]:
    """A real control group whose processes may use two CPUs together, in v2 or v1."""
    for mount, file, text in (
        ("/sys/fs/cgroup", "cpu.max", "200000 100000"),
        ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "200000"),
    ):
        group = Path(mount, f"oncall-test-{os.getpid()}")
        if not (Path(mount) / "cgroup.procs").exists():
            continue
        with suppress(OSError):
            group.mkdir()
            try:
                (group / file).write_text(text)
                yield group
                return
            finally:
                group.rmdir()
    pytest.skip("no control group can be made here: needs root and a cpu controller")


def test_a_real_quota(quota_of_two: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        (quota_of_two / "cgroup.procs").write_text(str(child.pid))
        membership = Path(f"/proc/{child.pid}/cgroup").read_text()
        limit = ControlGroups(Path("/")).cpu_limit(membership)
        child.communicate(b"\n")
    assert limit.quota == 2.0
    assert limit.throttled_ns is not None


# ------------------------------------------------------------------------- garbage


@given(text=st.text(max_size=200), number=st.integers(-(2**70), 2**70))
def test_garbage_is_never_a_crash_nor_a_number_too_large(
    tmp_path_factory: pytest.TempPathFactory, text: str, number: int
) -> None:
    """What is reported of a process fits its columns, whatever stands in its files."""
    root = tmp_path_factory.mktemp("root")
    write(root, "proc/7/stat", f"7 (x) S {f'{number} ' * 30}")
    write(root, "proc/7/status", f"VmSwap: {number} kB\nCpus_allowed_list: {text}")
    write(root, "proc/7/schedstat", f"{text} {number}")
    write(root, "proc/7/io", f"read_bytes: {number}\n{text}")
    write(root, "proc/7/cgroup", f"0::/job\n{text}")
    write(root, "sys/fs/cgroup/job/cpu.stat", f"throttled_usec {number}\n")
    write(root, "sys/fs/cgroup/job/cpu.max", f"{number} {text}")
    place = read_place(root / "proc/7", Machine(root))
    reported = reading(root / "proc/7", ControlGroups(root), place)
    assert reported is not None
    numbers = [value for value in reported.values() if isinstance(value, int)]
    assert all(abs(value) < 2**63 for value in numbers)
