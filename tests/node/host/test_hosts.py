"""The host in a fixture tree: shares of time, sums over files, and what is not reported."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.node.common.source import Collected, Instant, read_clock
from oncall.node.host.hosts import HostSource

S = 10**9
NOW = Instant(1_800_000_000 * S, 5000 * S)
LATER = Instant(NOW.realtime_ns + 2 * S, NOW.monotonic_ns + 2 * S)


def write(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def cpu_times(*ticks: int, cpus: int = 2) -> str:
    """/proc/stat with these ticks of all CPUs: user nice system idle iowait irq softirq steal."""
    each = "".join(f"cpu{n} 1 0 1 1 0 0 0 0 0 0\n" for n in range(cpus))
    return f"cpu  {' '.join(map(str, ticks))} 0 0\n{each}intr 99 1 2 3\nctxt 12\n"


def pressure(total_us: int) -> str:
    return (
        f"some avg10=1.00 avg60=0.50 avg300=0.00 total={total_us}\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, "proc/stat", cpu_times(100, 0, 50, 800, 20, 5, 5, 20))
    write(
        tmp_path,
        "proc/meminfo",
        "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 400 kB\nSwapTotal: 50 kB\n"
        "SwapFree: 20 kB\nHugePages_Total: 0\n",
    )
    for what, total_us in (("cpu", 1000), ("io", 2000), ("memory", 3000)):
        write(tmp_path, f"proc/pressure/{what}", pressure(total_us))
    system = "sys/devices/system"
    for cpu, khz in ((0, 2_000_000), (1, 3_000_000)):
        clock = f"{system}/cpu/cpu{cpu}/cpufreq"
        write(tmp_path, f"{clock}/scaling_cur_freq", f"{khz}\n")
        write(tmp_path, f"{clock}/cpuinfo_max_freq", "3500000\n")
        write(tmp_path, f"{clock}/scaling_governor", "performance\n")
    for controller, corrected in (("mc0", 3), ("mc1", 4)):
        write(tmp_path, f"{system}/edac/mc/{controller}/ce_count", f"{corrected}\n")
        write(tmp_path, f"{system}/edac/mc/{controller}/ue_count", "0\n")
    return tmp_path


@pytest.fixture
def source(root: Path) -> HostSource:
    return HostSource(root, "gpu017", S)


def row(collected: Collected) -> dict[str, Any]:
    (batch,) = collected.batches
    assert (batch.table, batch.rows) == ("hosts", 1)
    return dict(batch.columns)


def test_sums_and_means(source: HostSource) -> None:
    first = row(source.collect(NOW))
    assert first == {
        "node": "gpu017",
        "at_ns": NOW.realtime_ns,
        "cpus": 2,
        "cpu_mhz": 2500.0,
        "cpu_max_mhz": 3500.0,
        "governor": "performance",
        "memory_available_bytes": 400 * 1024,
        "memory_bytes": 1000 * 1024,
        "swap_used_bytes": 30 * 1024,
        "memory_corrected": 7,
        "memory_uncorrected": 0,
    }


def test_shares_are_of_the_time_between_two_readings(source: HostSource, root: Path) -> None:
    source.collect(NOW)
    # 100 ticks more: 60 user, 10 stolen by the machine below, 20 idle, 10 waiting for input.
    write(root, "proc/stat", cpu_times(160, 0, 50, 820, 30, 5, 5, 30))
    write(root, "proc/pressure/cpu", pressure(1000 + 500_000))
    write(root, "proc/pressure/io", pressure(2000 + 3_000_000))
    collected = row(source.collect(LATER))
    assert collected["cpu_busy"] == pytest.approx(0.7)
    assert collected["cpu_pressure"] == pytest.approx(0.25)
    assert collected["io_pressure"] == 1.0
    assert collected["memory_pressure"] == 0.0


def test_what_is_not_reported_is_null_and_said(tmp_path: Path) -> None:
    write(tmp_path, "proc/stat", cpu_times(1, 2, 3, 4, 5, 6, 7, 8, cpus=200))
    collected = HostSource(tmp_path, "gpu017", S).collect(NOW)
    shown = row(collected)
    known = {name: value for name, value in shown.items() if value is not None}
    assert known == {"node": "gpu017", "at_ns": NOW.realtime_ns, "cpus": 200}
    assert [note.partition(":")[0] for note in collected.notes] == [
        "no pressure (PSI)",
        "no CPU clocks",
        "no memory errors",
    ]


@pytest.mark.parametrize("garbage", ["", "\0\xff", "cpu", "cpu a b c d e f g h", "cpu 1 2\n"])
def test_garbage_is_said_and_no_row(root: Path, garbage: str) -> None:
    source = HostSource(root, "gpu017", S)
    source.collect(NOW)
    write(root, "proc/stat", garbage)
    collected = source.collect(LATER)
    assert collected.batches == ()
    assert "no CPU times found" in collected.problems[0]
    write(root, "proc/stat", cpu_times(200, 0, 50, 900, 20, 5, 5, 20))
    assert "cpu_busy" not in row(source.collect(LATER))


@given(text=st.text(max_size=200), number=st.integers(-(2**70), 2**70))
def test_garbage_is_never_a_crash_nor_a_number_too_large(
    tmp_path_factory: pytest.TempPathFactory, text: str, number: int
) -> None:
    """What is reported of a host fits its columns, whatever stands in its files."""
    root = tmp_path_factory.mktemp("root")
    write(root, "proc/stat", f"cpu {f'{number} ' * 8}\ncpu0 {text}\ncpu{number}\n{text}")
    write(root, "proc/meminfo", f"MemTotal: {number} kB\nSwapTotal: {number}\nSwapFree: 0\n{text}")
    write(root, "proc/pressure/cpu", f"some {text} total={number}\n{text}")
    for controller in ("mc0", "mc1"):
        write(root, f"sys/devices/system/edac/mc/{controller}/ce_count", str(number))
        write(root, f"sys/devices/system/edac/mc/{controller}/ue_count", text)
    write(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", str(number))
    source = HostSource(root, "gpu017", S)
    for now in (NOW, LATER):
        for batch in source.collect(now).batches:
            numbers = [value for value in batch.columns.values() if isinstance(value, int)]
            assert all(abs(value) < 2**63 for value in numbers)


def test_this_machine() -> None:
    source = HostSource(Path("/"), "gpu017", S)
    row(source.collect(read_clock()))
    deadline = time.monotonic() + 30
    busy = None
    while busy is None and time.monotonic() < deadline:  # until a tick has passed
        time.sleep(0.02)
        busy = row(source.collect(read_clock()))["cpu_busy"]
    assert busy is not None
    assert 0 <= busy <= 1
