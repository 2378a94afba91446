"""Evidence that is gathered: from running nodes, or from the shards that they left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from oncall.core.errors import UsageError
from oncall.core.units import parse_duration_ns
from oncall.fleet.ask import Answer, ask_fleet
from oncall.fleet.gather import Window
from oncall.fleet.outcome import lost_gateways_phrases
from oncall.fleet.reach import Reach, reach_fleet, reach_shards
from oncall.fleet.transport import opened
from oncall.node.store.catalog import sealed_shards
from oncall.use_case.listener import SILENT, Listener
from oncall.use_case.recordings import parse_instant

if TYPE_CHECKING:
    from oncall.evidence.incident import Incident
    from oncall.rules.language.rulebook import Rulebook

DEFAULT_SINCE = "10m"


@dataclass(frozen=True)
class Wanted:
    """What to request: a job (None: the only one), and the window as typed in the options."""

    job: str | None = None
    since: str | None = None
    at: str | None = None

    def window(self, newest_ns: int) -> Window:
        """The window, for evidence that ends at `newest_ns`. Raises UsageError."""
        until_ns = parse_instant(self.at, newest_ns) if self.at is not None else None
        duration_ns = parse_duration_ns(self.since or DEFAULT_SINCE)
        return Window((until_ns or newest_ns) - duration_ns, until_ns)


def gather_fleet(
    wanted: Wanted,
    hosts: str | None,
    inventory: Path | None,
    rulebooks: Sequence[Rulebook],
    listener: Listener = SILENT,
) -> Answer:
    """The evidence of a job from its nodes. Raises UsageError if no hosts are given, or none of
    them has such a job."""
    window = wanted.window(time.time_ns())
    return _run(reach_fleet(hosts, inventory), wanted.job, window, rulebooks, listener)


def read_shards(
    folders: Mapping[str, Path],
    wanted: Wanted,
    rulebooks: Sequence[Rulebook],
    listener: Listener = SILENT,
) -> Answer:
    """The evidence of shards (node -> folder), gathered the same way as from nodes. Raises
    UsageError if there are none any more."""
    places = set(folders.values())
    ends_ns = [shard.end_ns for place in places for shard in sealed_shards(place)]
    if not ends_ns:  # there were some a moment ago
        named = ", ".join(map(str, sorted(places)))
        raise UsageError(f"{named}: the shards were removed meanwhile")
    window = wanted.window(max(ends_ns))
    return _run(reach_shards(folders), wanted.job, window, rulebooks, listener)


def _run(
    reach: Reach,
    job: str | None,
    window: Window,
    rulebooks: Sequence[Rulebook],
    listener: Listener,
) -> Answer:
    def starting(incident: Incident) -> set[int]:
        from oncall.rules.engine.starts import started_communicators

        return started_communicators(incident, rulebooks)

    async def ask() -> Answer:
        async with opened(reach.transport) as transport:
            return await ask_fleet(
                transport,
                reach.hosts,
                job,
                window,
                starting,
                patience_s=reach.patience_s,
                at_once=reach.at_once,
                memory=reach.memory,
                tree=reach.tree,
                progress=listener.gathers,
            )

    answer = asyncio.run(ask())
    for phrase in lost_gateways_phrases(answer.lost_gateways):
        listener.warns(phrase)
    if reach.scheduler is None:
        return answer
    host_of = {one.node: host for host, one in answer.outcomes.items()}
    return replace(answer, scheduler=reach.scheduler.named(host_of))
