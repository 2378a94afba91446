"""Evidence from running nodes for `oncall diagnose`: hosts, transport, and a line of progress."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncall.cli.instant import parse_instant
from oncall.fleet.ask import Answer, ask_fleet
from oncall.fleet.gather import Progress, Window
from oncall.fleet.local import AT_ONCE, PATIENCE_S, PREFIX, LocalTransport, local_nodes
from oncall.fleet.memory import Memory
from oncall.shards.catalog import sealed_shards
from oncall.units import format_bytes, parse_duration_ns

if TYPE_CHECKING:
    from oncall.evidence.incident import Incident
    from oncall.fleet.transport import Transport
    from oncall.rules.rulebook import Rulebook

DEFAULT_SINCE = "10m"


@dataclass(frozen=True)
class Wanted:
    """What to ask for: a job (None: the only one), and the span as the options tell it."""

    job: str | None = None
    since: str | None = None
    at: str | None = None

    def window(self, newest_ns: int) -> Window:
        """The span, where the evidence ends at `newest_ns`. Raises UsageError."""
        until_ns = parse_instant(self.at, newest_ns) if self.at is not None else None
        duration_ns = parse_duration_ns(self.since or DEFAULT_SINCE)
        return Window((until_ns or newest_ns) - duration_ns, until_ns)


def gather_fleet(
    wanted: Wanted, hosts: str | None, inventory: Path | None, rulebooks: Sequence[Rulebook]
) -> Answer:
    """The evidence of a job from its nodes. Raises UsageError where no hosts are named, or no
    such job is found on them."""
    window = wanted.window(time.time_ns())
    if hosts is not None and hosts.startswith(PREFIX):
        folders = local_nodes(hosts)
        return _run(LocalTransport(folders), tuple(folders), wanted.job, window, rulebooks)
    from oncall.fleet.configuration import read_configuration
    from oncall.fleet.inventory import find_hosts, no_hosts
    from oncall.fleet.ssh_transport import SshTransport

    configuration = read_configuration()
    found = find_hosts(hosts, inventory, configuration)
    if found is None:
        raise no_hosts()
    return _run(SshTransport(configuration), found.hosts, wanted.job, window, rulebooks)


def read_shards(
    folders: Mapping[str, Path], wanted: Wanted, rulebooks: Sequence[Rulebook]
) -> Answer:
    """The evidence of nodes' shards (node -> folder), by the same way as from the nodes."""
    newest_ns = max(s.end_ns for place in set(folders.values()) for s in sealed_shards(place))
    transport = LocalTransport(folders, in_process=True)
    return _run(transport, tuple(folders), wanted.job, wanted.window(newest_ns), rulebooks)


def _run(
    transport: Transport,
    hosts: Sequence[str],
    job: str | None,
    window: Window,
    rulebooks: Sequence[Rulebook],
) -> Answer:
    def starting(incident: Incident) -> set[int]:
        from oncall.rules.starts import started_communicators

        started = started_communicators(incident, rulebooks)
        return {comm for comms in started.values() for comm in comms}

    local = isinstance(transport, LocalTransport)
    pace: Any = {"patience_s": PATIENCE_S, "at_once": AT_ONCE} if local else {"memory": Memory()}

    async def ask() -> Answer:
        with _progress_line() as progress:
            async with _opened(transport) as opened:
                return await ask_fleet(
                    opened, hosts, job, window, starting, progress=progress, **pace
                )

    return asyncio.run(ask())


@asynccontextmanager
async def _opened(transport: Transport) -> AsyncIterator[Transport]:
    """The transport, with what it shares between hosts open: only some have anything."""
    if isinstance(transport, AbstractAsyncContextManager):
        async with transport:
            yield transport
    else:
        yield transport


@contextmanager
def _progress_line() -> Iterator[Callable[[Progress], None] | None]:
    """One line on a terminal that tells how far we are, gone at the end; silent when piped."""
    if not sys.stderr.isatty():
        yield None
        return

    def show(at: Progress) -> None:
        print(
            f"\r\x1b[K{at.phase}: {at.answered} of {at.asked} nodes, {format_bytes(at.bytes)} "
            "(Ctrl-C: go on with these)",
            end="",
            file=sys.stderr,
            flush=True,
        )

    try:
        yield show
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
