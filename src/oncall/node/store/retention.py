"""Which sealed shards may go: by age, then by size, first sealed first, never the last of a node.

Age and order are those of the log of seals, not of names: a step of the wall clock makes no shard
old, and none of those that were just sealed the first to go.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from oncall.node.store.catalog import Shard, sealed_shards
from oncall.node.store.seal_log import (
    BootClock,
    ages_ns,
    in_sealing_order,
    read_boot_clock,
    record_unknown,
)


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
