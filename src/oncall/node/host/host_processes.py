"""Source `host_processes`: what the kernel gives the training processes of this node.

Their rings identify these processes. What may not be read of a process (another user's
/proc/PID/io) is NULL; a process that dies meanwhile, or that /proc hides, has no row.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oncall.node.common.declaration import Polled, Surroundings, source
from oncall.node.common.own_thread import OwnThread
from oncall.node.common.source import Collected, Instant, Source
from oncall.node.common.system_files import (
    counts_of,
    read_counts,
    read_list,
    read_text,
    stored,
    whole_number,
)
from oncall.node.host.cgroups import ControlGroups
from oncall.node.rings.living_files import LivingRank, LivingRanks
from oncall.node.store.batch import Batch, of_rows

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
# Of /proc/PID/stat, counted after the command, which may hold anything.
_MAJOR_FAULTS, _USER_TICKS, _SYSTEM_TICKS = 9, 11, 12
_COUNTS = ("VmRSS", "VmSwap", "Threads")  # of /proc/PID/status
_COLUMNS = (
    *("node", "job", "rank", "pid", "at_ns", "cpu_ns", "waited_ns", "cpu_quota", "throttled_ns"),
    *("cpus_allowed", "numa_nodes", "major_faults", "rss_bytes", "swap_bytes", "read_bytes"),
    "threads",
)


class HostProcessSource:
    """A row for each living rank and reading."""

    name = "host_processes"

    def __init__(self, root: Path, rings: Path, node: str, every_ns: int) -> None:
        """`rings`: where the training processes of this node leave their rings."""
        self.every_ns = every_ns
        self._root = root
        self._ranks = LivingRanks(rings)
        self._node = node

    def collect(self, now: Instant) -> Collected:
        groups = ControlGroups(self._root)
        machine = Machine(self._root)
        rows, hidden = [], []
        for rank in self._ranks.now(now):
            values = reading(self._root / "proc" / str(rank.pid), groups, machine)
            if values is None:
                hidden.append(rank)
                continue
            values |= {"node": self._node, "job": rank.job, "rank": rank.rank, "pid": rank.pid}
            rows.append([now.realtime_ns if name == "at_ns" else values[name] for name in _COLUMNS])
        batch = of_rows("host_processes", _COLUMNS, rows)
        return Collected([batch] if rows else [], notes=_hidden(self._root, hidden))

    def current_state(self, now: Instant) -> Sequence[Batch]:  # noqa: ARG002
        return ()

    def close(self) -> None:
        self._ranks.close()


class Machine:
    """The CPUs of this node and their NUMA nodes, read once for all its processes."""

    def __init__(self, root: Path) -> None:
        system = root / "sys" / "devices" / "system"
        self.online = read_list(read_text(system / "cpu" / "online"))
        self.numa_nodes = {
            int(folder.name.removeprefix("node")): read_list(read_text(folder / "cpulist"))
            for folder in (system / "node").glob("node[0-9]*")
            if folder.name.removeprefix("node").isdecimal()
        }

    def place(self, allowed: frozenset[int]) -> tuple[int | None, list[int] | None]:
        """How many of the `allowed` CPUs there are, and the NUMA nodes they are of."""
        here = allowed & self.online if self.online else allowed
        nodes = [node for node, cpus in sorted(self.numa_nodes.items()) if cpus & here]
        return len(here) or None, nodes or None


def reading(folder: Path, groups: ControlGroups, machine: Machine) -> dict[str, Any] | None:
    """What /proc/PID contains, by column; None if the process is not there."""
    stat = (read_text(folder / "stat") or "").rpartition(")")[2].split()
    if len(stat) <= _SYSTEM_TICKS:
        return None
    user, system = whole_number(stat[_USER_TICKS]), whole_number(stat[_SYSTEM_TICKS])
    status = read_text(folder / "status") or ""
    counts = counts_of(status, _COUNTS)
    limit = groups.cpu_limit(read_text(folder / "cgroup"))
    cpus, numa_nodes = machine.place(_allowed(status))
    scheduled = (read_text(folder / "schedstat") or "").split()
    return {
        "cpu_ns": None if user is None or system is None else stored(user + system, _TICK_NS),
        "waited_ns": whole_number(scheduled[1]) if len(scheduled) > 1 else None,
        "cpu_quota": limit.quota,
        "throttled_ns": limit.throttled_ns,
        "cpus_allowed": cpus,
        "numa_nodes": numa_nodes,
        "major_faults": whole_number(stat[_MAJOR_FAULTS]),
        "rss_bytes": stored(counts.get("VmRSS"), 1024),
        "swap_bytes": stored(counts.get("VmSwap"), 1024),
        "read_bytes": read_counts(folder / "io").get("read_bytes"),
        "threads": counts.get("Threads"),
    }


def _allowed(status: str) -> frozenset[int]:
    """The CPUs that a process may use, by its /proc/PID/status."""
    for line in status.splitlines():
        if line.startswith("Cpus_allowed_list:"):
            return read_list(line.partition(":")[2])
    return frozenset()


def _hidden(root: Path, ranks: list[LivingRank]) -> tuple[str, ...]:
    if not ranks:
        return ()
    numbers = ", ".join(str(rank.rank) for rank in ranks[:8])
    return (
        f"not visible in {root / 'proc'}: processes of {len(ranks)} running ranks "
        f"({numbers}{', ...' if len(ranks) > 8 else ''}), by hidepid or another PID namespace",
    )


@source("host_processes", every="1 s")
def host_processes(surroundings: Surroundings, options: Polled) -> Source:
    """Training processes: processor time, memory, cgroups."""
    root, rings, node = surroundings.root, surroundings.rings, surroundings.node
    return OwnThread(HostProcessSource(root, rings, node, options.every_ns))
