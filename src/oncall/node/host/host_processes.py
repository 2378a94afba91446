"""Source `host_processes`: what the kernel gives the training processes of this node.

Their rings identify these processes. What may not be read of a process (another user's
/proc/PID/io) is NULL; a process that dies meanwhile, or that /proc hides, has no row.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from oncall.node.common.declaration import Polled, Surroundings, source
from oncall.node.common.own_thread import OwnThread
from oncall.node.common.source import Collected, Instant, Source
from oncall.node.common.system_files import (
    counts_of,
    read_counts,
    read_list,
    read_number,
    read_text,
    stored,
    whole_number,
)
from oncall.node.rings.living_files import LivingRank, LivingRanks
from oncall.node.store.batch import of_rows

# How much CPU time the control groups of a process allow, in cgroup v1 and v2.
#
# A quota of any parent group binds as well (CFS bandwidth control): the smallest quota counts, and
# time throttled by any of them is throttled time.

_NS_PER_US = 1000
# Where distributions mount them, below sys/fs/cgroup; the first that is there, as `cpu` is often
# a link to the second.
_V1: tuple[str, ...] = ("cpu", "cpu,cpuacct", "cpuacct,cpu")
_V2: tuple[str, ...] = ("unified", ".")


@dataclass(frozen=True)
class CpuLimit:
    """`quota` in CPUs, None for none; time stopped since the groups were made, ns, added up over
    CPUs, None where no group reports it."""

    quota: float | None
    throttled_ns: int | None


class ControlGroups:
    """The groups of a node as they stand during one reading: each is read once, however many
    processes are in it."""

    def __init__(self, root: Path) -> None:
        self._mounts = root / "sys" / "fs" / "cgroup"
        self._read: dict[Path, CpuLimit] = {}
        self._by_membership: dict[str, CpuLimit] = {}

    def cpu_limit(self, membership: str | None) -> CpuLimit:
        """The limit upon a process whose /proc/PID/cgroup holds `membership`."""
        membership = membership or ""
        if membership not in self._by_membership:
            self._by_membership[membership] = self._least(membership)
        return self._by_membership[membership]

    def _least(self, membership: str) -> CpuLimit:
        limits = [self._limit(folder) for folder in self._folders(membership)]
        quotas = [limit.quota for limit in limits if limit.quota is not None]
        stopped = [limit.throttled_ns for limit in limits if limit.throttled_ns is not None]
        return CpuLimit(min(quotas, default=None), stored(sum(stopped)) if stopped else None)

    def _folders(self, membership: str) -> Iterator[Path]:
        """Each group's folder from the process's own up to the topmost."""
        for line in membership.splitlines():
            hierarchy, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if hierarchy == "0" and not controllers:
                places = _V2
            elif "cpu" in controllers.split(","):
                places = _V1
            else:
                continue
            group = PurePosixPath(path.lstrip("/"))
            if ".." in group.parts:
                continue  # outside of what this cgroup namespace shows
            mounts = (self._mounts / place for place in places)
            if mount := next((mount for mount in mounts if mount.is_dir()), None):
                yield from (mount / folder for folder in (group, *group.parents))

    def _limit(self, folder: Path) -> CpuLimit:
        if folder not in self._read:
            self._read[folder] = _cpu_limit(folder)
        return self._read[folder]


def _cpu_limit(folder: Path) -> CpuLimit:
    """The limit that one group sets by itself."""
    counts = read_counts(folder / "cpu.stat")
    throttled_ns = counts.get("throttled_time")  # v1; v2 tells microseconds
    if throttled_ns is None:
        throttled_ns = stored(counts.get("throttled_usec"), _NS_PER_US)
    most = read_text(folder / "cpu.max")
    if most is not None:
        quota, _, period = most.partition(" ")
        return CpuLimit(_cpus(whole_number(quota), whole_number(period)), throttled_ns)
    quota_us = read_number(folder / "cpu.cfs_quota_us")
    return CpuLimit(_cpus(quota_us, read_number(folder / "cpu.cfs_period_us")), throttled_ns)


def _cpus(quota_us: int | None, period_us: int | None) -> float | None:
    """None for `max`, for -1 and for text that is not a quota."""
    if quota_us is None or period_us is None or quota_us <= 0 or period_us <= 0:
        return None
    return quota_us / period_us


_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
# Of /proc/PID/stat, counted after the command, which may hold anything.
_STATE, _MAJOR_FAULTS, _USER_TICKS, _SYSTEM_TICKS, _THREADS, _RSS_PAGES = 0, 9, 11, 12, 17, 21
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PLACE_EACH = 10  # readings: a fifth of the time, for what is hardly ever different
_IDLE_SHARE = 0.03  # of a core; what watchdogs and monitors of a blocked process use
_MOST_CHILDREN = 256
_RESTS = ("S", "T", "t")  # states in which a main thread that uses no CPU gets nothing done
_COLUMNS = (
    *("node", "job", "rank", "pid", "at_ns", "cpu_ns", "waited_ns", "cpu_quota", "throttled_ns"),
    *("cpus_allowed", "numa_nodes", "major_faults", "rss_bytes", "swap_bytes", "read_bytes"),
    *("threads", "state", "blocked_in", "still_ns"),
)


class HostProcessSource(Source):
    """A row for each living rank and reading."""

    name = "host_processes"

    def __init__(self, root: Path, rings: Path, node: str, every_ns: int) -> None:
        """`rings`: where the training processes of this node leave their rings."""
        self.every_ns = every_ns
        self._root = root
        self._ranks = LivingRanks(rings)
        self._node = node
        self._at_rest: dict[int, AtRest] = {}  # by PID, of those that live
        self._places: dict[int, Place] = {}  # likewise
        self._readings = 0

    def collect(self, now: Instant) -> Collected:
        groups = ControlGroups(self._root)
        machine = Machine(self._root)
        rows, hidden = [], []
        before, self._at_rest = self._at_rest, {}
        places, self._places = self._places, {}
        self._readings += 1
        for rank in self._ranks.now(now):
            folder = self._root / "proc" / str(rank.pid)
            place = places.get(rank.pid)
            if place is None or (self._readings + rank.rank) % _PLACE_EACH == 0:
                place = read_place(folder, machine)
            values = reading(folder, groups, place)
            if values is None:
                hidden.append(rank)
                continue
            self._places[rank.pid] = place
            rest = self._at_rest[rank.pid] = before.get(rank.pid) or AtRest()
            values |= rest.seen(folder, values, now.monotonic_ns)
            values |= {"node": self._node, "job": rank.job, "rank": rank.rank, "pid": rank.pid}
            rows.append([now.realtime_ns if name == "at_ns" else values[name] for name in _COLUMNS])
        batch = of_rows("host_processes", _COLUMNS, rows)
        return Collected([batch] if rows else [], notes=_hidden(self._root, hidden))

    def close(self) -> None:
        self._ranks.close()


class AtRest:
    """For how long a process has not moved: it and its children used next to no CPU time and read
    nothing, and its main thread slept or was stopped. In state D it waits for a device, which may
    only be slow."""

    def __init__(self) -> None:
        self._before: tuple[int, int, int] | None = None  # when, CPU time and bytes read by then
        self._children: dict[int, int] = {}  # their CPU time, while it rests itself
        self._since_ns: int | None = None

    def seen(self, folder: Path, values: dict[str, Any], now_ns: int) -> dict[str, Any]:
        """One more reading of /proc/PID: for how long it has not moved, NULL where it did, and then
        where its main thread is blocked."""
        now = (now_ns, values["cpu_ns"] or 0, values["read_bytes"] or 0)
        if not self._rests(folder, values["state"], now):
            self._since_ns, self._children = None, {}
        elif self._since_ns is None and self._before is not None:
            self._since_ns = self._before[0]
        self._before = now
        if self._since_ns is None:
            return {"still_ns": None, "blocked_in": None}
        blocked_in = read_text(folder / "wchan")
        return {
            "still_ns": now_ns - self._since_ns,
            "blocked_in": None if blocked_in in (None, "", "0") else blocked_in,
        }

    def _rests(self, folder: Path, state: str, now: tuple[int, int, int]) -> bool:
        if self._before is None or state not in _RESTS:
            return False
        took_ns, used_ns, read = (
            after - before for before, after in zip(self._before, now, strict=True)
        )
        if read > 0 or used_ns > _IDLE_SHARE * took_ns:
            return False
        # Its children are looked at only where it rests itself.
        children, self._children = self._children, cpu_of_children(folder)
        used_ns += sum(used - children.get(pid, used) for pid, used in self._children.items())
        return used_ns <= _IDLE_SHARE * took_ns


def cpu_of_children(folder: Path) -> dict[int, int]:
    """The CPU time, ns, of the processes that /proc/PID's began, and of theirs."""
    found: dict[int, int] = {}
    parents = [folder]
    while parents and len(found) < _MOST_CHILDREN:
        of = parents.pop()
        for pid in (read_text(of / "task" / of.name / "children") or "").split():
            child = folder.parent / pid
            stat = (read_text(child / "stat") or "").rpartition(")")[2].split()
            ticks = [whole_number(text) for text in stat[_USER_TICKS : _SYSTEM_TICKS + 1]]
            found[int(pid)] = (sum(one or 0 for one in ticks)) * _TICK_NS
            parents.append(child)
    return found


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


