"""Children end with whoever started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from oncall.demo.processes import Processes, interrupted_by_signals

_SLEEPS = (sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)")
_STARTER = """
import sys, time
from pathlib import Path
from oncall.demo.processes import Processes, interrupted_by_signals
with interrupted_by_signals(), Processes(Path(sys.argv[1])) as processes:
    child = processes.start("child", {command!r}, {{}}).child
    print(child.pid, flush=True)
    time.sleep(600)
"""


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _alive(pid: int) -> bool:
    """Whether it runs; a dead child that nobody has waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_leaving_ends_children(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        child = processes.start("child", _SLEEPS, os.environ).child
        assert _alive(child.pid)
    assert child.returncode == -signal.SIGKILL


def test_a_stopped_child_is_ended_too(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        child = processes.start("child", _SLEEPS, os.environ).child
        os.kill(child.pid, signal.SIGSTOP)
    assert child.returncode == -signal.SIGKILL


def test_asked_first_where_there_is_patience(tmp_path: Path) -> None:
    program = "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(7))\n"
    program += "print('here', flush=True)\ntime.sleep(600)"
    with Processes(tmp_path) as processes:
        polite = processes.start("polite", (sys.executable, "-c", program), os.environ)
        _until(lambda: "here" in polite.log.read_text())
        processes.stop([polite], patience_s=20)
        assert polite.child.returncode == 7
        assert not processes.running


def test_what_ended_by_itself_is_reported_with_its_last_words(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        lives = processes.start("lives", _SLEEPS, os.environ)
        ends = processes.start(
            "ends", (sys.executable, "-c", "print('a\\nb\\nc'); exit(3)"), os.environ
        )
        _until(lambda: processes.ended() == [ends])
        assert ends.last_words(2) == "b\nc"
        assert lives not in processes.ended()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_no_child_outlives_its_starter(tmp_path: Path, number: signal.Signals) -> None:
    program = _STARTER.format(command=_SLEEPS)
    command = (sys.executable, "-c", program, str(tmp_path))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        child = int(starter.stdout.readline())
        assert _alive(child)
        starter.send_signal(number)
        starter.communicate(timeout=20)
    assert starter.returncode != 0
    _until(lambda: not _alive(child))


def test_signals_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), interrupted_by_signals():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
