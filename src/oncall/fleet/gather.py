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

from oncall.fleet.merge import Answers
from oncall.fleet.outcome import HostError, Kind, Outcome
from oncall.fleet.transport import Clock, Connection, FolderSink, Transport
from oncall.shards.parts import ReceivedPart
from oncall.shards.wire import Request

# A console holds about this many operations at ease, and one node sends at most so many.
CONSOLE_ROWS = 3_000_000
NODE_ROWS = 25_000
LEAST_NODE_ROWS = 4_000
DETAIL_ROWS = 400_000
AT_ONCE = 64
_GRACE_S = 1.0  # for a host that failed before; it counts the next time if it takes longer


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
        self._sessions = {host: _Session(host, number) for number, host in enumerate(hosts)}
        self._stopped = asyncio.Event()
        self._slots = asyncio.Semaphore(at_once)
        self._phase = Progress("greet", 0, 0, 0)
        self._leaving: list[asyncio.Task[None]] = []  # connections of sessions that were replaced
        self.parts: list[ReceivedPart] = []

    async def __aenter__(self) -> Gather:
        for session in self._sessions.values():
            session.task = asyncio.create_task(self._attend(session))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        sessions = self._sessions.values()
        tasks = [session.leave() for session in sessions]
        trying = [session.trying for session in sessions if session.trying is not None]
        await asyncio.gather(*tasks, *trying, *self._leaving, return_exceptions=True)

    def again(self, window: Window, folder: Path) -> None:
        """Begin anew, over the connections that hold: whoever failed is tried once more, without
        the others waiting for it; whoever knows nothing of the job is left alone. What came before
        is forgotten."""
        self._window, self._folder = window, folder
        self._stopped = asyncio.Event()
        self._phase = Progress("greet", 0, 0, 0)
        self.parts = []
        self._leaving = [task for task in self._leaving if not task.done()]
        for host, session in self._sessions.items():
            if session.outcome.kind in ("ok", "no-data") or session.trying is not None:
                continue
            self._leaving.append(session.leave())
            fresh = _Session(host, session.number)
            if session.outcome.kind != "interrupted":
                fresh.outcome = session.outcome
                fresh.trying = asyncio.create_task(self._try(fresh))
            fresh.task = asyncio.create_task(self._attend(fresh))
            self._sessions[host] = fresh

    def stop(self) -> None:
        """Wait for nobody any more; what has arrived counts."""
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    @property
    def answers(self) -> Answers:
        """What has arrived."""
        sessions = self._sessions
        return Answers(
            parts=tuple(self.parts),
            outcomes={host: session.outcome for host, session in sessions.items()},
            clocks={host: each.clock for host, each in sessions.items() if each.clock is not None},
        )

    # ------------------------------------------------------------------ phases

    async def greet(self) -> Mapping[str, Outcome]:
        """Greet every host; returns what became of each."""
        late = [each for each in self._sessions.values() if each.trying is not None]
        known = [
            host
            for host, each in self._sessions.items()
            if each.outcome.kind != "no-data" and each.trying is None
        ]
        await asyncio.gather(self._run("greet", known, self._greet), _grace(late))
        for session in late:
            session.take_in()
        return self.answers.outcomes

    async def digest(self, job: str) -> None:
        """Ask all hosts that see the job for its digest; the others have no data."""
        nodes = []
        for host, session in self._sessions.items():
            if session.outcome.kind == "ok" and job in jobs_of(session.outcome):
                nodes.append(host)
            elif session.outcome.kind == "ok":
                session.fail("no-data")
        budget = max(LEAST_NODE_ROWS, min(NODE_ROWS, CONSOLE_ROWS // max(1, len(nodes))))
        request = Request("digest", job=job, budget_rows=budget)
        await self._run("digest", nodes, lambda session: self._fetch(session, request), self._slots)

    async def detail(
        self, job: str, comms: Mapping[str, Sequence[int]], tables: Sequence[str] = ()
    ) -> None:
        """Ask hosts for all operations of communicators (host -> communicators, none: all), or
        for these tables alone."""
        asked = {
            host: of for host, of in comms.items() if self._sessions[host].outcome.kind == "ok"
        }
        budget = max(LEAST_NODE_ROWS, min(DETAIL_ROWS, CONSOLE_ROWS // max(1, len(asked))))
        request = Request("detail", job=job, budget_rows=budget, tables=tuple(tables))

        async def fetch(session: _Session) -> None:
            await self._fetch(session, replace(request, comms=tuple(asked[session.host])))

        await self._run("detail", asked, fetch, self._slots)

    async def each(self, phase: str, requests: Mapping[str, Request]) -> None:
        """Ask hosts each its own request (host -> request); ends are added to their status."""
        asked = {
            host: request
            for host, request in requests.items()
            if self._sessions[host].outcome.kind == "ok"
        }

        async def fetch(session: _Session) -> None:
            await self._fetch(session, asked[session.host])

        await self._run(phase, asked, fetch)

    def leave_out(self, host: str, kind: Kind, message: str) -> None:
        """Ask a host no more, and say why."""
        self._sessions[host].fail(kind, message)

    async def _greet(self, session: _Session) -> None:
        session.outcome, session.clock = await self._greeted(session)

    async def _greeted(self, session: _Session) -> tuple[Outcome, Clock]:
        since_ns = self._window.since_ns
        end = await session.ask(lambda c: c.hello(Request("hello", since_ns=since_ns)))
        clock: Clock = await session.ask(lambda c: c.measure_clock())
        return Outcome(session.host, "ok", status=end.status), clock

    async def _try(self, session: _Session) -> tuple[Outcome, Clock | None]:
        """What becomes of a host that has failed before, while nobody waits for it."""
        try:
            async with asyncio.timeout(self._patience_s):
                return await self._greeted(session)
        except TimeoutError:
            message = f"no answer within {self._patience_s:g} s"
            return Outcome(session.host, "timeout", message), None
        except HostError as error:
            return Outcome(session.host, error.kind, str(error)), None

    async def _fetch(self, session: _Session, request: Request) -> None:
        request = replace(request, **self._window.on(session.clock))  # type: ignore[arg-type]
        sink = FolderSink(
            self._folder / f"{len(self.parts)}-{request.ask}-{session.number}", session.host
        )
        try:
            end = await session.ask(lambda c: c.ask(request, sink))
        except BaseException:
            # Parts of a broken answer are not used: half a selection would look like silence.
            shutil.rmtree(sink.folder, ignore_errors=True)
            raise
        self.parts += sink.parts
        session.outcome = replace(session.outcome, status={**session.outcome.status, **end.status})

    async def _run(
        self,
        phase: str,
        hosts: Iterable[str],
        ask: Callable[[_Session], Awaitable[None]],
        slots: AbstractAsyncContextManager[Any] | None = None,
    ) -> None:
        """Ask hosts at once, as far as there are slots, until all have answered or failed, or we
        stop."""
        sessions = [self._sessions[host] for host in hosts]
        self._phase = Progress(phase, 0, len(sessions), self._phase.bytes)
        self._tell()

        async def one(session: _Session) -> None:
            try:
                async with slots or nullcontext(), asyncio.timeout(self._patience_s):
                    await ask(session)
            except TimeoutError:
                session.fail("timeout", f"no answer within {self._patience_s:g} s")
            except HostError as error:
                session.fail(error.kind, str(error))
            else:
                self._phase = replace(self._phase, answered=self._phase.answered + 1)
                self._tell()

        asking = [asyncio.create_task(one(session)) for session in sessions]
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
        for session, task in zip(sessions, asking, strict=True):
            if task.cancelled():
                session.fail("interrupted")

    # ------------------------------------------------------------- connections

    async def _attend(self, session: _Session) -> None:
        """Hold one host's connection as long as it is of use: opened and closed in one task."""
        try:
            async with self._transport.connect(session.host) as connection:
                connection.progress = self._count
                await session.serve(connection)
        except HostError as error:
            session.lose(error)
        except OSError as error:
            session.lose(HostError("error", error.strerror or str(error)))
        except Exception as error:  # a bug in reaching one host must not cost us the others
            session.lose(HostError("error", f"{type(error).__name__}: {error}"))

    def _count(self, received: int) -> None:
        self._phase = replace(self._phase, bytes=self._phase.bytes + received)

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self._phase)


class _Session:
    """One host: its connection, wherever that lives, and what became of it."""

    task: asyncio.Task[None]

    def __init__(self, host: str, number: int) -> None:
        self.host = host
        self.number = number
        self.outcome = Outcome(host, "interrupted")
        self.clock: Clock | None = None
        # Of a host that failed before: being greeted in the background, `outcome` the old one.
        self.trying: asyncio.Task[tuple[Outcome, Clock | None]] | None = None
        self._connection: asyncio.Future[Connection] = asyncio.Future()
        self._left = asyncio.Event()

    async def serve(self, connection: Connection) -> None:
        """Offer the connection to whoever asks, until we leave."""
        if not self._connection.done():
            self._connection.set_result(connection)
        await self._left.wait()

    async def ask(self, question: Callable[[Connection], Awaitable[Any]]) -> Any:
        """Ask over the connection, once it is there. Raises HostError."""
        connection = await asyncio.shield(self._connection)
        return await question(connection)

    def take_in(self) -> None:
        """Let what came of trying count, if it is there."""
        if self.trying is not None and self.trying.done():
            self.outcome, self.clock = self.trying.result()
            self.trying = None

    def lose(self, error: HostError) -> None:
        """There is no connection."""
        if not self._connection.done():
            self._connection.set_exception(error)

    def fail(self, kind: Kind, message: str = "") -> None:
        """It is of no more use."""
        self.outcome = replace(self.outcome, kind=kind, message=message)
        self.leave()

    def leave(self) -> asyncio.Task[None]:
        """Let go of the connection, or of the attempt to make one."""
        self._left.set()
        if self.trying is not None:
            self.trying.cancel()
        if not self._connection.done():
            self._connection.cancel()
            self.task.cancel()
        elif not self._connection.cancelled():
            self._connection.exception()  # seen, so that nobody reports it as forgotten
        return self.task


async def _grace(late: Sequence[_Session]) -> None:
    """Give hosts that are tried again a moment, while the others are greeted anyhow."""
    trying = [session.trying for session in late if session.trying is not None]
    if trying:
        await asyncio.wait(trying, timeout=_GRACE_S)


def jobs_of(outcome: Outcome) -> dict[str, int]:
    """The jobs that a greeted host sees, with the last instant of each."""
    told = outcome.status.get("jobs")
    jobs = told.items() if isinstance(told, dict) else ()
    return {
        name: seen["last_ns"]
        for name, seen in jobs
        if isinstance(seen, dict) and isinstance(seen.get("last_ns"), int)
    }
