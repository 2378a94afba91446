"""Several collectors where one belongs, locks left behind, and process numbers used again."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ring_writer import RingWriter, operations

from oncall.node.agent.lock import LOCK_NAME
from oncall.node.store.catalog import sealed_shards
from oncall.node.store.reader import open_shards

from .collector import Collector, Node, wait_until
from .outcome import Outcome
from .watched import settle, watched

_AT_ONCE = 6


def second_collectors(folder: Path) -> Outcome:
    """Collectors are started beside one that works: each is refused, by the folder it shares."""
    with watched(folder / "node") as one:
        one.wait_for_shards(1)
        one.note_committed()
        for number in range(_AT_ONCE):
            other = Node.make(folder / f"other-{number}")
            if number % 3 == 1:
                other = Node(other.folder, one.node.data, other.run)
            elif number % 3 == 2:
                other = Node(other.folder, other.data, one.node.run)
            rival = Collector(one.node if number % 3 == 0 else other)
            wait_until(lambda r=rival: r.exit_code is not None, "a second collector leaves")  # type: ignore[misc]
            named = f"another collector is running here: PID {one.collector.pid}"
            text = one.collector.said if number % 3 == 0 else rival.said
            if rival.exit_code != 2 or named not in text:
                one.failures.append(f"a second collector: {rival.exit_code}, {text[-200:]}")
        return settle(one, "second collectors on the same folders", _AT_ONCE, whole=True)


def race(folder: Path) -> Outcome:
    """Several are started at once: one works, the others leave."""
    node = Node.make(folder / "node")
    rivals = [Collector(node) for _ in range(_AT_ONCE)]
    try:
        wait_until(
            lambda: sum(rival.exit_code is None for rival in rivals) == 1 and rivals[0].is_up,
            "one of the collectors is left",
        )
        codes = sorted(rival.exit_code or 0 for rival in rivals)
    finally:
        for rival in rivals:
            rival.kill()
    wrong = () if codes == [0] + [2] * (_AT_ONCE - 1) else (f"they left with {codes}",)
    return Outcome("collectors started at once", _AT_ONCE, failures=wrong)


def stale_locks(folder: Path) -> Outcome:
    """Lock files with whatever in them: the lock counts, not the file."""
    node = Node.make(folder / "node")
    failures = []
    texts = [f"PID {os.getpid()}\n", "PID 1\n", "", "PID 999999999\n", "\x00" * 4096]
    for text in texts:
        for place in (node.data, node.run):
            (place / LOCK_NAME).write_text(text)
        collector = Collector(node, "--once")
        wait_until(lambda c=collector: c.exit_code is not None, "it leaves")  # type: ignore[misc]
        if collector.exit_code != 0:
            failures.append(f"a lock file with {text[:20]!r}: {collector.said[-200:]}")
    return Outcome("stale lock files", len(texts), failures=tuple(failures))


def reused_numbers(folder: Path) -> Outcome:
    """A dead rank whose process number another program has now is reported as dead."""
    node = Node.make(folder / "node")
    sleeper = subprocess.Popen(["sleep", "3600"])
    collector = None
    try:
        ring = RingWriter(node.rings)
        ring.communicator(0, 0xC0FFEE)
        ring.append(operations(1, 3, unfinished=1))
        ring.header["pid"] = sleeper.pid  # of a process that began at another time
        collector = Collector(node)
        collector.wait_until_up()
        wait_until(lambda: len(sealed_shards(node.data)) >= 4, "shards are sealed")
        collector.end()
    finally:
        if collector:
            collector.kill()
        sleeper.kill()
        sleeper.wait()
    with open_shards(sealed_shards(node.data)) as shards:
        states = shards.con.execute("SELECT state FROM launches ORDER BY at_ns").fetchall()
    wrong = () if states and states[-1] == ("dead",) else (f"reported as {states[-1:]}",)
    return Outcome("process numbers used again", 1, failures=wrong)
