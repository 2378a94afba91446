"""Which sealed shards may go: by age, then by size, oldest first, never the last of a node."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from oncall.shards.catalog import Shard, sealed_shards


@dataclass(frozen=True)
class Retention:
    """How long sealed evidence is kept, and how many bytes of it."""

    keep_ns: int
    keep_bytes: int


def surplus(shards: Sequence[tuple[Shard, int]], retention: Retention, now_ns: int) -> list[Shard]:
    """The shards to retire, of (shard, its size in bytes) from oldest to newest."""
    kept_bytes = sum(size for _, size in shards)
    going = []
    for shard, size in shards[:-1]:
        too_old = shard.end_ns < now_ns - retention.keep_ns
        if not too_old and kept_bytes <= retention.keep_bytes:
            break
        kept_bytes -= size
        going.append(shard)
    return going


def retire(folder: Path, node: str, retention: Retention, now_ns: int) -> list[Shard]:
    """Delete the node's shards that are too many; returns those that went."""
    found = sealed_shards(folder, nodes=[node])
    going = surplus([(shard, shard.size_bytes) for shard in found], retention, now_ns)
    for shard in going:
        with suppress(FileNotFoundError):
            shard.path.unlink()
    return going
