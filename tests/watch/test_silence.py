"""What a log that no longer grows says of its job, and that it is said once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.watch.test_watcher import Time, log_watch

from oncall.core.units import NS_PER_S
from oncall.watch.course import State, after
from oncall.watch.look import Look, Trouble
from oncall.watch.settings import WatchSettings
from oncall.watch.silence import LogWriters

DONE = "[after training is done] datetime: 2026-11-23 03:00:41\n"
# Holds a file open for writing until its standard input ends.
WRITER = "import sys; file = open(sys.argv[1], 'a'); print(flush=True); sys.stdin.read()"


def steps(last: int, of: str = "/  5000") -> str:
    return "".join(
        f"[2026-11-23 03:{number // 60:02}:{number % 60:02}] iteration {number:8}{of} | "
        "consumed samples: 10 | elapsed time per iteration (ms): 1000.0 | loss: 1.0E+00\n"
        for number in range(1, last + 1)
    )


def plain(last: int) -> str:
    """Steps that do not state how many there are to be."""
    return "".join(f"step {number} loss 2.1 time: 1.2 s\n" for number in range(1, last + 1))


@contextmanager
def writing(log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, log], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin and process.stdout
        process.stdout.readline()
        yield process
        process.stdin.close()


def watched(tmp_path: Path, log: Path, clock: Time, looks: int = 6) -> list[str]:
    """What a watch says that looks so often, each time two minutes later."""
    with log_watch(tmp_path, log, WatchSettings(), clock) as (watcher, said):
        for _ in range(looks):
            watcher.look()
            clock.now_ns += 120 * NS_PER_S
        return [line for line in said() if line.startswith(("opened", "updated", "closed"))]


@pytest.mark.parametrize("text", [steps(40) + DONE, steps(40, "/    40"), plain(40) + DONE])
def test_a_job_that_is_done_is_no_incident(text: str, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(text)
    assert watched(tmp_path, log, Time()) == []


def test_an_end_that_nothing_shows_is_said_plainly_and_once(tmp_path: Path) -> None:
    log, clock = tmp_path / "train.log", Time()
    log.write_text(steps(40))
    (opened,) = watched(tmp_path, log, clock)
    assert "Ended or hangs: nothing has been written for" in opened
    assert opened.endswith("; last: step 40 of 5,000")
    assert watched(tmp_path, log, clock, looks=2) == []  # nor by a watch that starts anew
    log.write_text(steps(40) + DONE)  # stamped now, by the real clock: the watch's is ahead
    (closed,) = watched(tmp_path, log, clock, looks=2)
    assert closed.endswith("has ended: its log says that it is done")


def test_processes_that_still_write_the_log_hang(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(plain(40))
    with writing(log):
        (opened,) = watched(tmp_path, log, Time())
    assert "Hangs: nothing has been written for" in opened


def test_processes_that_are_gone_have_ended(tmp_path: Path) -> None:
    log, clock = tmp_path / "train.log", Time()
    log.write_text(plain(40))
    with writing(log):
        assert watched(tmp_path, log, clock, looks=1) == []
    assert watched(tmp_path, log, clock, looks=2) == []  # a watch that starts anew still knows them
    log.write_text(steps(40))
    (opened,) = watched(tmp_path, log, clock)
    assert "Ended early: nothing has been written for" in opened


def test_who_has_a_log_open_for_reading_does_not_write_it(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.touch()
    writers = LogWriters(tmp_path)
    with log.open():
        assert writers.now([log]) == "unknown"
    with log.open("a"):
        assert writers.now([log]) == "run"
    assert writers.now([log]) == "gone"
    (tmp_path / "writers.json").write_text(json.dumps({os.getpid(): 1}))  # reused
    assert LogWriters(tmp_path).now([log]) == "gone"
    (tmp_path / "writers.json").write_text("[damaged")
    assert LogWriters(tmp_path).now([log]) == "unknown"


def test_a_slow_job_that_ends_closes_its_incident_and_a_failed_one_does_not() -> None:
    from oncall.watch.course import Patience, announced

    slow = Trouble("slow", "S1", "rank 3", "warning", "slow", "Slow: rank 3")
    failed = Trouble("logs", "FIRST_ERROR", "rank 2", "critical", "application", "failed: rank 2")
    for trouble, is_closed in ((slow, True), (failed, False)):
        look = Look(0, (trouble,), "1", lasting=True)
        state = announced(State("job"), "opened", look)
        following = after(state, Look(NS_PER_S, (trouble,), "1", ended="done"), Patience())
        assert (following.closed is not None) == is_closed
        assert (following.state.incident is None) == is_closed
