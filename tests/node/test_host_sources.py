"""What a collector records of its node beside the rings, from files to a sealed shard."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ring_writer import RingWriter

from oncall.node.agent.agent import Agent
from oncall.node.agent.service import build
from oncall.node.common.config import Configuration
from oncall.node.common.log import Log

MakeAgent = Callable[..., Agent]
Rows = Callable[[str], list[tuple[Any, ...]]]
SOURCES = ("gpus", "hosts", "host_processes", "kernel_log")


def test_a_node_without_gpus_records_what_there_is_and_says_what_there_is_not(
    rings: Path, make_agent: MakeAgent, sealed_rows: Rows, tmp_path: Path
) -> None:
    ring = RingWriter(rings, 3)
    root = tmp_path / "root"
    for path, text in {
        "proc/stat": "cpu  1 2 3 4 5 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n",
        f"proc/{os.getpid()}/stat": "7 (python) S 1 1 1 0 -1 0 10 0 42 0 150 50 0 0 20 0 9 0 1 0 0",
        f"proc/{os.getpid()}/status": "Cpus_allowed_list:\t0-1\nThreads:\t9\n",
        "sys/devices/system/node/node0/cpulist": "0-1\n",
        "dev/kmsg": "4,7,1,-;e1000e: eth0 NIC Link is Down\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    make_agent(sources=SOURCES, root=root).once()
    assert sealed_rows("SELECT node, cpus, cpu_busy FROM hosts") == [("gpu017", 1, None)]
    assert sealed_rows("SELECT job, rank, threads, numa_nodes FROM host_processes") == [
        ("llama", 3, 9, [0])
    ]
    assert sealed_rows("SELECT count(*) FROM gpus") == [(0,)]
    notes = dict(sealed_rows("SELECT source, note FROM collectors WHERE note IS NOT NULL"))
    assert notes["gpus"].startswith("no GPUs")
    assert "no pressure (PSI)" in notes["hosts"]
    assert sealed_rows("SELECT source FROM collectors WHERE error IS NOT NULL") == []
    ring.close()


def test_a_successor_reads_the_kernel_log_on(
    config: Configuration, sealed_rows: Rows, tmp_path: Path
) -> None:
    config = replace(config, sources=("kernel_log",), root=tmp_path)
    log = tmp_path / "dev/kmsg"
    log.parent.mkdir()
    uptime_us = int(float(Path("/proc/uptime").read_text().split()[0]) * 1e6)
    line = f"4,{{}},{uptime_us},-;e1000e: eth{{}} NIC Link is Down\n"
    log.write_text(line.format(7, 0))
    build(config, Log())[0].once()
    log.write_text(line.format(7, 0) + line.format(9, 1))
    build(config, Log())[0].once()
    rows = sealed_rows("SELECT code, device FROM host_events ORDER BY device")
    assert rows == [("link_down", "eth0"), ("link_down", "eth1")]
    assert sealed_rows("SELECT max(dropped) FROM collectors WHERE source = 'kernel_log'") == [(1,)]
