"""Evidence of a job from all its nodes, in two phases, with whatever arrives in time.

    greet     every host: what are you, which jobs do you see, what is your clock
    digest    the job's nodes: a thinned selection, enough to see which cases start
    detail    the nodes with members of those cases' communicators: all of their operations

A host that fails at any point is an outcome, never an exception. A gather that is stopped goes on
with what has arrived.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from oncall.fleet.host import Host, grace
from oncall.fleet.merge import Answers
from oncall.fleet.outcome import HostError, Kind, Outcome, claimed_twice, jobs_of
from oncall.fleet.transport import Clock, FolderSink, Transport
from oncall.node.store.parts import ReceivedPart
from oncall.node.store.wire import Request

# A console holds about this many operations at ease, and one node sends at most so many.
CONSOLE_ROWS = 3_000_000
NODE_ROWS = 25_000
LEAST_NODE_ROWS = 4_000
DETAIL_ROWS = 400_000
AT_ONCE = 64


@dataclass(frozen=True)
class Progress:
    """How far a gather is, for a line on a terminal."""

    phase: str
    answered: int
    asked: int
    bytes: int


@dataclass(frozen=True)
class Window:
    """The span that is asked about, Unix time on the console's clock. None: to its end."""

    since_ns: int | None = None
    until_ns: int | None = None

    def on(self, clock: Clock | None) -> dict[str, int | None]:
        """The same span on a node's clock."""
        offset_ns = clock.offset_ns if clock else 0
        spans = {"since_ns": self.since_ns, "until_ns": self.until_ns}
        return {key: None if at is None else at + offset_ns for key, at in spans.items()}


