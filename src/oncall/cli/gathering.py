"""Gather evidence from nodes or shards for a command, with a progress line."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from oncall.cli.options.instant import parse_instant
from oncall.cli.status_line import status_line
from oncall.core.errors import UsageError
from oncall.core.units import format_bytes, parse_duration_ns
from oncall.fleet.ask import Answer, ask_fleet
from oncall.fleet.gather import Progress, Window
from oncall.fleet.outcome import lost_gateways_phrases
from oncall.fleet.reach import Reach, reach_fleet, reach_shards
from oncall.fleet.transport import opened
from oncall.node.store.catalog import sealed_shards

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
    wanted: Wanted, hosts: str | None, inventory: Path | None, rulebooks: Sequence[Rulebook]
) -> Answer:
    """The evidence of a job from its nodes. Raises UsageError if no hosts are given, or none of
    them has such a job."""
    window = wanted.window(time.time_ns())
    return _run(reach_fleet(hosts, inventory), wanted.job, window, rulebooks)


def read_shards(
    folders: Mapping[str, Path], wanted: Wanted, rulebooks: Sequence[Rulebook]
) -> Answer:
    """The evidence of shards (node -> folder), gathered the same way as from nodes. Raises
    UsageError if there are none any more."""
    places = set(folders.values())
    ends_ns = [shard.end_ns for place in places for shard in sealed_shards(place)]
    if not ends_ns:  # there were some a moment ago
        named = ", ".join(map(str, sorted(places)))
        raise UsageError(f"{named}: the shards were removed meanwhile")
    return _run(reach_shards(folders), wanted.job, wanted.window(max(ends_ns)), rulebooks)


def _run(reach: Reach, job: str | None, window: Window, rulebooks: Sequence[Rulebook]) -> Answer:
    def starting(incident: Incident) -> set[int]:
        from oncall.rules.engine.starts import started_communicators

        started = started_communicators(incident, rulebooks)
        return {comm for comms in started.values() for comm in comms}

    async def ask() -> Answer:
        with progress_line() as progress:
            async with opened(reach.transport) as transport:
                answer = await ask_fleet(
                    transport,
                    reach.hosts,
                    job,
                    window,
                    starting,
                    patience_s=reach.patience_s,
                    at_once=reach.at_once,
                    memory=reach.memory,
                    tree=reach.tree,
                    progress=progress,
                )
                report_lost(answer.lost_gateways)
                if reach.scheduler is None:
                    return answer
                host_of = {one.node: host for host, one in answer.outcomes.items()}
                return replace(answer, scheduler=reach.scheduler.named(host_of))

    return asyncio.run(ask())


def report_lost(gateways: Mapping[str, str]) -> None:
    """Say on stderr which gateways failed: their nodes were asked, but directly."""
    for phrase in lost_gateways_phrases(gateways):
        print(f"oncall: {phrase}", file=sys.stderr)


@contextmanager
def progress_line() -> Iterator[Callable[[Progress], None]]:
    """A function that updates a progress line on a terminal, erased at the end."""
    with status_line() as show:
        yield lambda at: show(
            f"{at.phase}: {at.answered} of {at.asked} nodes, {format_bytes(at.bytes)} "
            "(Ctrl-C: continue with these)"
        )
