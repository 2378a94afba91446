"""The nodes of a fleet, queried over connections that stay open, for threads that may block.

Gathers and queries for one node's finer data use separate connections, so a query about what is
under the cursor never waits for a gather.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from oncall.console.cancellation import Lane, Task
from oncall.console.history import Gathered, probed_hosts
from oncall.console.last_answers import LastAnswers
from oncall.console.source import Finer
from oncall.core.errors import UsageError
from oncall.core.printable import clean
from oncall.core.units import NS_PER_S
from oncall.evidence.incident import Incident
from oncall.fleet.ask import Starting, gather_job, thinned_communicators, what_became
from oncall.fleet.checkup.doctor import way_to
from oncall.fleet.gather import Gather, Progress, Window
from oncall.fleet.merge import merge
from oncall.fleet.probe import Probed, ProbeOrder, probe_fleet
from oncall.fleet.reach import Reach
from oncall.fleet.read_only import RemoteCommand
from oncall.fleet.ssh.transport import SshTransport
from oncall.fleet.stacks import TakenStacks, stacks_over
from oncall.fleet.transport import Transport, opened
from oncall.node.store.wire import Request

_FRESH_NS = 10 * NS_PER_S  # of greetings: who found the jobs need not be asked once more for one
_RUN_S, _MOST_PRINTED = 60.0, 256 * 1024  # of a command run for the reader
_PHASES = {
    "greet": "{} of {} hosts answered",
    "listen": "{} of {} nodes are listening",
    "ping": "pings of {} of {} nodes",
}


@dataclass
class _Line:
    """A gather whose connections stay, and what closes them."""

    gather: Gather
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)


class Nodes:
    """Asks nodes. Two threads may call at once: one gathers, the other asks for `finer`."""

    def __init__(
        self,
        reach: Reach,
        starting: Starting,
        clock: Callable[[], int],
    ) -> None:
        """`starting` says of which communicators all operations are worth fetching. Nothing is
        asked yet."""
        self._reach = reach
        self._starting = starting
        self._clock = clock
        self._loop = LoopThread("fleet")
        self._transport: Transport | None = None
        self._stack = AsyncExitStack()
        self._all: _Line | None = None
        self._one: tuple[str, _Line] | None = None  # the host whose finer grain was asked last
        self.last = LastAnswers(way_to(reach.transport))
        self._progress: Progress | None = None
        self._probing: Progress | None = None
        self._greeted_ns: int | None = None  # when all were greeted, and not asked more since

    # ------------------------------------------------------------------ asking

    def greet(self, folder: Path, task: Task) -> None:
        """Ask every host what it is. Raises Interrupted."""
        self._stopping(task, lambda: self._all)
        self._loop.run(self._greeted(folder))
        task.check()

    def gather(
        self,
        job: str | None,
        since_ns: int | None,
        until_ns: int | None,
        folder: Path,
        task: Task,
        tables: Sequence[str] = (),
    ) -> tuple[Incident, Gathered]:
        """A job's evidence of a span, its parts in `folder`; with `tables`, digests of these alone.
        Who asked closes the incident.

        Raises UsageError where the job is not there, Interrupted.
        """
        self._stopping(task, lambda: self._all)
        incident, gathered = self._loop.run(self._gathered(job, since_ns, until_ns, folder, tables))
        with incident.handed_on():
            task.check()
            return incident, gathered

    def finer(
        self, job: str, node: str, wanted: Finer, span: Window, folder: Path, task: Task
    ) -> Incident | None:
        """What a node holds on its finest grain; None where it does not answer."""
        hosts = {outcome.node: host for host, outcome in self.last.outcomes.items()}
        if node not in hosts:
            return None
        self._stopping(task, lambda: self._one and self._one[1])
        with tempfile.TemporaryDirectory(dir=folder) as place:
            return self._loop.run(self._detailed(job, hosts[node], wanted, span, Path(place)))

    def pulse(self, job: str, folder: Path) -> Mapping[str, int]:
        """By host, how much the job's ranks have recorded so far, asked over the connections that
        are open: it rises whenever one of them calls or ends. Empty where nobody says so."""
        return self._loop.run(self._pulsed(job, folder))

    def stacks(self, request: Request, folder: Path) -> TakenStacks:
        """The stacks of a job's processes, over the same connections. Raises UsageError."""
        return self._loop.run(self._stacked(request, folder))

    def probe(self, nodes: Sequence[str], task: Task) -> Probed:
        """Have nodes and some others ping one another, over connections of their own; stopped,
        with what has come. Who asked closes the incident. Raises UsageError."""
        hosts = probed_hosts(nodes, self.last.outcomes, random.Random())
        begun: list[Gather] = []

        def stop() -> None:
            for gather in begun:
                gather.stop()

        task.on_stop(lambda: self._loop.call(stop))
        try:
            return self._loop.run(self._probed(hosts, begun.append))
        finally:
            self._probing = None

    def run(self, command: RemoteCommand, task: Task) -> str:
        """What the command prints on its host. Raises UsageError, HostError, Interrupted."""
        running: list[asyncio.Task[str]] = []

        def stop() -> None:
            for one in running:
                one.cancel()

        task.on_stop(lambda: self._loop.call(stop))
        try:
            return self._loop.run(self._ran(command, running))
        finally:
            task.check()

    def by_hand(self, node: str, command: str) -> tuple[str, ...]:
        """The words that run a command on a node in the user's own terminal. Raises UsageError."""
        transport = self._reach.transport
        if not isinstance(transport, SshTransport):
            raise UsageError("only nodes that are reached over SSH can be gone to")
        hosts = {outcome.node: host for host, outcome in self.last.outcomes.items()}
        return transport.by_hand(hosts.get(node, node), command)

    def leave(self) -> None:
        """Close every connection; the next query opens them again."""
        self._loop.run(self._leave())

    def close(self) -> None:
        """Close every connection, for good."""
        if not self._loop.closed:
            self.leave()
            self._loop.close()

    # ------------------------------------------------------------ what they said

    def progress(self, lane: Lane) -> str:
        """The progress of the current gather or probe. From any thread."""
        now = {"snapshots": self._progress, "probes": self._probing}.get(lane)
        if now is None or now.answered == now.asked:
            return ""
        phrase = _PHASES.get(now.phase, "evidence of {} of {} nodes")
        return phrase.format(f"{now.answered:,}", f"{now.asked:,}")

    # ------------------------------------------------------------- in the loop

    def _stopping(self, task: Task, line: Callable[[], _Line | None]) -> None:
        """Let the task's end stop what is asked over a line, once there is one."""

        def stop() -> None:
            if (now := line()) is not None:
                now.gather.stop()

        task.on_stop(lambda: self._loop.call(stop))

    async def _greeted(self, folder: Path) -> None:
        self._greeted_ns = None  # who looks for jobs again wants those of now
        gather = await self._everybody(Window(), folder)
        await gather.greet()
        self._note(gather)
        self._greeted_ns = self._clock()

    async def _gathered(
        self,
        job: str | None,
        since_ns: int | None,
        until_ns: int | None,
        folder: Path,
        tables: Sequence[str],
    ) -> tuple[Incident, Gathered]:
        at_ns = self._clock() if until_ns is None else until_ns
        gather = await self._everybody(Window(since_ns, until_ns), folder)
        memory = self._reach.memory
        try:
            name, incident = await gather_job(gather, job, since_ns, self._starting, memory, tables)
        finally:
            self._note(gather)
        if not gather.parts:
            incident.close()
            raise UsageError(f"no host sent evidence: {what_became(gather.answers.outcomes)}")
        whole = not thinned_communicators(incident)
        return incident, Gathered(name, since_ns, at_ns, gather.answers, folder, whole)

    async def _pulsed(self, job: str, folder: Path) -> dict[str, int]:
        if self._all is None:
            return {}
        gather = self._all.gather
        gather.turn(Window(), folder)
        asked = [
            host
            for host, one in gather.answers.outcomes.items()
            if one.kind == "ok" and "pulse" in (one.status.get("asks") or ())
        ]
        await gather.each("pulse", dict.fromkeys(asked, Request("pulse", job=job)))
        said = {host: gather.answers.outcomes[host].status.get("pulse") for host in asked}
        return {host: records for host, records in said.items() if isinstance(records, int)}

    async def _stacked(self, request: Request, folder: Path) -> TakenStacks:
        if self._all is None:
            raise UsageError("no stacks: no node was asked yet")
        self._all.gather.turn(Window(), folder)
        return await stacks_over(self._all.gather, request)

    async def _detailed(
        self, job: str, host: str, wanted: Finer, span: Window, folder: Path
    ) -> Incident | None:
        if self._one is None or self._one[0] != host:
            if self._one is not None:
                await self._one[1].stack.aclose()
            self._one = host, await self._opened((host,), span, folder)
        else:
            self._one[1].gather.again(span, folder)
        gather = self._one[1].gather
        await gather.greet()
        await gather.detail(job, {host: wanted.comms}, wanted.tables)
        return await asyncio.to_thread(merge, gather.answers, job) if gather.parts else None

    async def _everybody(self, span: Window, folder: Path) -> Gather:
        """The one gather of all hosts, turned to another span."""
        greeted_ns, self._greeted_ns = self._greeted_ns, None
        if self._all is None:
            self._all = await self._opened(self._reach.hosts, span, folder, self._count)
        elif greeted_ns is not None and self._clock() - greeted_ns < _FRESH_NS:
            self._all.gather.turn(span, folder)
        else:
            self._all.gather.again(span, folder)
        return self._all.gather

    def _count(self, progress: Progress) -> None:
        self._progress = progress

    async def _opened(
        self,
        hosts: Sequence[str],
        span: Window,
        folder: Path,
        progress: Callable[[Progress], None] | None = None,
    ) -> _Line:
        transport = await self._reached()
        patience_s, at_once = self._reach.patience_s, self._reach.at_once
        line = _Line(
            Gather(
                transport,
                hosts,
                span,
                folder,
                patience_s=patience_s,
                at_once=at_once,
                tree=self._reach.tree,
                progress=progress,
            )
        )
        await line.stack.enter_async_context(line.gather)
        return line

    async def _reached(self) -> Transport:
        """The one transport, open."""
        if self._transport is None:
            self._transport = await self._stack.enter_async_context(opened(self._reach.transport))
        return self._transport

    async def _probed(self, hosts: Sequence[str], begun: Callable[[Gather], object]) -> Probed:
        def count(progress: Progress) -> None:
            self._probing = progress

        return await probe_fleet(
            await self._reached(),
            hosts,
            ProbeOrder(),
            patience_s=self._reach.patience_s,
            tree=self._reach.tree,
            progress=count,
            begun=begun,
        )

    async def _ran(self, command: RemoteCommand, running: list[asyncio.Task[str]]) -> str:
        transport = await self._reached()
        if not isinstance(transport, SshTransport):
            raise UsageError("commands are run over SSH alone; these nodes are reached otherwise")
        work = asyncio.create_task(transport.run(command.host, command.line, _MOST_PRINTED))
        running.append(work)
        try:
            async with asyncio.timeout(_RUN_S):
                return await work
        except TimeoutError:
            raise UsageError(f"it did not end within {_RUN_S:g} s") from None
        except asyncio.CancelledError:
            raise UsageError("stopped") from None

    async def _leave(self) -> None:
        lines = [self._all, self._one and self._one[1]]
        stack, self._stack = self._stack, AsyncExitStack()
        self._all = self._one = self._transport = self._greeted_ns = None
        for line in lines:
            if line is not None:
                await line.stack.aclose()
        await stack.aclose()

    def _note(self, gather: Gather) -> None:
        answers = gather.answers
        lost = {clean(gateway): clean(why) for gateway, why in gather.lost_gateways.items()}
        self.last = self.last.then(answers.outcomes, answers.clocks, lost, self._clock())


Result = TypeVar("Result")


class LoopThread:
    """Runs coroutines for other threads until it is closed."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The coroutine's result; blocks. Raises what it raises."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def call(self, function: Callable[[], object]) -> None:
        """Schedule a call in the loop. From any thread."""
        self._loop.call_soon_threadsafe(function)

    @property
    def closed(self) -> bool:
        return self._loop.is_closed()

    def close(self) -> None:
        """Cancel what is left, and end the thread."""
        if self.closed:
            return
        self.run(_cancel_the_rest())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


async def _cancel_the_rest() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
