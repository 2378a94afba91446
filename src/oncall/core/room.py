"""What is in hand: the memory that this process may still take, and how many rows fit into it."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

try:
    import resource
except ImportError:  # no such limits on this platform
    resource = None  # type: ignore[assignment]

# Rows of one incident: 16,384 ranks of 2,000 operations are 33 M.
MOST_ROWS = 50_000_000
_ROW_BYTES = 256  # of an operation in the database and in the arrays that bring it there
_SHARE = 2  # of what is free, half: the rest of the machine goes on working
_QUARTER = 4  # of all memory, what tables may take before they are kept on disk
_LOOK_EVERY_S = 0.1  # a look reads six files, which takes as long as a tenth of a dump
_LEAST_SPACE_BYTES = 1 << 30  # of addresses: Python, numpy, DuckDB; measured 0.9 GiB on 2 cores
_SPACE_OF_A_THREAD_BYTES = 12 << 20  # DuckDB's, one a core: 11 MiB measured, with 192 threads
LEAST_BYTES = 256 * 2**20  # for tables: with less, DuckDB cannot join two


def share_bytes() -> int:
    """What may be taken of the memory in hand."""
    return in_hand_bytes() // _SHARE


def most_rows() -> int:
    """The rows that one incident may have here."""
    return min(MOST_ROWS, share_bytes() // _ROW_BYTES)


def quarter_bytes() -> int:
    """A quarter of the memory of the machine or of what holds this process, a cgroup or limit."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cgroup = _cgroup()
    whole = min(machine, cgroup[0]) if cgroup else machine
    if resource is not None:
        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        whole = whole if soft == resource.RLIM_INFINITY else min(whole, soft)
    return max(LEAST_BYTES, whole // _QUARTER)


def lacking_room() -> str:
    """Why tables cannot be read here at all, in a sentence; empty if they can. With less address
    space numpy's OpenBLAS ends the process with exit code 1 when it is imported."""
    if resource is None:
        return ""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    needed = _LEAST_SPACE_BYTES + (os.cpu_count() or 1) * _SPACE_OF_A_THREAD_BYTES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return ""
    return (
        f"a limit of {soft >> 20} MiB on the address space of this process (ulimit -v) is less "
        f"than the {needed >> 20} MiB that oncall needs here; raise it, or run oncall elsewhere"
    )


def held_bytes() -> int:
    """What this process holds; 0 where the system does not tell."""
    words = _text("/proc/self/statm").split()
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE") if words else 0


def give_back() -> None:
    """Return to the system what this process has freed: glibc keeps most of it."""
    import ctypes  # for recordings of many rows alone

    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def in_hand_bytes() -> int:
    """What this process may still take: of the machine, of its cgroup, of its own limit."""
    return _in_hand_bytes(int(time.monotonic() / _LOOK_EVERY_S))


@lru_cache(maxsize=1)
def _in_hand_bytes(_: int) -> int:
    found = [_machine_bytes(), _cgroup_bytes(), _limit_bytes()]
    return min(bytes_ for bytes_ in found if bytes_ is not None)


def _machine_bytes() -> int:
    for line in _text("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _cgroup_bytes() -> int | None:
    cgroup = _cgroup()
    return cgroup[1] if cgroup else None


def _cgroup() -> tuple[int, int] | None:
    """The memory of the cgroup (of version 2, then 1), and what it leaves of it; its file cache can
    be given back."""
    for line in _text("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            names = ("", "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = (
                "memory",
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file",
            )
        else:
            continue
        # Within a container its own cgroup is mounted as the root.
        for folder in (
            Path("/sys/fs/cgroup", names[0], path.lstrip("/")),
            Path("/sys/fs/cgroup", names[0]),
        ):
            most, used = _text(folder / names[1]).strip(), _text(folder / names[2]).strip()
            if most.isdecimal() and used.isdecimal():
                cache = next(
                    (
                        int(line.split()[1])
                        for line in _text(folder / "memory.stat").splitlines()
                        if line.startswith(names[3] + " ")
                    ),
                    0,
                )
                return int(most), max(0, int(most) - int(used) + cache)
    return None


def _limit_bytes() -> int | None:
    """What RLIMIT_AS leaves."""
    if resource is None:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else max(0, soft - address_space_bytes())


def address_space_bytes() -> int:
    """The address space of this process; 0 where the system does not tell."""
    words = _text("/proc/self/statm").split()
    return int(words[0]) * os.sysconf("SC_PAGE_SIZE") if words else 0


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
