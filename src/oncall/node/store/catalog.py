"""The sealed shards of a node, known by their names alone.

A shard is `<node>.<start_ns>-<end_ns>.duckdb`: everything the collector wrote from one instant to
another, Unix time on the node's clock. Only such names are ever opened: the live store beside them
is locked by the collector, and one locked file would fail a query over all of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from oncall.core.errors import BadInput

LIVE_NAME = "live.duckdb"
_NAME = re.compile(r"(?P<node>[A-Za-z0-9][\w.-]*)\.(?P<start>\d{1,19})-(?P<end>\d{1,19})\.duckdb")
_NODE = re.compile(r"[A-Za-z0-9][\w.-]{0,126}")


@dataclass(frozen=True, order=True)
class Shard:
    """A sealed file; shards sort by the time they cover."""

    start_ns: int
    end_ns: int
    node: str
    path: Path

    @property
    def size_bytes(self) -> int:
        """Its size now; 0 if it has been retired."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0


def is_node_name(name: str) -> bool:
    """Whether `name` can stand in a shard's file name."""
    return bool(_NODE.fullmatch(name))


def shard_name(node: str, start_ns: int, end_ns: int) -> str:
    """The file name of a shard. Raises ValueError for a node name that no file can bear."""
    if not is_node_name(node):
        raise ValueError(f"`{node}` is not a host name")
    return f"{node}.{start_ns}-{end_ns}.duckdb"


def parse_shard(path: Path) -> Shard | None:
    """The shard that `path` names, or None if it names none."""
    found = _NAME.fullmatch(path.name)
    if not found:
        return None
    return Shard(int(found["start"]), int(found["end"]), found["node"], path)


def sealed_shards(
    folder: Path,
    *,
    since_ns: int | None = None,
    until_ns: int | None = None,
    nodes: Iterable[str] | None = None,
) -> list[Shard]:
    """The shards in `folder` that overlap the span, oldest first; of `nodes` only, if given.

    A folder that does not exist yet holds none. Raises BadInput if it cannot be listed.
    """
    wanted = None if nodes is None else set(nodes)
    try:
        found = [shard for path in folder.iterdir() if (shard := parse_shard(path))]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BadInput(str(folder), f"cannot be listed: {error.strerror}") from error
    return sorted(
        shard
        for shard in found
        if (wanted is None or shard.node in wanted)
        and (since_ns is None or shard.end_ns >= since_ns)
        and (until_ns is None or shard.start_ns <= until_ns)
    )


def nodes_in(folder: Path) -> dict[str, Path]:
    """The nodes whose shards are in a folder, in its subfolders or in theirs, as `gpu007/data`:
    name -> data folder. Those that may not be read count as empty: they may be anybody's."""
    below = [*sorted(folder.glob("*/")), *sorted(folder.glob("*/*/"))]
    places = [folder, *(place for place in below if os.access(place, os.R_OK | os.X_OK))]
    return {shard.node: place for place in places for shard in sealed_shards(place)}
