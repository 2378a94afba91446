"""What it costs to watch a node beside its rings: CPU share of one core, and rows a second.

    python benchmarks/host_collectors.py [--seconds 30]

A node of 8 NICs, 8 GPUs, 192 CPUs and 8 training processes at the default rates: NICs 4 times a
second, the rest once. NICs and host are files on a tmpfs, GPUs are the tests' stand-in for NVML and
the statistics of drivers are made up: what the kernel and the drivers take to answer is not in the
figures. Processes are those of this machine. Rows go through a real recorder into a real store.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))

from ring_writer import RingWriter

from oncall.core.units import NS_PER_S
from oncall.evidence.codes.nic_counters import WANTED
from oncall.node.agent.agent import Agent
from oncall.node.agent.recorder import Recorder
from oncall.node.common.account import rss_bytes
from oncall.node.common.config import Configuration
from oncall.node.common.log import Log
from oncall.node.common.own_thread import OwnThread
from oncall.node.common.source import Source
from oncall.node.gpu.gpus import GpuSource
from oncall.node.host.host_processes import HostProcessSource
from oncall.node.host.hosts import HostSource
from oncall.node.host.kernel_log import KernelLogSource
from oncall.node.rdma.rdma_nics import RdmaNicSource
from oncall.node.rings.rings import RingSource
from oncall.node.store.catalog import sealed_shards
from oncall.node.store.places import rings_dir
from oncall.node.store.reader import open_shards

NODE = "gpu017"
NICS, GPUS, CPUS, PROCESSES = 8, 8, 192, 8
Make = Callable[[Configuration], Source]


def test_module(name: str) -> ModuleType:
    """A module that tests share."""
    path = Path(__file__).parents[1] / "tests" / "node" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Statistics:
    """Every statistic of a driver that is wanted, without a driver."""

    def __init__(self) -> None:
        names = [name.removeprefix("ethtool/") for name in WANTED if name.startswith("ethtool/")]
        self._values = dict.fromkeys(names, 12_345_678_901)

    def read(self, _: str) -> Mapping[str, int]:
        return dict(self._values)

    def close(self) -> None:
        """Nothing is open."""


def make_node(root: Path) -> None:
    """Files of NICs and of a host with many CPUs."""
    sysfs = test_module("sysfs")
    for number in range(NICS):
        sysfs.mlx5(root, number)
    times = "1234567 890 345678 98765432 4567 0 8901 0 0 0"
    interrupts = " ".join(["123456"] * 4000)
    each = "\n".join(f"cpu{cpu} {times}" for cpu in range(CPUS))
    sysfs.write(root / "proc/stat", f"cpu  {times}\n{each}\nintr 99 {interrupts}\nctxt 1")
    sysfs.write(root / "proc/meminfo", Path("/proc/meminfo").read_text().strip())
    for what in ("cpu", "io", "memory"):
        sysfs.write(root / "proc/pressure" / what, "some avg10=1.00 avg60=0.50 total=123456789")
    for cpu in range(CPUS):
        clock = root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
        sysfs.write(clock / "scaling_cur_freq", 3_100_000)
        sysfs.write(clock / "cpuinfo_max_freq", 3_800_000)
        sysfs.write(clock / "scaling_governor", "performance")
    for controller in range(16):
        for count in ("ce_count", "ue_count"):
            sysfs.write(root / f"sys/devices/system/edac/mc/mc{controller}" / count, 0)


def makers(root: Path) -> dict[str, Make]:
    """Each source over that node, at its default rate."""
    standin = test_module("nvml_standin")
    gpus = [standin.StandinGpu(0x18 + number) for number in range(GPUS)]
    driver = standin.NvmlStandin(*gpus)

    def every_ns(config: Configuration, source: str) -> int:
        found: int = config.source_options.by_source[source].every_ns
        return found

    def nics(config: Configuration) -> Source:
        return OwnThread(RdmaNicSource(root, NODE, every_ns(config, "rdma_nics"), Statistics()))

    def processes(config: Configuration) -> Source:
        rings = rings_dir(config.run_dir)
        each_ns = every_ns(config, "host_processes")
        return OwnThread(HostProcessSource(Path("/"), rings, NODE, each_ns))

    return {
        "rdma_nics": nics,
        "gpus": lambda config: OwnThread(
            GpuSource(root, NODE, every_ns(config, "gpus"), lambda: driver)
        ),
        "hosts": lambda config: OwnThread(HostSource(root, NODE, every_ns(config, "hosts"))),
        "host_processes": processes,
        "kernel_log": lambda config: OwnThread(
            KernelLogSource(Path("/"), NODE, every_ns(config, "kernel_log"))
        ),
    }


@contextmanager
def running(agent: Agent) -> Iterator[None]:
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        yield
    finally:
        agent.stop()
        thread.join()


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(name: str, chosen: Mapping[str, Make], seconds: float) -> None:
    """One run with the rings of 8 idle processes and the `chosen` sources, printed as a row."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="oncall-bench-") as folder:
        config = Configuration(
            node=NODE, data_dir=Path(folder, "data"), run_dir=Path(folder, "run"), keep_free_bytes=0
        )
        config.data_dir.mkdir()
        rings_dir(config.run_dir).mkdir(parents=True)
        rings = [RingWriter(rings_dir(config.run_dir), rank) for rank in range(PROCESSES)]
        log = Log()
        sources: list[Source] = [
            RingSource(rings_dir(config.run_dir), NODE, config.ring_grace_ns, {}),
            *(make(config) for make in chosen.values()),
        ]
        agent = Agent(config, sources, Recorder(config, log), log)
        with running(agent):
            time.sleep(2)  # opening is not what is measured
            before, began = cpu_s(), time.monotonic()
            time.sleep(seconds)
            share = (cpu_s() - before) / (time.monotonic() - began)
        reported, size = stored(config.data_dir, list(chosen))
        rows, own_cpu_s = reported
        del rings
    whole_s = seconds + 2
    print(
        f"| {name} | {share:.2%} | {own_cpu_s / whole_s:.2%} | {rows / whole_s:,.0f} "
        f"| {size / whole_s / 1000:,.1f} | {rss_bytes() / 1e6:,.0f} MB | {load:.1f} |",
        flush=True,
    )


def stored(folder: Path, sources: list[str]) -> tuple[tuple[int, float], int]:
    """Rows of these sources, the CPU time of their own threads, and the size of all shards."""
    shards = sealed_shards(folder)
    with open_shards(shards) as opened:
        ((rows, cpu_ns),) = opened.con.execute(
            "SELECT coalesce(sum(r), 0), coalesce(sum(c), 0) FROM (SELECT max(rows) AS r, "
            "max(cpu_ns) AS c FROM collectors WHERE list_contains(?, source) GROUP BY source)",
            [sources],
        ).fetchall()
    return (int(rows), int(cpu_ns) / NS_PER_S), sum(shard.size_bytes for shard in shards)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="of each row")
    options = parser.parse_args()
    print("| watched | CPU of one core | reading alone | rows/s | stored, kB/s | memory | load |")
    print("|---|---|---|---|---|---|---|")
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="oncall-bench-", dir=memory) as folder:
        make_node(Path(folder))
        each = makers(Path(folder))
        measure("rings of 8 idle processes alone", {}, options.seconds)
        for name, make in each.items():
            measure(f"and {name}", {name: make}, options.seconds)
        measure("and all of them", each, options.seconds)


if __name__ == "__main__":
    main()
