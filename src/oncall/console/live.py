"""Snapshots of a running job: its nodes are queried again and again, over connections that stay
open.

A snapshot of now shows the last gather. For a past moment, the nodes' shards are queried up to that
moment; if no node answers, an earlier gather is used. Shards in local folders work the same way,
except that their present does not advance.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from oncall.console.cancellation import Lane, Task
from oncall.console.history import Gathered, History, ProbesKept
from oncall.console.nodes import Nodes
from oncall.console.rulebook_store import RulebookStore
from oncall.console.source import Evidence, Finer, Source
from oncall.core.errors import Interrupted, UsageError
from oncall.core.units import NS_PER_S
from oncall.evidence import window
from oncall.evidence.incident import Incident
from oncall.fleet.ask import merged
from oncall.fleet.gather import Window
from oncall.fleet.reach import Reach
from oncall.fleet.read_only import RemoteCommand
from oncall.rules.engine.starts import started_communicators
from oncall.views.snapshot import HostTrouble, JobLine, Moment
from oncall.views.words import hosts_phrase

SINCE_NS = 600 * NS_PER_S


class Fleet(Source):
    """A source of nodes that are queried."""

    def __init__(
        self,
        reach: Reach,
        store: RulebookStore,
        job: str | None = None,
        *,
        title: str | None = None,
        live: bool = True,
        since_ns: int | None = SINCE_NS,
        history: History | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """The rulebooks of `store` say which communicators to fetch whole; `since_ns`: how far back
        a snapshot looks (None: as far as there is data). Nothing is queried yet."""
        self.live = live
        self.title = title or hosts_phrase(reach.hosts)
        self._reach = reach
        self._store = store
        self._job = job
        self._since_ns = since_ns
        self._clock = clock
        self._history = history or History()
        self._folder = Path(tempfile.mkdtemp(prefix="oncall-live-"))
        # Looked up at each call: whoever replaces the clock replaces it everywhere.
        self._nodes = Nodes(
            reach,
            lambda incident: started_communicators(incident, store.rulebooks),
            lambda: self._clock(),
        )
        self._number = 0
        self._fresh: Incident | None = None  # of the last gather, not yet shown
        # Saving reads the answers of the newest gather, which the next one may delete.
        self._keeping = threading.Lock()
        self._then: Gathered | None = None  # the last answers about a past moment
        self._probes = ProbesKept()
        # What the cursor may range over: as far as was ever seen.
        self._first_ns: int | None = None
        self._last_ns: int | None = None

    # ---------------------------------------------------------------- questions

    def jobs(self, task: Task) -> tuple[JobLine, ...]:
        folder = self._folder / "greeting"
        folder.mkdir(exist_ok=True)
        self._nodes.greet(folder, task)
        return self._nodes.last.jobs(self._clock(), self.live)

    def troubles(self) -> tuple[HostTrouble, ...]:
        return self._nodes.last.troubles()

    def pulse(self) -> Mapping[str, int]:
        if self._job is None or not self.live:
            return {}
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            return self._nodes.pulse(self._job, Path(folder))

    def progress(self, lane: Lane) -> str:
        return self._nodes.progress(lane)

    def choose(self, job: str) -> None:
        if job != self._job:
            self._job = job
            with self._keeping:
                self._history.clear()
                self._probes.clear()
            self._keep_past(None)
            self._drop_fresh()
            self._first_ns = None
            if self._number:
                # Hosts that knew nothing of the one job may know of the other.
                self._nodes.leave()

    def refresh(self, task: Task) -> None:
        """Gather again. If no node answers any more, the last good answer stays; `hosts` show its
        age."""
        try:
            incident, gathered = self._asked(None, task)
        except UsageError:
            if self._history.newest is None:
                raise
            return
        self._drop_fresh()
        with self._keeping:
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

    def look(self, job: str, task: Task) -> Evidence:
        if self._job not in (None, job):
            raise Interrupted  # it was opened meanwhile, and only its nodes are asked
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            at_ns = self._clock()
            since_ns = None if self._since_ns is None else at_ns - self._since_ns
            incident, gathered = self._nodes.gather(job, since_ns, None, Path(folder), task)
        hosts = self._nodes.last.hosts(at_ns)
        with incident.handed_on():
            self._nodes.leave()  # hosts that know nothing of this job may know of the next
            first_ns, last_ns = window.span(incident.con)
        moment = Moment(last_ns, first_ns, last_ns, self.live)
        return Evidence(incident, gathered.job, moment, hosts, scheduler=self._reach.scheduler)

    def repeats(self, at_ns: int | None) -> bool:
        return self._kept(at_ns) is not None

    def again(self, at_ns: int | None, task: Task) -> Evidence:
        with self._keeping:
            kept = self._kept(at_ns)
            if kept is None:
                raise Interrupted  # the reader has gone on to another past moment
            incident = self._again(kept)
            task.uses(incident)
        return self._evidence(incident, kept, at_ns)

    def _kept(self, at_ns: int | None) -> Gathered | None:
        """The answers that hold all of that instant, if they are still here."""
        newest, then = self._history.newest, self._then
        if newest is not None and (at_ns is None or newest.covers(at_ns)):
            return newest
        return then if then is not None and then.at_ns == at_ns else None

    def _keep_past(self, gathered: Gathered | None) -> None:
        """Keep these answers until another past moment is looked at."""
        with self._keeping:
            before, self._then = self._then, gathered
        if before is not None:
            shutil.rmtree(before.folder, ignore_errors=True)

    def _past(self, at_ns: int, task: Task) -> Evidence:
        """As it stood then: what the shards hold, or what was gathered earlier."""
        newest, earlier = self._history.newest, self._history.covering(at_ns)
        if newest is not None and newest.covers(at_ns):
            return self._evidence(self._again(newest), newest, at_ns)
        try:
            incident, gathered = self._asked(at_ns, task)
        except UsageError:
            if earlier is None:
                raise
            return self._evidence(self._again(earlier), earlier, at_ns)
        self._keep_past(gathered)
        return self._evidence(incident, gathered, at_ns)

    def _again(self, gathered: Gathered) -> Incident:
        """The evidence of a gather once more, from its answers on disk."""
        return merged(gathered.answers, gathered.job, self._reach.memory)

    def _evidence(self, incident: Incident, gathered: Gathered, at_ns: int | None) -> Evidence:
        with incident.handed_on():
            self._probes.add_to(incident, gathered.since_ns)
            first_ns, last_ns = window.span(incident.con)
            if at_ns is not None:
                window.cut_after(incident.con, at_ns)
        if first_ns is not None:
            self._first_ns = min(first_ns, self._first_ns or first_ns)
        if at_ns is None:
            self._last_ns = last_ns
            moment = Moment(last_ns, self._first_ns, last_ns, self.live)
        else:
            first_ns = min(at_ns, self._first_ns or at_ns)
            moment = Moment(at_ns, first_ns, max(at_ns, self._last_ns or at_ns))
        origin = f"{len(self._reach.hosts)} nodes from {self._reach.source}"
        return Evidence(
            incident,
            gathered.job,
            moment,
            self._nodes.last.hosts(self._clock()),
            self._nodes.last.lost_gateways,
            origin,
            self._reach.scheduler,
        )

    def finer(self, node: str, wanted: Finer, at_ns: int, task: Task) -> Incident | None:
        """What the node holds, asked for now."""
        newest = self._history.newest
        # Of operations a gather may have brought all; of what else, nobody promises that.
        if newest is None or (newest.covers(at_ns) and not wanted.tables):
            return None
        span = Window(None if self._since_ns is None else at_ns - self._since_ns, at_ns)
        return self._nodes.finer(newest.job, node, wanted, span, self._folder, task)

    def probe(self, nodes: tuple[str, ...], task: Task) -> str:
        if not self.live:
            raise UsageError("these nodes are not reachable from here, so they cannot be probed")
        return self._probes.keep(self._nodes.probe(nodes, task))

    def run(self, command: RemoteCommand, task: Task) -> str:
        if not self.live:
            raise UsageError("these nodes are not reachable from here")
        return self._nodes.run(command, task)

    def by_hand(self, node: str, command: str) -> tuple[str, ...]:
        if not self.live:
            raise UsageError("these nodes are not reachable from here")
        return self._nodes.by_hand(node, command)

    def save(self, path: Path) -> None:
        with self._keeping:
            newest = self._history.newest
            if newest is None:
                raise UsageError("there is no evidence to save yet")
            incident = self._again(newest)
        with incident:
            self._probes.add_to(incident, newest.since_ns)
            incident.save(path)

    def close(self) -> None:
        if not self._folder.exists():
            return
        self._nodes.close()
        self._drop_fresh()
        with self._keeping:
            self._history.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _drop_fresh(self) -> None:
        if self._fresh is not None:
            self._fresh.close()
            self._fresh = None

    # ---------------------------------------------------------------- gathering

    def _asked(self, until_ns: int | None, task: Task) -> tuple[Incident, Gathered]:
        """Ask the nodes. Raises UsageError where the job is not there, Interrupted."""
        self._number += 1
        folder = self._folder / str(self._number)
        folder.mkdir()
        at_ns = self._clock() if until_ns is None else until_ns
        since_ns = None if self._since_ns is None else at_ns - self._since_ns
        try:
            return self._nodes.gather(self._job, since_ns, until_ns, folder, task)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