@dataclass(frozen=True)
class Place:
    """What a process rarely changes: its control groups, CPUs and NUMA nodes, and its swapped
    memory."""

    membership: str | None
    cpus_allowed: int | None
    numa_nodes: list[int] | None
    swap_bytes: int | None


def read_place(folder: Path, machine: Machine) -> Place:
    """What /proc/PID contains of it."""
    status = read_text(folder / "status") or ""
    swap = counts_of(status, ("VmSwap",)).get("VmSwap")
    cgroup = read_text(folder / "cgroup")
    return Place(cgroup, *machine.place(_allowed(status)), stored(swap, 1024))


def reading(folder: Path, groups: ControlGroups, place: Place) -> dict[str, Any] | None:
    """What /proc/PID contains, by column; None if the process is not there."""
    stat = (read_text(folder / "stat") or "").rpartition(")")[2].split()
    if len(stat) <= _RSS_PAGES:
        return None
    user, system = whole_number(stat[_USER_TICKS]), whole_number(stat[_SYSTEM_TICKS])
    limit = groups.cpu_limit(place.membership)
    scheduled = (read_text(folder / "schedstat") or "").split()
    return {
        "cpu_ns": None if user is None or system is None else stored(user + system, _TICK_NS),
        "waited_ns": whole_number(scheduled[1]) if len(scheduled) > 1 else None,
        "cpu_quota": limit.quota,
        "throttled_ns": limit.throttled_ns,
        "cpus_allowed": place.cpus_allowed,
        "numa_nodes": place.numa_nodes,
        "major_faults": whole_number(stat[_MAJOR_FAULTS]),
        "rss_bytes": stored(whole_number(stat[_RSS_PAGES]), _PAGE_BYTES),
        "swap_bytes": place.swap_bytes,
        "read_bytes": read_counts(folder / "io").get("read_bytes"),
        "threads": whole_number(stat[_THREADS]),
        "state": stat[_STATE],
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
