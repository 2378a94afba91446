"""Gather the evidence of a job from its nodes, with whatever arrives in time.

    greet     every host: its versions, jobs and clock
    digest    the job's nodes: a thinned selection, enough to see which rulebooks start
    detail    the nodes with members of the suspect communicators: all of their operations

A host that fails at any point becomes an outcome, never an exception. A gather that is stopped
continues with what has arrived.
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

from oncall.core.defects import described
from oncall.fleet.host import Host, grace
from oncall.fleet.merge import Answers
from oncall.fleet.outcome import (
    ANSWERED,
    HostError,
    Kind,
    Outcome,
    claimed_twice,
    jobs_of,
)
from oncall.fleet.transport import Clock, FolderSink, Transport
from oncall.node.store.parts import ReceivedPart
from oncall.node.store.wire import Request

# A console can hold about CONSOLE_ROWS operations; a node sends at most NODE_ROWS of them.
CONSOLE_ROWS = 3_000_000
NODE_ROWS = 25_000
LEAST_NODE_ROWS = 4_000
DETAIL_ROWS = 400_000
AT_ONCE = 64


@dataclass(frozen=True)
class Progress:
    """The progress of a gather, for a line on a terminal."""

    phase: str
    answered: int
    asked: int
    bytes: int


@dataclass(frozen=True)
class Window:
    """The requested time window, Unix time on the console's clock. None: unbounded."""

    since_ns: int | None = None
    until_ns: int | None = None

    def on(self, clock: Clock | None) -> dict[str, int | None]:
        """The same span on a node's clock."""
        offset_ns = clock.offset_ns if clock else 0
        spans = {"since_ns": self.since_ns, "until_ns": self.until_ns}
        return {key: None if at is None else at + offset_ns for key, at in spans.items()}


class Gather:
    """One gather: greets hosts once, then queries them in phases over the same connections.

    A context manager; leaving it closes every connection. `stop` may be called at any time from
    the event loop: hosts that have not answered by then are left out.
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
        """`folder` receives the answers; `patience_s` is the time limit of a host for one phase,
        and `at_once` the number of hosts that may send evidence at a time."""
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
        self._held: set[tuple[str, str]] = set()  # (host, job) of earlier answers
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
        """Query another window from the greeted hosts. Earlier answers are dropped."""
        self._window, self._folder = window, folder
        self._stopped = asyncio.Event()
        self._phase = Progress("greet", 0, 0, 0)
        self.parts = []

    def again(self, window: Window, folder: Path) -> None:
        """Start over on the open connections. Hosts that failed are retried in the background;
        those without the job are not asked again. Earlier answers are dropped."""
        self.turn(window, folder)
        self._leaving = [task for task in self._leaving if not task.done()]
        for name, host in self._hosts.items():
            if host.outcome.kind in ANSWERED or host.trying is not None:
                host.greeted = host.outcome.kind == "no-data"
                continue
            host.leave()
            self._leaving.append(asyncio.create_task(host.left()))
            fresh = self._hosts[name] = Host(name, host.number)
            if host.outcome.kind != "interrupted":
                fresh.try_again(host.outcome, window.since_ns, self._patience_s)
            fresh.attend(self._transport, self._count)

    def stop(self) -> None:
        """Stop waiting; keep what has arrived."""
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
        """Greet every host that is not greeted yet; returns the outcome of each."""
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
        """Request the digest from all hosts that have the job."""
        nodes = []
        for name, host in self._hosts.items():
            if host.outcome.kind != "ok":
                continue
            if job in jobs_of(host.outcome):
                nodes.append(name)
                self._held.add((name, job))
            elif (name, job) in self._held:
                # Still a node of the job: its collector died before it sealed a shard, or hangs.
                host.outcome = replace(host.outcome, kind="lost", message="")
            else:
                host.fail("no-data")
        budget = max(LEAST_NODE_ROWS, min(NODE_ROWS, CONSOLE_ROWS // max(1, len(nodes))))
        request = Request("digest", job=job, budget_rows=budget)
        await self._run("digest", nodes, lambda host: self._fetch(host, request), self._slots)

    async def detail(
        self,
        job: str,
        comms: Mapping[str, Sequence[int]],
        tables: Sequence[str] = (),
        until_ns: Mapping[str, int] | None = None,
    ) -> None:
        """Request all operations of communicators (host -> communicators, none: all), or only
        these tables; `until_ns` (host -> instant on its clock): nothing that began later."""
        asked = {name: of for name, of in comms.items() if self._hosts[name].outcome.kind == "ok"}
        budget = max(LEAST_NODE_ROWS, min(DETAIL_ROWS, CONSOLE_ROWS // max(1, len(asked))))
        request = Request("detail", job=job, budget_rows=budget, tables=tuple(tables))

        async def fetch(host: Host) -> None:
            until = (until_ns or {}).get(host.name)
            await self._fetch(host, replace(request, comms=tuple(asked[host.name])), until)

        await self._run("detail", asked, fetch, self._slots)

    async def each(self, phase: str, requests: Mapping[str, Request]) -> None:
        """Send each host its own request (host -> request); ends are added to its status."""
        asked = {
            name: request
            for name, request in requests.items()
            if self._hosts[name].outcome.kind == "ok"
        }

        async def fetch(host: Host) -> None:
            await self._fetch(host, asked[host.name])

        await self._run(phase, asked, fetch)

    def leave_out(self, name: str, kind: Kind, message: str) -> None:
        """Stop querying a host, for the given reason."""
        self._hosts[name].fail(kind, message)

    async def _greet(self, host: Host) -> None:
        await host.greet(self._window.since_ns)

    async def _fetch(self, host: Host, request: Request, until_ns: int | None = None) -> None:
        request = replace(request, **self._window.on(host.clock))  # type: ignore[arg-type]
        if request.until_ns is None:
            request = replace(request, until_ns=until_ns)
        sink = FolderSink(
            self._folder / f"{len(self.parts)}-{request.ask}-{host.number}", host.name
        )
        try:
            end = await host.ask(lambda c: c.ask(request, sink))
        except BaseException:
            # Drop the parts of a broken answer: missing rows would look like idle ranks.
            shutil.rmtree(sink.folder, ignore_errors=True)
            raise
        self.parts += sink.parts
        # The greeting has set the node's name and jobs, which were checked.
        more = {key: value for key, value in end.status.items() if key not in ("node", "jobs")}
        host.outcome = replace(host.outcome, status={**host.outcome.status, **more})

    async def _run(
        self,
        phase: str,
        hosts: Iterable[str],
        ask: Callable[[Host], Awaitable[None]],
        slots: AbstractAsyncContextManager[Any] | None = None,
    ) -> None:
        """Query hosts concurrently within `slots`, until all have answered or failed or the gather
        is stopped."""
        asked = [self._hosts[name] for name in hosts]
        self._phase = Progress(phase, 0, len(asked), self._phase.bytes)
        self._report_progress()

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
                self._report_progress()

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
            elif (error := task.exception()) is not None:  # one host's must not cost the others
                host.fail("error", described(error))

    def _count(self, received: int) -> None:
        self._phase = replace(self._phase, bytes=self._phase.bytes + received)

    def _report_progress(self) -> None:
        if self._progress is not None:
            self._progress(self._phase)
