"""The collector's loop: drain, commit and seal, and answer requests in between.

One thread does all the work. Threads of the socket ask for the current state with `present`, and
wait.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from oncall.core.units import NS_PER_S, format_number
from oncall.node.agent.jobs import Jobs
from oncall.node.agent.recorder import Recorder
from oncall.node.common.account import Account, cpu_ns, rss_bytes
from oncall.node.common.config import Configuration, reload
from oncall.node.common.log import Log
from oncall.node.common.own_thread import OwnThread
from oncall.node.common.source import (
    Clock,
    Collected,
    Instant,
    Source,
    Unhurried,
    Watched,
    Watcher,
    read_clock,
    say_bug,
)
from oncall.node.store.batch import Batch
from oncall.node.traffic.recent_traffic import TrafficOptions

# How often what threads of their own have read is fetched: they hold it for more than a minute, and
# asking costs as much where nothing has come.
_FETCH_NS = NS_PER_S
_SEAL_AGAIN_NS = NS_PER_S  # after a seal that had to wait
_FIRST_READING_NS = 5 * NS_PER_S  # that `once` waits for, of sources that are slow
_STEP_NS = NS_PER_S  # of the wall clock; NTP slews by less between two drains
_MOST_ROUNDS = 100  # of the final drain: a job that goes on recording must not keep us


class Agent:
    """Sources, a recorder, and the times at which each is due."""

    def __init__(
        self,
        config: Configuration,
        sources: Sequence[Source],
        recorder: Recorder,
        log: Log,
        clock: Clock = read_clock,
    ) -> None:
        self._config = config
        self._sources = sources
        # Asked once: a runtime protocol is a slow question, and this one is put in every turn.
        self._unhurried = {each.name: each for each in sources if isinstance(each, Unhurried)}
        self._watched = [source for source in sources if isinstance(source, Watched)]
        self._watchers = [source for source in sources if isinstance(source, Watcher)]
        self._recorder = recorder
        self._jobs = Jobs()
        self._log = log
        self._clock = clock
        self._accounts = {source.name: Account(config.node, source.name) for source in sources}
        self._own = Account(config.node, "collector")
        self._hurried = [source for source in sources if not isinstance(source, OwnThread)]
        self._fetch_at_ns = 0
        self._commit_at_ns = 0
        self._show_at_ns = 0
        self._show_every_ns = config.source_options.of(TrafficOptions).every_ns
        self._seal_at_ns = clock().monotonic_ns + config.seal_every_ns
        self._seal_large_at_ns = 0
        self._offset_ns: int | None = None  # Unix time less CLOCK_MONOTONIC, at the last step
        self._asked: queue.SimpleQueue[Future[Sequence[Batch]]] = queue.SimpleQueue()
        self._turn_began_ns: int | None = None  # of the turn under way
        self._turn_took_ns = 0  # the last one, which may have answered
        self._wake = threading.Event()
        self._stopping = False
        self._finished = False
        self._new_config: Configuration | None = None

    # ------------------------------------------------------- from other threads

    def stop(self) -> None:
        """Ask the loop to drain and seal for the last time."""
        self._stopping = True
        self._wake.set()

    def reconfigure(self, config: Configuration) -> None:
        """Ask the loop to go on with another configuration; folders and sources do not change."""
        self._new_config = config
        self._wake.set()

    def present(self, timeout_s: float) -> Sequence[Batch]:
        """The current state. Everything before it is committed or contained in it. Raises
        TimeoutError."""
        asked: Future[Sequence[Batch]] = Future()
        self._asked.put(asked)
        self._wake.set()
        if self._finished:
            self._send_away()
        return asked.result(timeout_s)

    @property
    def greeting(self) -> dict[str, Any]:
        """What is known without asking the loop, however long that takes: the jobs that it has
        seen, as `answer.jobs_seen` has them, and for how long a question waits, in seconds."""
        began_ns = self._turn_began_ns
        lasts_ns = 0 if began_ns is None else time.monotonic_ns() - began_ns
        return {
            "jobs": self._jobs.seen,
            "takes_s": round(max(lasts_ns, self._turn_took_ns) / NS_PER_S, 1),
        }

    @property
    def problems(self) -> list[str]:
        """What is wrong now, over all sources."""
        accounts = (*self._accounts.values(), self._own)
        return [problem for account in accounts for problem in account.problems]

    # ------------------------------------------------------------------- the loop

    def run(self) -> None:
        """Collect until `stop`, then drain and seal."""
        while not self._stopping:
            self._turn_began_ns = began_ns = time.monotonic_ns()
            self.step()
            self._turn_took_ns = spent_ns = time.monotonic_ns() - began_ns
            self._turn_began_ns = None
            left_ns = self._config.drain_every_ns - spent_ns
            self._wake.wait(max(left_ns, 0) / NS_PER_S)
            self._wake.clear()
        self.finish()

    def step(self) -> None:
        """Drain once; commit and seal if that is due; answer waiting requests."""
        if self._new_config:
            self._reconfigure(self._new_config)
        now = self._clock()
        self._see_clock(now)
        must_commit = self._must_commit(now)
        is_wanted = must_commit or self._is_watched or not self._asked.empty()
        self._drain(now, everything=is_wanted or self._must_seal(now))
        self._show_present(now)
        if self._must_seal(now):
            self._begin_seal(now)
        elif must_commit or self._must_commit(now):
            self._commit(now, everything=False)
        self._answer(now)

    def _see_clock(self, now: Instant) -> None:
        """If the wall clock was stepped, seal the rows so far with the time base in which they were
        written: a shard with two time bases would be found in neither."""
        offset_ns, self._offset_ns = self._offset_ns, now.offset_ns
        if offset_ns is None or abs(now.offset_ns - offset_ns) < _STEP_NS:
            return
        self._log.warning(
            f"the clock was set by {format_number((now.offset_ns - offset_ns) / NS_PER_S)} s: "
            "sealing what was recorded before"
        )
        self._begin_seal(Instant(now.monotonic_ns + offset_ns, now.monotonic_ns))

    def once(self) -> None:
        """Read every source once, and finish."""
        self._drain(self._clock())
        deadline_ns = time.monotonic_ns() + _FIRST_READING_NS
        for source in self._sources:
            if isinstance(source, OwnThread):
                left_ns = max(0, deadline_ns - time.monotonic_ns())
                source.wait_for_a_reading(left_ns / NS_PER_S)
        self.finish()

    def finish(self) -> None:
        """Empty the rings, seal, and close everything."""
        now = self._clock()
        for _ in range(_MOST_ROUNDS):
            if not self._drain(now):
                break
        self._recorder.try_again()
        self.seal(now)
        for source in self._sources:
            try:
                source.close()
            except Exception as error:  # everything is sealed, and the others are to be let go
                self._log.error(f"{source.name}: {say_bug(error)}")
        self._recorder.close()
        self._finished = True
        self._send_away()

    def _send_away(self) -> None:
        """Refuse all further requests: they would wait for a loop that has ended."""
        with suppress(queue.Empty):
            while True:
                self._asked.get_nowait().set_exception(TimeoutError("the collector has stopped"))

    def seal(self, now: Instant) -> None:
        """Seal the rows so far with the current state, and wait until that is done."""
        self._recorder.settle()
        self._begin_seal(now)
        self._recorder.settle()

    def _begin_seal(self, now: Instant) -> None:
        """Commit all rows with the current state and start sealing in the background, if that is
        possible now."""
        self._drain(now)
        self._recorder.add(self._current_state(now))
        self._drain(now)  # what a source then found to be over
        self._record_accounts(now)
        self._commit(now)
        if self._recorder.seal(now.realtime_ns):
            self._seal_at_ns = now.monotonic_ns + self._config.seal_every_ns
            return
        self._seal_large_at_ns = now.monotonic_ns + _SEAL_AGAIN_NS
        self._seal_at_ns = max(self._seal_at_ns, self._seal_large_at_ns)

    # -------------------------------------------------------------------- its parts

    @property
    def _is_watched(self) -> bool:
        return any(watcher.is_watching for watcher in self._watchers)

    def _drain(self, now: Instant, *, everything: bool = True) -> int:
        """Collect from every source (without `everything`: only from those that cannot wait).
        Returns the number of rows. A source that raises is reported; the others go on."""
        sources: Sequence[Source] = self._hurried
        if everything or now.monotonic_ns >= self._fetch_at_ns:
            self._fetch_at_ns = now.monotonic_ns + _FETCH_NS
            sources = self._sources
        return sum(self._drain_source(source, now, everything) for source in sources)

    def _drain_source(self, source: Source, now: Instant, everything: bool) -> int:
        """All rows of one source; each drain with its own bookmarks and losses. Returns the number
        of rows."""
        account = self._accounts[source.name]
        rows, is_more = 0, True
        while is_more:
            began_ns = time.thread_time_ns()
            try:
                collected = self._collect(source, now, everything)
            except Exception as error:  # a bug in one source must not cost us the others
                collected = Collected((), account.dropped, (say_bug(error),), None, account.notes)
            account.cpu_ns += time.thread_time_ns() - began_ns + collected.cpu_ns
            if collected.batches:
                self._show(collected.batches)
            count = sum(batch.rows for batch in collected.batches)
            account.rows += count
            self._note(account, collected.problems, collected.notes)
            batches = list(collected.batches)
            if collected.dropped != account.dropped:
                account.dropped = collected.dropped
                batches.append(self._recorded(account, now))
            marks = collected.bookmarks
            self._recorder.add(batches, None if marks is None else {source.name: marks})
            rows += count
            is_more = collected.more
        return rows

    def _collect(self, source: Source, now: Instant, everything: bool) -> Collected:
        if everything or source.name not in self._unhurried:
            return source.collect(now)
        return self._unhurried[source.name].collect_urgent(now)

    def _must_seal(self, now: Instant) -> bool:
        # What is done at a seal takes time by the operation, and the rings fill meanwhile.
        is_large = self._recorder.unsealed >= self._config.seal_operations
        return now.monotonic_ns >= (self._seal_large_at_ns if is_large else self._seal_at_ns)

    def _must_commit(self, now: Instant) -> bool:
        return now.monotonic_ns >= self._commit_at_ns or self._recorder.is_due

    def _current_state(self, now: Instant) -> list[Batch]:
        batches: list[Batch] = []
        for source in self._sources:
            try:
                batches += source.current_state(now)
            except Exception as error:
                account = self._accounts[source.name]
                problems = dict.fromkeys((*account.problems, say_bug(error)))
                self._note(account, tuple(problems), account.notes)
        self._show(batches)
        return batches

    def _show(self, batches: Sequence[Batch]) -> None:
        """Pass rows to the sources that watch other sources."""
        self._jobs.see(batches)
        for watcher in self._watchers:
            watcher.see(batches)

    def _show_present(self, now: Instant) -> None:
        """To watchers, from when they watch on, every few seconds: who is there comes into the
        store at a seal only."""
        if not self._is_watched or now.monotonic_ns < self._show_at_ns:
            return
        self._show_at_ns = now.monotonic_ns + self._show_every_ns
        for source in self._watched:
            self._show(source.present(now))

    def _commit(self, now: Instant, *, everything: bool = True) -> None:
        self._commit_at_ns = now.monotonic_ns + self._config.commit_every_ns
        if self._own.dropped != self._recorder.dropped:
            self._own.dropped = self._recorder.dropped
            self._recorder.add_first([self._recorded(self._own, now)])
        self._record_accounts(now, urgent_only=True)
        self._own.rows += self._recorder.commit(now.realtime_ns, everything=everything)
        problem = self._recorder.problem
        self._own.problems = (problem,) if problem else ()  # the recorder has logged it

    def _record_accounts(self, now: Instant, urgent_only: bool = False) -> None:
        for account in (*self._accounts.values(), self._own):
            if account.is_urgent or not urgent_only:
                self._recorder.add([self._recorded(account, now)])

    def _recorded(self, account: Account, now: Instant) -> Batch:
        """Its current row, on its way into the store."""
        account.record()
        return self._account_row(account, now)

    def _account_row(self, account: Account, now: Instant) -> Batch:
        if account is not self._own:
            return account.row(now.realtime_ns)
        account.cpu_ns = cpu_ns()
        return account.row(now.realtime_ns, rss_bytes())

    def _answer(self, now: Instant) -> None:
        """Send the current state to the threads that asked for it."""
        if self._asked.empty():
            return
        current = self._current_state(now)
        self._drain(now)  # with what was found to be over
        self._commit(now)
        waiting = self._recorder.waiting  # what could not be committed just now
        accounts = [*self._accounts.values(), self._own]
        own_rows = [self._account_row(account, now) for account in accounts]
        present = [*waiting, *current, *own_rows]
        while not self._asked.empty():
            self._asked.get().set_result(present)

    def _note(self, account: Account, problems: tuple[str, ...], notes: tuple[str, ...]) -> None:
        """Log new problems, and new notes on what this node does not have."""
        for problem in problems:
            if problem not in account.problems:
                self._log.warning(f"{account.source}: {problem}")
        for note in notes:
            if note not in account.notes:
                self._log.info(f"{account.source}: {note}")
        account.problems, account.notes = problems, notes

    def _reconfigure(self, config: Configuration) -> None:
        self._new_config = None
        self._config, waiting = reload(self._config, config)
        if waiting:
            self._log.warning(f"{', '.join(waiting)}: restart the collector to apply the change")
        self._recorder.configure(self._config)
        self._log.info(
            f"configuration reloaded: a shard every "
            f"{format_number(config.seal_every_ns / NS_PER_S)} s"
        )
