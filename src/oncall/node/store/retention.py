"""Which sealed shards may go: by age, then by size, first sealed first, never the last of a node.

Age and order are those of the log of seals, not of names: a step of the wall clock makes no shard
old, and none of those that were just sealed the first to go.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from oncall.node.store.catalog import Shard, sealed_shards

# In which order shards were sealed and how long ago, by a clock that nobody can set.
#
# The name of a shard is Unix time, and Unix time is stepped: by NTP, by an administrator, by an
# empty battery. Age and order are therefore recorded beside the shards, one line for each:
#
#     <file name of the shard> <boot id> <nanoseconds since that boot>
#
# Between two boots only the time that a boot is known to have lasted counts. An age is thus never
# more than the true one; a lost line makes a shard younger, never older.

LOG_NAME = "sealed.log"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NO_BOOT = uuid.uuid4().hex  # where the kernel does not name its boot, each process is one
_MOST_BYTES = 64 * 2**20
_SPARE_LINES = 1000  # of shards that are gone, before the log is written anew
_LATEST_NS = 2**62


@dataclass(frozen=True)
class SinceBoot:
    """An instant on CLOCK_BOOTTIME of one boot."""

    boot: str
    ns: int


BootClock: TypeAlias = Callable[[], SinceBoot]


def read_boot_clock() -> SinceBoot:
    """Now, on the clock that counts from boot and cannot be set."""
    try:
        boot = _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        boot = _NO_BOOT
    return SinceBoot(boot, time.clock_gettime_ns(time.CLOCK_BOOTTIME))


@dataclass(frozen=True)
class _Entry:
    name: str
    at: SinceBoot


def record(folder: Path, names: Iterable[str], now: SinceBoot) -> None:
    """Note that shards of these names are sealed now. Raises OSError."""
    lines = "".join(f"\n{name} {now.boot} {now.ns}" for name in names)
    if not lines:
        return
    # The newline comes first, so that a line cut short by a full disk spoils no other.
    with (folder / LOG_NAME).open("a", encoding="utf-8") as log:
        log.write(lines)


def in_sealing_order(folder: Path, shards: Iterable[Shard]) -> list[Shard]:
    """The shards, first sealed first. What no line names comes before the others, by name."""
    places = {entry.name: place for place, entry in enumerate(_read(folder))}
    return sorted(shards, key=lambda shard: (places.get(shard.path.name, -1), shard))


def ages_ns(folder: Path, shards: Sequence[Shard], now: SinceBoot) -> list[int]:
    """How long ago each shard was sealed, at least; 0 for those that no line names."""
    entries = _read(folder)
    lasted_ns: dict[str, int] = {}  # boot -> how long it is known to have lasted, in their order
    for at in (*(entry.at for entry in entries), now):
        lasted_ns[at.boot] = max(lasted_ns.get(at.boot, 0), at.ns)
    after_ns: dict[str, int] = {}  # boot -> how long those after it lasted
    total_ns = 0
    for boot, ns in reversed(lasted_ns.items()):
        after_ns[boot] = total_ns
        total_ns += ns
    age = {
        entry.name: lasted_ns[entry.at.boot] - entry.at.ns + after_ns[entry.at.boot]
        for entry in entries
    }
    return [age.get(shard.path.name, 0) for shard in shards]


def record_unknown(folder: Path, shards: Sequence[Shard], now: SinceBoot) -> None:
    """Note the shards that no line names, as of now, and forget those that are gone once there
    are many. Raises OSError."""
    entries = _read(folder)
    known = {entry.name for entry in entries}
    record(folder, (s.path.name for s in shards if s.path.name not in known), now)
    if len(entries) > 2 * len(shards) + _SPARE_LINES:
        here = {shard.path.name for shard in shards}
        _rewrite(folder, [entry for entry in _read(folder) if entry.name in here])


def _read(folder: Path) -> list[_Entry]:
    """The lines that can be understood, each shard's first one."""
    found: dict[str, _Entry] = {}
    with suppress(OSError), (folder / LOG_NAME).open("rb") as log:
        for line in log.read(_MOST_BYTES).decode("utf-8", "replace").splitlines():
            match line.split():
                case [name, boot, ns] if ns.isascii() and ns.isdigit() and len(ns) < 20:
                    at = SinceBoot(boot, min(int(ns), _LATEST_NS))
                    found.setdefault(name, _Entry(name, at))
    return list(found.values())


def _rewrite(folder: Path, entries: Sequence[_Entry]) -> None:
    new = folder / f"{LOG_NAME}.new"
    new.write_text(
        "".join(f"\n{entry.name} {entry.at.boot} {entry.at.ns}" for entry in entries),
        encoding="utf-8",
    )
    new.replace(folder / LOG_NAME)


@dataclass(frozen=True)
class Retention:
    """How long sealed evidence is kept, and how many bytes of it."""

    keep_ns: int
    keep_bytes: int


@dataclass(frozen=True)
class Kept:
    """A shard on disk: its size, and how long ago it was sealed, at least."""

    shard: Shard
    size_bytes: int
    age_ns: int


def surplus(kept: Sequence[Kept], retention: Retention) -> list[Shard]:
    """The shards to retire, of all in the order in which they were sealed."""
    kept_bytes = sum(each.size_bytes for each in kept)
    going = []
    for each in kept[:-1]:
        if each.age_ns <= retention.keep_ns and kept_bytes <= retention.keep_bytes:
            break
        kept_bytes -= each.size_bytes
        going.append(each.shard)
    return going


def retire(
    folder: Path, node: str, retention: Retention, clock: BootClock = read_boot_clock
) -> list[Shard]:
    """Delete the node's shards that are too many; returns those that went."""
    now = clock()
    found = sealed_shards(folder, nodes=[node])
    with suppress(OSError):  # without its line a shard is younger than it is, and stays
        record_unknown(folder, found, now)
    found = in_sealing_order(folder, found)
    kept = [
        Kept(shard, shard.size_bytes, age_ns)
        for shard, age_ns in zip(found, ages_ns(folder, found, now), strict=True)
    ]
    going = surplus(kept, retention)
    for shard in going:
        with suppress(FileNotFoundError):
            shard.path.unlink()
    return going
