"""A node as its endpoint sees it: its name, and where its shards and its collector are."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from oncall.core.errors import OncallError
from oncall.node.store.catalog import Shard, sealed_shards
from oncall.node.store.database import Limits
from oncall.node.store.places import data_dir, run_dir
from oncall.node.store.seal_log import in_sealing_order

LIMITS = Limits(memory_bytes=512 * 2**20)  # of one answer
# The most shards that one answer reads: each is an open file, and the machine belongs to the job.
MOST_SHARDS = 500
_AHEAD_NS = 60 * 10**9  # for a smaller step of the clock, no rows are left out


@dataclass(frozen=True)
class Node:
    """A node as its endpoint sees it. Without `run` it is a recording, with no collector."""

    name: str
    data: Path
    run: Path | None

    @classmethod
    def here(
        cls,
        data: Path | None = None,
        run: Path | None = None,
        name: str | None = None,
        *,
        sealed: bool = False,
    ) -> Node:
        """This node, or the one with the given folders. The name defaults to $ONCALL_NODE, else
        that of the newest shard, else the host name. `sealed`: a recording."""
        data = data or data_dir()
        name = name or os.environ.get("ONCALL_NODE")
        if name is None:
            with suppress(OncallError):
                newest = max(sealed_shards(data), key=lambda shard: shard.end_ns, default=None)
                name = newest.node if newest else None
        name = name or socket.gethostname().partition(".")[0]
        return cls(name, data, None if sealed else run or run_dir())


def sealed_in_window(
    node: Node, until_ns: int | None, since_ns: int | None = None
) -> tuple[list[Shard], list[str]]:
    """The node's shards that overlap the window, in sealing order, and the gaps.

    A shard from the future was written before the clock was set back; its rows would hide newer
    ones. It is left out unless the request asks for its time. Recordings are not checked.
    """
    found = sealed_shards(node.data, since_ns=since_ns, until_ns=until_ns, nodes=[node.name])
    gaps = []
    if node.run is not None and until_ns is None:
        now_ns = time.time_ns()
        ahead = [shard for shard in found if shard.start_ns > now_ns + _AHEAD_NS]
        found = [shard for shard in found if shard not in ahead]
        if ahead:
            last = max(shard.end_ns for shard in ahead)
            until = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(last // 10**9))
            gaps.append(
                f"{len(ahead)} shards skipped, dated up to {until} UTC: the clock of this node was "
                "set back; use --at with that time to see them"
            )
    return in_sealing_order(node.data, found), gaps
