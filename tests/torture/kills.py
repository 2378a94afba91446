"""kill -9 of a collector at random moments, while a training process records without a pause.

A third of the kills hit a collector that starts (imports, recovery of what its predecessor left,
the first drain), the rest one at work that drains every 20 ms, commits every 50 ms, seals every
300 ms, retires shards and answers digests. After each kill the store is read as it was left.

Three promises are checked for every operation by its identity, never by counts alone:
- a row that was committed before any kill is there at the end, once;
- an operation whose records were all read before a commit is there, whoever was killed between;
- records that were read and not committed are counted: exactly as many as were cut off.
"""

from __future__ import annotations

import random
import shutil
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from oncall.node.store.wire import Request

from .collector import Collector, Node
from .evidence import Archive, Rows, Store, duplicates, joined, key, live
from .outcome import Outcome
from .stream import Array, Stream, Written

RATE = 600  # operations a second
_AT_START = 1 / 3  # of all kills
_START_S = 0.9  # a quick start takes about half of it, recovery included
_AT_WORK_S = 1.0
_ASKED = 1 / 4  # of those at work: they answer digests when they are killed
_SLOWLY = 1 / 20  # of all starts: by a new interpreter
_KEEP_BYTES = 30 * 2**20  # a few dozen shards: retention works all the time


@dataclass
class Life:
    """One collector from its start to its death, as the ring and the store saw it."""

    began_ns: int  # Unix time of its start
    began_at: int  # the ring's tail then
    ended_at: int = 0  # the ring's tail when it was gone
    committed: int | None = None  # records of the ring behind its last commit
    dropped: int = 0  # losses that it reported
    was_up: bool = False


@dataclass
class Run:
    """Kills of one node's collectors, one after the other."""

    node: Node
    archive: Archive
    stream: Stream
    random: random.Random
    lives: list[Life] = field(default_factory=list)
    committed: list[Rows] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    asked: int = 0
    answers: int = 0

    def kill_one(self) -> None:
        """Start a collector, kill it at some moment, and read what it had committed."""
        life = Life(time.time_ns(), self.stream.tail)
        collector = Collector(self.node, quick=self.random.random() >= _SLOWLY)
        if self.random.random() < _AT_START:
            _until(time.monotonic() + self.random.uniform(0, _START_S), collector)
        else:
            try:
                collector.wait_until_up()
            except AssertionError as error:
                self.failures.append(str(error))
            work_s = self.random.uniform(0, _AT_WORK_S)
            if self.random.random() < _ASKED:
                self._keep_asking(collector)
                work_s *= 2
            _until(time.monotonic() + work_s, collector)
        life.was_up = collector.is_up
        if collector.exit_code is not None:
            self.failures.append(f"left by itself: {collector.said[-500:]}")
        collector.kill()
        if "Traceback" in collector.said:
            self.failures.append(f"a traceback: {collector.said[-1000:]}")
        self._bury(life)

    def _keep_asking(self, collector: Collector) -> None:
        """Ask for digests as long as it lives: the kill comes while one is being answered."""

        def ask() -> None:
            while collector.exit_code is None:
                self.asked += 1
                try:
                    answer = self.node.ask(Request("digest", job="llama"))
                except OSError:
                    return
                self.answers += b'{"end": ' in answer

        threading.Thread(target=ask, daemon=True).start()

    def finish(self) -> None:
        """One last collector that is let go in order: everything is sealed then."""
        self.stream.stop()
        life = Life(time.time_ns(), self.stream.tail)
        collector = Collector(self.node, quick=True)
        collector.wait_until_up()
        if collector.end() != 0 or "all rows are sealed" not in collector.said:
            self.failures.append(f"did not end in order: {collector.said[-500:]}")
        life.was_up = True
        self._bury(life)
        self.archive.check_unchanged()

    def _bury(self, life: Life) -> None:
        life.ended_at = self.stream.tail
        stores = self.archive.look()
        left = live(self.node.data, self.node.folder / "copy")
        if left:
            self.committed.append(left.rows)
            stores.append(left)
        # Shards found now were sealed by this collector, or hold what its predecessor left.
        for store in stores:
            if store.started_ns >= life.began_ns:
                _take(life, store)
        if self.archive.changed:
            self.failures.append(f"sealed shards changed: {self.archive.changed}")
        damaged = [path.name for path in self.node.data.glob("*.damaged")]
        if damaged:
            self.failures.append(f"set aside as damaged: {damaged}")
        self.lives.append(life)