class Gather:
    """One gather: hosts are greeted once, then asked in phases over the same connections.

    A context manager; leaving it closes every connection. `stop` may be called at any time from
    the event loop: whoever has not answered by then is not waited for.
    """

    def __init__(
        self,
        transport: Transport,
        hosts: Sequence[str],
        window: Window,
        folder: Path,
        *,
        patience_s: float = 20.0,
        at_once: int = AT_ONCE,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        """`folder` takes the answers; `patience_s` is how long one phase may take a host, and
        `at_once` how many may send evidence at a time."""
        self._transport = transport
        self._window = window
        self._folder = folder
        self._patience_s = patience_s
        self._progress = progress
        self._hosts = {name: Host(name, number) for number, name in enumerate(hosts)}
        self._stopped = asyncio.Event()
        self._slots = asyncio.Semaphore(at_once)
        self._phase = Progress("greet", 0, 0, 0)
        self._leaving: list[asyncio.Task[None]] = []  # of hosts that were replaced
        self.parts: list[ReceivedPart] = []

    async def __aenter__(self) -> Gather:
        for host in self._hosts.values():
            host.attend(self._transport, self._count)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for host in self._hosts.values():
            host.leave()
        left = (host.left() for host in self._hosts.values())
        await asyncio.gather(*left, *self._leaving, return_exceptions=True)

    def turn(self, window: Window, folder: Path) -> None:
        """Ask about another span, of hosts as they were greeted. What came before is forgotten."""
        self._window, self._folder = window, folder
        self._stopped = asyncio.Event()
        self._phase = Progress("greet", 0, 0, 0)
        self.parts = []

    def again(self, window: Window, folder: Path) -> None:
        """Begin anew, over the connections that hold: whoever failed is tried once more, without
        the others waiting for it; whoever knows nothing of the job is left alone. What came before
        is forgotten."""
        self.turn(window, folder)
        self._leaving = [task for task in self._leaving if not task.done()]
        for name, host in self._hosts.items():
            if host.outcome.kind in ("ok", "no-data") or host.trying is not None:
                host.greeted = host.outcome.kind == "no-data"
                continue
            host.leave()
            self._leaving.append(asyncio.create_task(host.left()))
            fresh = self._hosts[name] = Host(name, host.number)
            if host.outcome.kind != "interrupted":
                fresh.try_again(host.outcome, window.since_ns, self._patience_s)
            fresh.attend(self._transport, self._count)

    def stop(self) -> None:
        """Wait for nobody any more; what has arrived counts."""
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    @property
    def answers(self) -> Answers:
        """What has arrived."""
        hosts = self._hosts
        return Answers(
            parts=tuple(self.parts),
            outcomes={name: host.outcome for name, host in hosts.items()},
            clocks={name: each.clock for name, each in hosts.items() if each.clock is not None},
        )

    # ------------------------------------------------------------------ phases

    async def greet(self) -> Mapping[str, Outcome]:
        """Greet every host that is not greeted yet; returns what became of each."""
        late = [each for each in self._hosts.values() if each.trying is not None]
        known = [
            name for name, each in self._hosts.items() if not each.greeted and each.trying is None
        ]
        await asyncio.gather(self._run("greet", known, self._greet), grace(late))
        for host in late:
            host.take_in()
        for name, why in claimed_twice(self.answers.outcomes.values()).items():
            self._hosts[name].fail("protocol", why)
        return self.answers.outcomes

    async def digest(self, job: str) -> None:
        """Ask all hosts that see the job for its digest; the others have no data."""
        nodes = []
        for name, host in self._hosts.items():
            if host.outcome.kind == "ok" and job in jobs_of(host.outcome):
                nodes.append(name)
            elif host.outcome.kind == "ok":
                host.fail("no-data")
        budget = max(LEAST_NODE_ROWS, min(NODE_ROWS, CONSOLE_ROWS // max(1, len(nodes))))
        request = Request("digest", job=job, budget_rows=budget)
        await self._run("digest", nodes, lambda host: self._fetch(host, request), self._slots)

    async def detail(
        self, job: str, comms: Mapping[str, Sequence[int]], tables: Sequence[str] = ()
    ) -> None:
        """Ask hosts for all operations of communicators (host -> communicators, none: all), or
        for these tables alone."""
        asked = {name: of for name, of in comms.items() if self._hosts[name].outcome.kind == "ok"}
        budget = max(LEAST_NODE_ROWS, min(DETAIL_ROWS, CONSOLE_ROWS // max(1, len(asked))))
        request = Request("detail", job=job, budget_rows=budget, tables=tuple(tables))

        async def fetch(host: Host) -> None:
            await self._fetch(host, replace(request, comms=tuple(asked[host.name])))

        await self._run("detail", asked, fetch, self._slots)

    async def each(self, phase: str, requests: Mapping[str, Request]) -> None:
        """Ask hosts each its own request (host -> request); ends are added to their status."""
        asked = {
            name: request
            for name, request in requests.items()
            if self._hosts[name].outcome.kind == "ok"
        }

        async def fetch(host: Host) -> None:
            await self._fetch(host, asked[host.name])

        await self._run(phase, asked, fetch)

    def leave_out(self, name: str, kind: Kind, message: str) -> None:
        """Ask a host no more, and say why."""
        self._hosts[name].fail(kind, message)

    async def _greet(self, host: Host) -> None:
        await host.greet(self._window.since_ns)

    async def _fetch(self, host: Host, request: Request) -> None:
        request = replace(request, **self._window.on(host.clock))  # type: ignore[arg-type]
        sink = FolderSink(
            self._folder / f"{len(self.parts)}-{request.ask}-{host.number}", host.name
        )
        try:
            end = await host.ask(lambda c: c.ask(request, sink))
        except BaseException:
            # Parts of a broken answer are not used: half a selection would look like silence.
            shutil.rmtree(sink.folder, ignore_errors=True)
            raise
        self.parts += sink.parts
        # Who it is and what it sees it has said at the greeting, and that was looked at.
        more = {key: value for key, value in end.status.items() if key not in ("node", "jobs")}
        host.outcome = replace(host.outcome, status={**host.outcome.status, **more})

    async def _run(
        self,
        phase: str,
        hosts: Iterable[str],
        ask: Callable[[Host], Awaitable[None]],
        slots: AbstractAsyncContextManager[Any] | None = None,
    ) -> None:
        """Ask hosts at once, as far as there are slots, until all have answered or failed, or we
        stop."""
        asked = [self._hosts[name] for name in hosts]
        self._phase = Progress(phase, 0, len(asked), self._phase.bytes)
        self._tell()

        async def one(host: Host) -> None:
            try:
                async with slots or nullcontext(), asyncio.timeout(self._patience_s):
                    await ask(host)
            except TimeoutError:
                host.fail("timeout", f"no answer within {self._patience_s:g} s")
            except HostError as error:
                host.fail(error.kind, str(error))
            else:
                self._phase = replace(self._phase, answered=self._phase.answered + 1)
                self._tell()

        asking = [asyncio.create_task(one(host)) for host in asked]
        stopping = asyncio.create_task(self._stopped.wait())
        try:
            left: set[asyncio.Task[Any]] = set(asking)
            while left and not self._stopped.is_set():
                _, waiting = await asyncio.wait(
                    {*left, stopping}, return_when=asyncio.FIRST_COMPLETED
                )
                left = waiting - {stopping}
        finally:
            for task in (*asking, stopping):
                task.cancel()
            await asyncio.gather(*asking, stopping, return_exceptions=True)
        for host, task in zip(asked, asking, strict=True):
            if task.cancelled():
                host.fail("interrupted")

    def _count(self, received: int) -> None:
        self._phase = replace(self._phase, bytes=self._phase.bytes + received)

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self._phase)
