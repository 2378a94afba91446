"""How much CPU time the control groups of a process allow, in cgroup v1 and v2.

A quota of any parent group binds as well (CFS bandwidth control): the smallest quota counts, and
time throttled by any of them is throttled time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from oncall.node.common.system_files import (
    read_counts,
    read_number,
    read_text,
    stored,
    whole_number,
)

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
