"""One host of a gather: its connection and its outcome."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from oncall.core.defects import described
from oncall.fleet.outcome import (
    ANSWERED,
    HostError,
    Kind,
    Outcome,
    jobs_on_our_clock,
    needs_phrase,
)
from oncall.fleet.transport import Clock, Connection, FolderSink, Transport
from oncall.node.store.wire import End, Request

LATE_S = 60.0  # that a host which is there may need for an answer, or to greet in the background
_GRACE_S = 1.0  # for a host that failed before; a later answer is used the next time


@dataclass(frozen=True)
class Asking:
    """A question for evidence that a host has not answered yet, and since when (monotonic). `end`:
    the end of the answer, and how long it took to come."""

    request: Request
    sink: FolderSink
    end: asyncio.Task[tuple[End, float]]
    since_s: float

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.since_s

    def answers(self, request: Request) -> bool:
        """Whether it is this question, of a window that goes on to the present."""
        mine, theirs = (
            replace(one, since_ns=None, until_ns=None, budget_rows=0)
            for one in (self.request, request)
        )
        return self.request is request or (
            mine == theirs and self.request.until_ns is None and request.until_ns is None
        )


class Host:
    """A host to query. `number` is its position among the hosts of the gather."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.outcome = Outcome(name, "interrupted")
        self.clock: Clock | None = None
        self.greeted = False  # has answered `greet` or failed
        # The retry in the background of a host that failed; `outcome` is still the old one.
        self.trying: asyncio.Task[tuple[Outcome, Clock | None]] | None = None
        self.asking: Asking | None = None  # an answer may come after the gather that asked
        self._attending: asyncio.Task[None] | None = None
        self._connection: asyncio.Future[Connection] = asyncio.Future()
        self._turn = asyncio.Lock()
        self._left = asyncio.Event()

    # -------------------------------------------------------------- connection

    def attend(self, transport: Transport, progress: Callable[[int], None]) -> None:
        """Keep the connection open while it is needed; one task opens and closes it. `progress` is
        called with the number of bytes received."""
        if self._left.is_set():
            return
        self._attending = asyncio.create_task(self._attend(transport, progress))

    async def _attend(self, transport: Transport, progress: Callable[[int], None]) -> None:
        try:
            async with transport.connect(self.name) as connection:
                connection.progress = progress
                if not self._connection.done():
                    self._connection.set_result(connection)
                await self._left.wait()
        except HostError as error:
            self._lose(error)
        except OSError as error:
            self._lose(HostError("error", error.strerror or str(error)))
        except Exception as error:  # a bug with one host must not affect the others
            self._lose(HostError("error", described(error)))

    def _lose(self, error: HostError) -> None:
        """Record that there is no connection."""
        if not self._connection.done():
            self._connection.set_exception(error)

    async def ask(self, question: Callable[[Connection], Awaitable[Any]]) -> Any:
        """Send a request once connected, and once the one before is answered. Raises HostError."""
        connection = await asyncio.shield(self._connection)
        async with self._turn:
            return await question(connection)

    def begin(self, request: Request, sink: FolderSink) -> Asking:
        """Ask for evidence."""
        since_s = time.monotonic()

        async def answer() -> tuple[End, float]:
            end = await self.ask(lambda c: c.ask(request, sink, silence_s=LATE_S))
            return end, time.monotonic() - since_s

        self.asking = Asking(request, sink, asyncio.create_task(answer()), since_s)
        return self.asking

    def took(self, seconds: float) -> None:
        """It has answered, after so long."""
        self.outcome = replace(self.outcome, seconds=max(seconds, self.outcome.seconds))

    def be_late(self, seconds: float) -> None:
        """It is there, and has not answered a question for evidence yet."""
        said = needs_phrase(seconds, is_late=True)
        self.outcome = replace(self.outcome, kind="timeout", message=said, seconds=seconds)

    def go_on(self) -> None:
        """In the next gather it counts as greeted: its answer is still to come."""
        self.outcome = replace(self.outcome, kind="ok", message="", seconds=0.0)
        self.greeted = True

    def add_status(self, status: Mapping[str, Any]) -> None:
        """Add what it says at the end of an answer; the greeting has set its name and its jobs,
        which were checked."""
        more = {key: value for key, value in status.items() if key not in ("node", "jobs")}
        self.outcome = replace(self.outcome, status={**self.outcome.status, **more})

    def fail(self, kind: Kind, message: str = "") -> None:
        """Record the failure and disconnect."""
        self.greeted = True
        self.outcome = replace(self.outcome, kind=kind, message=message, seconds=0.0)
        self.leave()

    def blame_gateway(self, gateway: str, why: str | None) -> None:
        """Add to a failure that the gateway before had failed, too."""
        if self.outcome.kind not in ANSWERED:
            said = f"{self.outcome.message}; " if self.outcome.message else ""
            self.outcome = replace(self.outcome, message=f"{said}its gateway {gateway}: {why}")

    def leave(self) -> None:
        """Close the connection, or stop connecting."""
        self._left.set()
        for task in (self.trying, self.asking.end if self.asking else None):
            if task is not None:
                task.cancel()
        if not self._connection.done():
            self._connection.cancel()
            if self._attending is not None:
                self._attending.cancel()
        elif not self._connection.cancelled():
            self._connection.exception()  # retrieved, or asyncio would log it

    async def left(self) -> None:
        """Wait until its tasks have ended, after `leave`."""
        asking = self.asking.end if self.asking else None
        tasks = [task for task in (self._attending, self.trying, asking) if task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.asking is not None:
            shutil.rmtree(self.asking.sink.folder, ignore_errors=True)

    # ---------------------------------------------------------------- greeting

    async def greet(self, since_ns: int | None) -> None:
        """Query its status, its jobs since then, and its clock. Raises HostError."""
        self.outcome, self.clock = await self._greeting(since_ns)
        self.greeted = True

    async def _greeting(self, since_ns: int | None) -> tuple[Outcome, Clock]:
        """Its status, with the times of its jobs on the console's clock."""
        hello = Request("hello", since_ns=since_ns)
        end = await self.ask(lambda c: c.hello(hello, silence_s=LATE_S))
        clock: Clock = await self.ask(lambda c: c.measure_clock())
        status = {**end.status, "jobs": jobs_on_our_clock(end.status, clock.offset_ns)}
        return Outcome(self.name, "ok", status=status), clock

    def try_again(self, before: Outcome, since_ns: int | None, patience_s: float) -> None:
        """Greet it in the background; until it answers, its outcome stays `before`."""
        self.outcome = before
        self.trying = asyncio.create_task(self._try(since_ns, patience_s))

    async def _try(self, since_ns: int | None, patience_s: float) -> tuple[Outcome, Clock | None]:
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(patience_s):
                outcome, clock = await self._greeting(since_ns)
                return replace(outcome, seconds=time.monotonic() - began_s), clock
        except TimeoutError:
            return Outcome(self.name, "timeout", f"no answer within {patience_s:g} s"), None
        except HostError as error:
            return Outcome(self.name, error.kind, str(error)), None

    def take_in(self) -> None:
        """Use the result of the retry, if there is one."""
        if self.trying is not None and self.trying.done():
            self.outcome, self.clock = self.trying.result()
            self.greeted = True
            self.trying = None


async def grace(late: Sequence[Host]) -> None:
    """Give hosts that are being retried a moment while the others are greeted."""
    trying = [host.trying for host in late if host.trying is not None]
    if trying:
        await asyncio.wait(trying, timeout=_GRACE_S)