def _take(life: Life, store: Store) -> None:
    life.dropped = max(life.dropped, store.dropped)
    # Less than that is its predecessor's bookmark, which a new store takes over.
    if store.drained is not None and store.drained >= life.began_at:
        life.committed = max(life.committed or 0, store.drained)


def _until(moment: float, collector: Collector) -> None:
    while time.monotonic() < moment and collector.exit_code is None:
        time.sleep(min(0.002, max(0.0, moment - time.monotonic())))


def kills(folder: Path, times: int, seed: int, until: float) -> Outcome:
    """Kill so many collectors of one node, or as many as fit before the moment `until` or until
    there is a file `stop` in the folder."""
    node = Node.make(folder / f"kills-{seed}", keep_bytes=f"{_KEEP_BYTES} B")
    stream = Stream(node.rings, RATE, seed)
    run = Run(node, Archive(node.data, node.folder / "kept"), stream, random.Random(seed))
    stream.start()
    done = 0
    while done < times and time.monotonic() < until and not (folder / "stop").exists():
        run.kill_one()
        done += 1
    run.finish()
    outcome = judge(run, done)
    if outcome.kept:
        shutil.rmtree(node.folder)
    return outcome


def ignore_interrupts() -> None:
    """Ctrl-C is for whoever started this process: it asks for the end by the file `stop`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def judge(run: Run, times: int) -> Outcome:
    """Compare what is stored with what must be."""
    stored = run.archive.rows
    written = run.stream.written()
    lost = missing(joined(run.committed), stored)
    must = expected(written, run.lives)
    lost_too = int((~np.isin(must, stored.keys)).sum())
    cut_off = sum(_cut_off(run.lives))
    reported = sum(life.dropped for life in run.lives)
    failures = list(run.failures)
    if lost_too:
        failures.append(f"{lost_too} operations were read before a commit and are not stored")
    if cut_off != reported:
        failures.append(f"{cut_off} records were cut off, and {reported} reported as lost")
    if twice := wrong_pairs(stored):
        failures.append(f"{twice} sends have the number of another one")
    if int(run.stream.ring.header["dropped"][0]):
        failures.append("the ring was full: the writer is faster than collectors restart")
    ups = sum(life.was_up for life in run.lives)
    note = (
        f"{ups} came up, {len(run.archive.stores)} shards, {run.archive.retired} retired, "
        f"{len(written):,} operations, {len(stored):,} stored, {cut_off:,} records cut off and "
        f"reported, {run.answers} of {run.asked} questions answered"
    )
    return Outcome(
        "kill -9 of the collector",
        times,
        lost=lost + lost_too,
        doubled=duplicates(stored),
        note=note,
        failures=tuple(failures),
    )


def missing(before: Rows, after: Rows) -> int:
    """Operations that were stored before and are not any more."""
    return int((~np.isin(np.unique(before.keys), after.keys)).sum())


def expected(written: Written, lives: list[Life]) -> Array:
    """Keys of the operations whose every record was read by a collector that committed it."""
    spans = [(life.began_at, life.committed) for life in lives if life.committed is not None]
    position = np.arange(int(written.last.max(initial=-1)) + 1)
    is_committed = np.zeros(len(position) + 1, bool)
    for start, end in spans:
        is_committed[start:end] = True
    before = np.concatenate([[0], np.cumsum(is_committed)])
    whole = before[written.last + 1] - before[written.first] == written.last + 1 - written.first
    # Nothing between its first and its last record was cut off, so its own were not.
    keys: Array = key(written.comm[whole], written.seq[whole])
    return keys


def _cut_off(lives: list[Life]) -> list[int]:
    """Records that each collector had read and not committed when it died, and that a later one
    could know of: behind the last commit nobody has looked yet."""
    lost = []
    reached = 0
    for life in lives:
        if life.committed is not None:
            lost.append(life.began_at - reached)
            reached = life.committed
    return lost


def wrong_pairs(rows: Rows) -> int:
    """Sends to one peer that share their number in the pair with another one."""
    numbers = rows.pair_seq[rows.pair_seq > 0]
    return len(numbers) - len(np.unique(numbers))
