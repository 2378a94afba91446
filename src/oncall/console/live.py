"""Worlds of a running job: its nodes are asked again and again, over connections that stay.

A world of now shows the last gather. One of the past is asked of the nodes' shards (up to then);
where no node answers, what was gathered earlier stands in. Shards in folders here are the same,
but that their now stands still.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from oncall.console.cancellation import Task
from oncall.console.history import Gathered, History
from oncall.console.loop import LoopThread
from oncall.console.replay import Evidence, Replay
from oncall.console.shelf import Shelf
from oncall.console.world import HostAnswer, JobLine, Moment
from oncall.errors import UsageError
from oncall.evidence import window
from oncall.evidence.incident import Incident
from oncall.fleet.ask import gather_job, merged, thinned_communicators, what_became
from oncall.fleet.gather import Gather, Window, jobs_of
from oncall.fleet.merge import merge
from oncall.fleet.outcome import Outcome
from oncall.fleet.reach import Reach, opened
from oncall.report.words import clean
from oncall.rules.rulebook import Rulebook
from oncall.rules.starts import started_communicators
from oncall.units import NS_PER_S

SINCE_NS = 600 * NS_PER_S
# A collector seals and answers within a minute; whoever was seen since then runs.
_RUNS_NS = 60 * NS_PER_S


class Fleet:
    """A source (oncall.console.replay) of nodes that are asked."""

    def __init__(
        self,
        reach: Reach,
        rulebooks: Callable[[], Iterable[Rulebook]],
        job: str | None = None,
        *,
        title: str | None = None,
        live: bool = True,
        since_ns: int | None = SINCE_NS,
        history: History | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """`rulebooks` say of which communicators more is worth fetching; `since_ns`: how far back
        a world looks (None: as far as there is anything). Nothing is asked yet."""
        self.live = live
        self.title = title or reach.source
        self._reach = reach
        self._rulebooks = rulebooks
        self._job = job
        self._since_ns = since_ns
        self._clock = clock
        self._history = history or History()
        self._folder = Path(tempfile.mkdtemp(prefix="oncall-live-"))
        self._loop = LoopThread("fleet")
        self._stack = AsyncExitStack()
        self._gather: Gather | None = None
        self._number = 0
        self._fresh: Incident | None = None  # of the last gather, not yet shown
        self._outcomes: Mapping[str, Outcome] = {}
        self._answered_ns: dict[str, int] = {}
        # What the cursor may range over: as far as was ever seen.
        self._first_ns: int | None = None
        self._last_ns: int | None = None

    # ---------------------------------------------------------------- questions

    def jobs(self, task: Task) -> tuple[JobLine, ...]:
        self._stop_with(task)
        self._loop.run(self._greeted())
        task.check()
        return self._job_lines()

    def choose(self, job: str) -> None:
        if job != self._job:
            self._job = job
            self._history.clear()
            self._drop_fresh()
            self._first_ns = None
            # Hosts that knew nothing of the one job may know of the other.
            self._loop.run(self._leave())

    def refresh(self, task: Task) -> None:
        """Where nobody answers any more, the last good answer stays; `hosts` tell its age."""
        try:
            incident, gathered = self._asked(None, task)
        except UsageError:
            if self._history.newest is None:
                raise
            return
        self._drop_fresh()
        self._history.add(gathered)
        self._fresh = incident

    def at(self, at_ns: int | None, task: Task) -> Evidence:
        newest = self._history.newest
        if newest is None:
            self.refresh(task)
            newest = self._history.newest
        assert newest is not None
        if at_ns is None or at_ns >= newest.at_ns:
            fresh, self._fresh = self._fresh, None
            return self._evidence(fresh or self._again(newest), newest, None)
        return self._past(at_ns, task)

    def _past(self, at_ns: int, task: Task) -> Evidence:
        """As it stood then: what the shards hold, or what was gathered earlier."""
        newest, earlier = self._history.newest, self._history.covering(at_ns)
        if newest is not None and newest.tells(at_ns):
            return self._evidence(self._again(newest), newest, at_ns)
        try:
            incident, gathered = self._asked(at_ns, task)
        except UsageError:
            if earlier is None:
                raise
            return self._evidence(self._again(earlier), earlier, at_ns)
        shutil.rmtree(gathered.folder, ignore_errors=True)
        return self._evidence(incident, gathered, at_ns)

    def _again(self, gathered: Gathered) -> Incident:
        """The evidence of a gather once more, from its answers on disk."""
        return merged(gathered.answers, gathered.job, self._reach.memory)

    def _evidence(self, incident: Incident, gathered: Gathered, at_ns: int | None) -> Evidence:
        try:
            first_ns, last_ns = window.span(incident.con)
            if at_ns is not None:
                window.cut_after(incident.con, at_ns)
        except BaseException:
            incident.close()
            raise
        if first_ns is not None:
            self._first_ns = min(first_ns, self._first_ns or first_ns)
        if at_ns is None:
            self._last_ns = last_ns
            moment = Moment(last_ns, self._first_ns, last_ns, self.live)
        else:
            first_ns = min(at_ns, self._first_ns or at_ns)
            moment = Moment(at_ns, first_ns, max(at_ns, self._last_ns or at_ns))
        origin = f"{len(self._reach.hosts)} nodes, {self._reach.source}"
        return Evidence(incident, gathered.job, moment, self._hosts(), origin)

    def _hosts(self) -> tuple[HostAnswer, ...]:
        now_ns = self._clock()
        return tuple(
            HostAnswer(
                host=clean(outcome.node),
                kind=outcome.kind,
                message=clean(outcome.message),
                age_ns=max(0, now_ns - self._answered_ns[host])
                if host in self._answered_ns
                else None,
            )
            for host, outcome in self._outcomes.items()
            if outcome.kind != "no-data"
        )

    def finer(self, node: str, comms: Sequence[int], at_ns: int, task: Task) -> Incident | None:
        """What the node holds of the communicators, asked for now."""
        newest = self._history.newest
        hosts = {outcome.node: host for host, outcome in self._outcomes.items()}
        if newest is None or newest.tells(at_ns) or node not in hosts:
            return None
        self._stop_with(task)
        span = Window(None if self._since_ns is None else at_ns - self._since_ns, at_ns)
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            return self._loop.run(
                self._detailed(newest.job, hosts[node], comms, span, Path(folder))
            )

    async def _detailed(
        self, job: str, host: str, comms: Sequence[int], span: Window, folder: Path
    ) -> Incident | None:
        gather = await self._open(span, folder)
        await gather.detail(job, {host: comms})
        self._outcomes = {**self._outcomes, host: gather.answers.outcomes[host]}
        return await asyncio.to_thread(merge, gather.answers, job) if gather.parts else None

    def save(self, path: Path) -> None:
        newest = self._history.newest
        if newest is None:
            raise UsageError("nothing was gathered yet; there is nothing to save")
        with self._again(newest) as incident:
            incident.save(path)

    def close(self) -> None:
        if self._loop.closed:
            return
        self._loop.run(self._leave())
        self._loop.close()
        self._drop_fresh()
        self._history.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _drop_fresh(self) -> None:
        if self._fresh is not None:
            self._fresh.close()
            self._fresh = None

    # ---------------------------------------------------------------- gathering

    def _asked(self, until_ns: int | None, task: Task) -> tuple[Incident, Gathered]:
        """Ask the nodes. Raises UsageError where the job is not there, Interrupted."""
        self._stop_with(task)
        self._number += 1
        folder = self._folder / str(self._number)
        folder.mkdir()
        try:
            incident, gathered = self._loop.run(self._gathered(until_ns, folder))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        try:
            task.check()
        except BaseException:
            incident.close()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return incident, gathered

    def _stop_with(self, task: Task) -> None:
        def stop() -> None:
            if self._gather is not None:
                self._gather.stop()

        task.on_stop(lambda: self._loop.call(stop))

    async def _gathered(self, until_ns: int | None, folder: Path) -> tuple[Incident, Gathered]:
        at_ns = self._clock() if until_ns is None else until_ns
        since_ns = None if self._since_ns is None else at_ns - self._since_ns
        gather = await self._open(Window(since_ns, until_ns), folder)
        try:
            job, incident = await gather_job(
                gather, self._job, since_ns, self._starting, self._reach.memory
            )
        finally:
            self._note(gather)
        if not gather.parts:
            incident.close()
            raise UsageError(f"no host sent evidence: {what_became(gather.answers.outcomes)}")
        whole = not thinned_communicators(incident)
        return incident, Gathered(job, since_ns, at_ns, gather.answers, folder, whole)

    async def _greeted(self) -> None:
        folder = self._folder / "greeting"
        folder.mkdir(exist_ok=True)
        gather = await self._open(Window(), folder)
        await gather.greet()
        self._note(gather)

    async def _open(self, span: Window, folder: Path) -> Gather:
        """The one gather whose connections stay, turned to another span."""
        if self._gather is not None:
            self._gather.again(span, folder)
            return self._gather
        transport = await self._stack.enter_async_context(opened(self._reach.transport))
        self._gather = await self._stack.enter_async_context(
            Gather(
                transport,
                self._reach.hosts,
                span,
                folder,
                patience_s=self._reach.patience_s,
                at_once=self._reach.at_once,
            )
        )
        return self._gather

    async def _leave(self) -> None:
        """Close every connection; the next question opens them anew."""
        stack, self._stack, self._gather = self._stack, AsyncExitStack(), None
        await stack.aclose()

    def _note(self, gather: Gather) -> None:
        self._outcomes = gather.answers.outcomes
        now_ns = self._clock()
        for host, outcome in self._outcomes.items():
            if outcome.kind == "ok":
                self._answered_ns[host] = now_ns

    def _starting(self, incident: Incident) -> set[int]:
        started = started_communicators(incident, tuple(self._rulebooks()))
        return {comm for comms in started.values() for comm in comms}

    def _job_lines(self) -> tuple[JobLine, ...]:
        nodes: dict[str, int] = defaultdict(int)
        ranks: dict[str, set[int]] = defaultdict(set)
        last_ns: dict[str, int] = defaultdict(int)
        for outcome in self._outcomes.values():
            told = outcome.status.get("jobs")
            for job, at_ns in jobs_of(outcome).items():
                here = told[job].get("ranks") if isinstance(told, dict) else ()
                nodes[job] += 1
                ranks[job] |= {rank for rank in here or () if isinstance(rank, int)}
                last_ns[job] = max(last_ns[job], at_ns)
        now_ns = self._clock()
        return tuple(
            JobLine(
                job=job,
                nodes=nodes[job],
                ranks=len(ranks[job]),
                last_ns=last_ns[job],
                state="running" if self.live and now_ns - last_ns[job] < _RUNS_NS else "ended",
            )
            for job in sorted(nodes, key=lambda job: -last_ns[job])
        )


class LiveSession(Replay):
    """A session on running nodes, or on the shards that they left."""

    def __init__(
        self,
        reach: Reach,
        shelf: Shelf,
        job: str | None = None,
        *,
        title: str | None = None,
        live: bool = True,
        since_ns: int | None = SINCE_NS,
        min_coverage: float = 0.9,
    ) -> None:
        """Nothing is asked before the first question."""
        fleet = Fleet(
            reach, lambda: shelf.rulebooks, job, title=title, live=live, since_ns=since_ns
        )
        super().__init__(fleet, shelf, min_coverage)
