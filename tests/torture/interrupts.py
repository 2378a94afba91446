"""Ctrl-C at a random moment of a command: it ends as interrupted, without a traceback, and leaves
no process and no file.

A terminal sends SIGINT to the whole group of processes, so this does too. Exit code 130, or a death
by SIGINT, which a shell shows as 130.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from . import REPOSITORY
from .collector import wait_until
from .outcome import Outcome

_INTERRUPTED = (130, -signal.SIGINT)
_FIRST_LINE_S = 0.01
_RANKS = 600  # as many dumps as two processes read
_FIXTURES = REPOSITORY / "fixtures"


def interrupts(folder: Path, times: int, seed: int, until: float) -> Outcome:
    """Interrupt commands in turn, each at a random moment of the time that it takes."""
    chance = random.Random(seed)
    commands = _commands(folder)
    took_s = {command: _took_s(folder, command) for command in commands}
    done, early, failures = 0, 0, []
    for number in range(times):
        if time.monotonic() > until:
            break
        command = commands[number % len(commands)]
        at_s = chance.uniform(_FIRST_LINE_S, took_s[command])
        ended, said, left = _interrupted(folder, command, at_s)
        done += 1
        if ended is None:
            early += 1  # it was faster than before
        elif ended not in _INTERRUPTED or "Traceback" in said or left:
            what = (
                f"oncall {' '.join(command)} after {at_s:.3f} s: exit {ended}, left {left}: {said}"
            )
            failures.append(what[-2000:])
    note = f"{done - early:,} interrupted, {early:,} had ended before"
    return Outcome("Ctrl-C", done, note=note, failures=tuple(failures))


def _commands(folder: Path) -> Sequence[tuple[str, ...]]:
    saved = folder / "saved.oncall"
    dumps = str(_FIXTURES / "flight_recorder" / "not_entered")
    subprocess.run(
        [*_ONCALL, "diagnose", dumps, "--save", str(saved)], capture_output=True, check=False
    )
    many = folder / "many"
    many.mkdir()
    for rank in range(_RANKS):
        source = Path(dumps) / f"rank_{rank % 8}"
        (many / f"rank_{rank}").write_bytes(source.read_bytes())
    return (
        ("--help",),
        ("diagnose", dumps),
        ("diagnose", str(_FIXTURES / "logs" / "slurm-4711.out")),
        ("diagnose", str(saved)),
        ("diagnose", str(many)),  # reads on all cores
        ("draw", "waiting", str(saved)),
        ("rules", "check"),
    )


# Says when Python is up: before that, Ctrl-C is Python's own affair, and so is the import hook of
# a checkout, which an installed wheel does not have.
_UP = b"up"
_ONCALL = (
    sys.executable,
    "-c",
    f"import importlib.util, oncall.cli.start as start, os; os.write(1, {_UP!r}); start.run()",
)


def _took_s(folder: Path, command: Sequence[str]) -> float:
    began = time.monotonic()
    subprocess.run([*_ONCALL, *command], capture_output=True, check=False, env=_environment(folder))
    return time.monotonic() - began


def _interrupted(
    folder: Path, command: Sequence[str], at_s: float
) -> tuple[int | None, str, tuple[str, ...]]:
    """The exit code (None: it had ended before), what was said on stderr, and what is left."""
    child = subprocess.Popen(
        [*_ONCALL, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=_environment(folder),
    )
    assert child.stdout is not None and child.stdout.read(len(_UP)) == _UP
    time.sleep(at_s)
    if child.poll() is not None:
        child.communicate()
        return None, "", ()
    os.killpg(child.pid, signal.SIGINT)
    _, said = child.communicate(timeout=60)
    left = [*(folder / "tmp").iterdir()]
    with suppress(AssertionError):
        wait_until(lambda: not _alive(child.pid), "its children leave")
    processes = ("processes",) if _alive(child.pid) else ()
    return (
        child.returncode,
        said.decode(errors="replace"),
        (*processes, *(path.name for path in left)),
    )


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _environment(folder: Path) -> Mapping[str, str]:
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(temporary), "HOME": str(folder)}
