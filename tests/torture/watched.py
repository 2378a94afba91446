"""A collector that is not killed while something is done to it: what it must have stored after."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from .collector import Collector, Node, wait_until
from .evidence import Archive, Rows, duplicates, joined, key
from .outcome import Outcome
from .stream import Stream

RATE = 300  # operations a second
NOT_WRITING, WRITING_AGAIN = "not writing: ", "writing again; "


@dataclass
class Watched:
    """A node with a stream and a collector at work. Broken promises go into `failures`."""

    node: Node
    stream: Stream
    archive: Archive
    collector: Collector
    before: Rows = field(default_factory=lambda: joined([]))
    failures: list[str] = field(default_factory=list)

    def note_committed(self) -> None:
        """What is sealed now must be there at the end."""
        self.archive.look()
        self.before = self.archive.rows

    def wait_for_shards(self, more: int, within_s: float = 300.0) -> None:
        """Wait until so many more shards are sealed."""
        before = len(self.archive.stores)

        def sealed() -> bool:
            self.archive.look()
            return len(self.archive.stores) >= before + more

        wait_until(sealed, f"{more} more shards are sealed", within_s)

    def says(self, what: str, after: int = 0) -> bool:
        """Whether the collector has said it since its log had `after` characters."""
        return what in self.collector.said[after:]

    def must(self, holds: bool, promise: str) -> None:
        if not holds:
            self.failures.append(f"{promise}; its last words: {self.collector.said[-300:]}")


@contextmanager
def watched(
    folder: Path,
    data: Path | None = None,
    environment: Mapping[str, str] | None = None,
    **settings: object,
) -> Iterator[Watched]:
    """A stream of operations and a collector, which works in `data` where that is given."""
    node = Node.make(folder, data, **settings)
    stream = Stream(node.rings, RATE, seed=len(folder.name))
    collector = Collector(node, environment=environment)
    stream.start()
    try:
        collector.wait_until_up()
        yield Watched(node, stream, Archive(node.data, folder / "kept"), collector)
    finally:
        collector.kill()
        stream.stop()


def settle(one: Watched, what: str, times: int, *, whole: bool, note: str = "") -> Outcome:
    """Let everything end in order, and compare what is stored with what was recorded.

    `whole`: nothing may be lost at all. Otherwise what is missing must be counted as lost.
    """
    one.stream.stop()
    wait_until(lambda: one.stream.head == one.stream.tail, "the ring is drained")
    one.must(one.collector.exit_code is None, "the collector left by itself")
    one.must(one.collector.end() == 0, "the collector did not end in order")
    one.must("Traceback" not in one.collector.said, "a traceback in its log")
    one.archive.look()
    one.archive.check_unchanged()
    one.must(not one.archive.changed, f"sealed shards changed: {one.archive.changed}")
    stored = one.archive.rows
    written = one.stream.written()
    absent = int((~np.isin(key(written.comm, written.seq), stored.keys)).sum())
    lost = int((~np.isin(one.before.keys, stored.keys)).sum())
    ring_dropped = int(one.stream.ring.header["dropped"][0])
    reported = one.archive.forgotten + ring_dropped
    if whole:
        one.must(absent == 0, f"{absent} operations are not stored")
    else:
        one.must(absent <= reported, f"{absent} operations are missing, {reported} losses reported")
    text = f"{len(written):,} operations, {absent:,} missing, {reported:,} rows reported as lost"
    failures = tuple(one.failures)
    outcome = Outcome(what, times, lost, duplicates(stored), note=note or text, failures=failures)
    if outcome.kept:
        shutil.rmtree(one.node.folder, ignore_errors=True)
    return outcome


def pause(seconds: float, still: Callable[[], bool] = lambda: True) -> None:
    """Let things go on for a while, as long as `still` holds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and still():
        time.sleep(0.02)
