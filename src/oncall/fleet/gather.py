"""Gather the evidence of a job from its nodes, with whatever arrives in time.

    greet     every host: its versions, jobs and clock
    digest    the job's nodes: a thinned selection, enough to see which rulebooks start
    detail    the nodes with members of the suspect communicators: all of their operations

A host that fails at any point becomes an outcome, never an exception. A gather that is stopped
continues with what has arrived. Hosts behind a gateway are asked through it (branch.py), and
directly once it fails: its answer counts as a whole or not at all, so nothing is lost or counted
twice.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oncall.core.defects import described
from oncall.fleet.branch import GATEWAY_MARGIN_S, STOP_S, Branch, BranchSink, Order, Tree
from oncall.fleet.host import LATE_S, Asking, Host, grace
from oncall.fleet.merge import Answers
from oncall.fleet.outcome import (
    ANSWERED,
    HostError,
    Kind,
    Outcome,
    claimed_twice,
    jobs_of,
)
from oncall.fleet.transport import Clock, FolderSink, Transport, opened
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
        folder: Path | None = None,
        *,
        patience_s: float = 20.0,
        at_once: int = AT_ONCE,
        tree: Tree | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        """`folder` receives the answers, None: a temporary one, until leaving; `patience_s` is the
        time limit of a host for one phase, `at_once` the number of hosts or gateways that may send
        evidence at a time, and `tree` says which hosts are asked through gateways."""
        self._transport = transport
        self._window = window
        self._folder = folder or Path()
        self._patience_s = patience_s
        self._progress = progress
        self._hosts = {name: Host(name, number) for number, name in enumerate(hosts)}
        self._stopped = asyncio.Event()
        self._slots = asyncio.Semaphore(at_once)
        self._phase = Progress("greet", 0, 0, 0)
        self._leaving: list[asyncio.Task[None]] = []  # of hosts that were replaced
        self._held: set[tuple[str, str]] = set()  # (host, job) of earlier answers
        self._tree = tree
        self._branches: dict[str, Branch] = {}  # by gateway
        self._stack = AsyncExitStack()
        self._own = Path()  # for answers that may come after the gather that asked
        self.parts: list[ReceivedPart] = []

    async def __aenter__(self) -> Gather:
        made = tempfile.TemporaryDirectory(prefix="oncall-gather-")
        self._own = Path(self._stack.enter_context(made))
        if self._folder == Path():
            self._folder = self._own
        if self._tree is not None:
            await self._stack.enter_async_context(opened(self._tree.transport))
            for name in dict.fromkeys(filter(None, map(self._tree.gateway_of.get, self._hosts))):
                self._open_branch(name)
        for host in self._hosts.values():
            if self._branch(host) is None:
                host.attend(self._transport, self._count)
        return self

    async def __aexit__(self, *_: object) -> None:
        everybody = [*self._hosts.values(), *(each.gateway for each in self._branches.values())]
        for host in everybody:
            host.leave()
        left = (host.left() for host in everybody)
        await asyncio.gather(*left, *self._leaving, return_exceptions=True)
        await self._stack.aclose()

    def _open_branch(self, gateway: str) -> None:
        assert self._tree is not None
        self._branches[gateway] = Branch(Host(gateway, 0), self._tree.transport, self._count)

    def _branch(self, host: Host) -> Branch | None:
        """The branch that the host is asked through; None: it is asked directly."""
        gateway = self._tree.gateway_of.get(host.name) if self._tree is not None else None
        branch = self._branches.get(gateway) if gateway is not None else None
        return branch if branch is not None and branch.lost is None else None

    @property
    def lost_gateways(self) -> Mapping[str, str]:
        """Gateway -> why its hosts were asked directly."""
        return {name: each.lost for name, each in self._branches.items() if each.lost is not None}

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
        for gateway, branch in self._branches.items():
            if branch.may_be_back:
                self._leaving.append(asyncio.create_task(branch.gateway.left()))
                self._open_branch(gateway)
        for host in list(self._hosts.values()):
            through = self._branch(host) is not None  # its gateway tries again in the background
            if not through and host.asking is not None and host.asking.seconds < LATE_S:
                host.go_on()
            elif host.outcome.kind in ANSWERED or (host.trying is not None and not through):
                host.greeted = host.outcome.kind == "no-data"
            else:
                fresh = self._renew(host)
                if through:
                    continue
                if host.outcome.kind != "interrupted":
                    patience_s = max(LATE_S, self._patience_s)
                    fresh.try_again(host.outcome, window.since_ns, patience_s)
                fresh.attend(self._transport, self._count)

    def _renew(self, host: Host) -> Host:
        """Begin anew with a host: neither greeted nor connected."""
        host.leave()
        self._leaving.append(asyncio.create_task(host.left()))
        fresh = self._hosts[host.name] = Host(host.name, host.number)
        return fresh

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
        known = [name for name, one in self._hosts.items() if not (one.greeted or one.trying)]
        hello = Request("hello", since_ns=self._window.since_ns)
        await asyncio.gather(self._run("greet", dict.fromkeys(known, hello)), grace(late))
        for host in late:
            host.take_in()
        for name, why in claimed_twice(self.answers.outcomes.values()).items():
            self._hosts[name].fail("protocol", why)
        return self.answers.outcomes

    async def digest(self, job: str, tables: Sequence[str] = ()) -> None:
        """Request the digest from all hosts that have the job; with `tables`, of these alone."""
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
        request = Request("digest", job=job, budget_rows=budget, tables=tuple(tables))
        await self._run("digest", dict.fromkeys(nodes, request), self._slots)

    async def detail(
        self,
        job: str,
        comms: Mapping[str, Sequence[int]],
        tables: Sequence[str] = (),
        until_ns: Mapping[str, int] | None = None,
    ) -> None:
        """Request all operations of communicators (host -> communicators, none: all), or only
        these tables; `until_ns` (host -> instant on its clock): nothing that began later."""
        hosts = ((name, self._hosts[name]) for name in comms)
        # One that was late with its digest answers the next already.
        there = [name for name, host in hosts if host.outcome.kind == "ok" and not host.asking]
        budget = max(LEAST_NODE_ROWS, min(DETAIL_ROWS, CONSOLE_ROWS // max(1, len(there))))
        request = Request("detail", job=job, budget_rows=budget, tables=tuple(tables))
        requests = {
            name: replace(request, comms=tuple(comms[name]), until_ns=(until_ns or {}).get(name))
            for name in there
        }
        await self._run("detail", requests, self._slots)

    async def each(self, phase: str, requests: Mapping[str, Request]) -> None:
        """Send each host its own request (host -> request); ends are added to its status."""
        asked = {
            name: request
            for name, request in requests.items()
            if self._hosts[name].outcome.kind == "ok"
        }
        await self._run(phase, asked)

    def leave_out(self, name: str, kind: Kind, message: str) -> None:
        """Stop querying a host, for the given reason."""
        self._hosts[name].fail(kind, message)

    async def _fetch(self, host: Host, request: Request) -> None:
        spans = self._window.on(host.clock)
        request = replace(
            request, since_ns=spans["since_ns"], until_ns=spans["until_ns"] or request.until_ns
        )
        is_late = host.asking is not None
        asking = host.asking or self._begin(host, request)
        if not asking.answers(request):
            raise TimeoutError
        try:
            end, seconds = await asyncio.shield(asking.end)
        except asyncio.CancelledError:
            raise  # it goes on, if it is only late
        except BaseException:
            # Drop the parts of a broken answer: missing rows would look like idle ranks.
            shutil.rmtree(asking.sink.folder, ignore_errors=True)
            host.asking = None
            raise
        host.asking = None
        self.parts += asking.sink.moved_to(self._folder)
        host.add_status(end.status)
        host.took(seconds)
        if is_late:
            self._begin(host, request)

    def _begin(self, host: Host, request: Request) -> Asking:
        folder = tempfile.mkdtemp(prefix=f"{request.ask}-{host.number}-", dir=self._own)
        return host.begin(request, FolderSink(Path(folder), host.name))

    async def _fetch_through(self, branch: Branch, requests: Mapping[str, Request]) -> None:
        """Have a gateway ask its hosts. Raises HostError if it did not."""
        spans = self._window.on(await branch.clock())
        order = Order(requests, spans["since_ns"], spans["until_ns"], self._patience_s)
        of = next(iter(requests.values())).ask
        sink = BranchSink(
            self._folder / f"{len(self.parts)}-{of}-{branch.gateway.name}",
            branch.gateway.name,
            self._answered,
        )
        try:
            became = await branch.ask(order, sink)
        except BaseException:
            shutil.rmtree(sink.folder, ignore_errors=True)
            raise
        self.parts += sink.of_nodes()
        for name, (outcome, clock) in became.items():
            host = self._hosts[name]
            host.clock = clock or host.clock
            if of == "hello":
                host.outcome, host.greeted = outcome, True
            elif outcome.kind == "ok":
                host.add_status(outcome.status)
                host.took(outcome.seconds)
            elif outcome.kind == "timeout" and outcome.seconds:
                host.be_late(outcome.seconds)
            else:
                host.fail(outcome.kind, outcome.message)

    async def _run(
        self,
        phase: str,
        requests: Mapping[str, Request],
        slots: AbstractAsyncContextManager[Any] | None = None,
    ) -> None:
        """Query hosts concurrently within `slots`, until all have answered or failed or the gather
        is stopped."""
        asked = [self._hosts[name] for name in requests]
        self._phase = Progress(phase, 0, len(asked), self._phase.bytes)
        self._report_progress()
        slots = slots or nullcontext()
        branches: dict[Branch, list[Host]] = defaultdict(list)
        asking: dict[asyncio.Task[None], Sequence[Host]] = {}
        for host in asked:
            if (branch := self._branch(host)) is not None:
                branches[branch].append(host)
            else:
                asking[asyncio.create_task(self._ask(host, requests, slots))] = [host]
        for branch, behind in branches.items():
            through = self._ask_through(branch, behind, requests, slots)
            asking[asyncio.create_task(through)] = behind
        await self._wait_for(asking, branches)
        for task, hosts in asking.items():
            if task.cancelled():
                for host in hosts:
                    host.fail("interrupted")
            elif (error := task.exception()) is not None:  # one host's must not cost the others
                for host in hosts:
                    host.fail("error", described(error))

    async def _ask(
        self, host: Host, requests: Mapping[str, Request], slots: AbstractAsyncContextManager[Any]
    ) -> None:
        """Send one host its request; whatever happens becomes its outcome."""
        request = requests[host.name]
        try:
            async with slots, asyncio.timeout(self._patience_s):
                if request.ask == "hello":
                    began_s = time.monotonic()
                    await host.greet(request.since_ns)
                    host.took(time.monotonic() - began_s)
                else:
                    await self._fetch(host, request)
        except TimeoutError:
            if host.asking is not None:
                host.be_late(host.asking.seconds)
            else:
                host.fail("timeout", f"no answer within {self._patience_s:g} s")
        except HostError as error:
            host.fail(error.kind, str(error))
        except Exception as error:  # a defect with one host must not cost the others
            host.fail("error", described(error))
        else:
            self._answered()

    async def _ask_through(
        self,
        branch: Branch,
        hosts: Sequence[Host],
        requests: Mapping[str, Request],
        slots: AbstractAsyncContextManager[Any],
    ) -> None:
        """Send the hosts of a gateway their requests through it, or directly if it fails."""
        patience_s = self._patience_s + GATEWAY_MARGIN_S
        try:
            async with slots, asyncio.timeout(patience_s):
                of_branch = {host.name: requests[host.name] for host in hosts}
                await self._fetch_through(branch, of_branch)
        except Exception as error:  # whatever it is, its nodes must not be lost with it
            behind = [host for host in self._hosts.values() if self._branch(host) is branch]
            branch.lose(error)
            for host in behind:
                host.attend(self._transport, self._count)
            await asyncio.gather(*(self._ask(host, requests, slots) for host in hosts))
            for host in hosts:
                host.blame_gateway(branch.gateway.name, branch.lost)

    async def _wait_for(
        self, asking: Iterable[asyncio.Task[None]], branches: Collection[Branch]
    ) -> None:
        """Wait until all tasks have ended or the gather is stopped, then cancel what is left."""
        asking = list(asking)
        stopping = asyncio.create_task(self._stopped.wait())
        try:
            left: set[asyncio.Task[Any]] = set(asking)
            while left and not self._stopped.is_set():
                _, waiting = await asyncio.wait(
                    {*left, stopping}, return_when=asyncio.FIRST_COMPLETED
                )
                left = waiting - {stopping}
            for branch in branches if left else ():  # it hands on what it has
                with suppress(HostError, OSError):
                    await branch.stop()
            if left and branches:
                await asyncio.wait(left, timeout=STOP_S)
        finally:
            for task in (*asking, stopping):
                task.cancel()
            await asyncio.gather(*asking, stopping, return_exceptions=True)

    def _answered(self) -> None:
        self._phase = replace(self._phase, answered=self._phase.answered + 1)
        self._report_progress()

    def _count(self, received: int) -> None:
        self._phase = replace(self._phase, bytes=self._phase.bytes + received)

    def _report_progress(self) -> None:
        if self._progress is not None:
            self._progress(self._phase)
