"""Takes the stacks of processes with py-spy, a separate program; without it, or where it may not
trace, what the kernel says of where the process is blocked."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from oncall.importers.stacks.documents import from_json
from oncall.importers.stacks.dump import MAIN, Place, Process, Thread, frame
from oncall.node.processes.training_processes import TrainingProcess

LOOK_EVERY_S = 2.0
_AT_ONCE = 4  # py-spy reads hundreds of megabytes of debug symbols for native frames
_TIMEOUT_S = 12.0
_ALL_S = 45.0
_MOST_PROBLEM = 200
NOT_FOUND = (
    "py-spy not found: install it there (`pip install py-spy`, into oncall's environment or on the "
    "PATH); without it only what the kernel says is known"
)


@dataclass(frozen=True)
class Look:
    """What one look at a process gave. `problem`: what is missing, and why."""

    process: TrainingProcess
    look: int
    at_ns: int
    stacks: Process | None
    problem: str | None = None


def find_py_spy() -> Path | None:
    """The py-spy beside this Python, else that on the PATH. One of a training job's own
    environment is never run: its owner could put anything there."""
    beside = Path(sys.executable).with_name("py-spy")
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which("py-spy")
    return Path(found) if found else None


def take_stacks(
    processes: Sequence[TrainingProcess], node: str, *, native: bool, looks: int
) -> Iterator[Look]:
    """Look at each process `looks` times, every two seconds. py-spy stops a process for some
    milliseconds, for native frames up to a second."""
    program, ends_s = find_py_spy(), time.monotonic() + _ALL_S
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for look in range(1, looks + 1):
            next_s = time.monotonic() + LOOK_EVERY_S
            asked = [
                pool.submit(_look, program, one, node, look, native, ends_s) for one in processes
            ]
            for done in as_completed(asked):
                yield done.result()
            if look < looks:
                time.sleep(max(0.0, next_s - time.monotonic()))


def _look(
    program: Path | None, one: TrainingProcess, node: str, look: int, native: bool, ends_s: float
) -> Look:
    place, at_ns = Place(one.rank, node, one.pid), time.time_ns()
    problem = NOT_FOUND
    if time.monotonic() > ends_s:
        return Look(one, look, at_ns, None, f"not looked at within {_ALL_S:g} s")
    if program is not None:
        threads, problem = _by_py_spy(program, one.pid, native)
        if threads is not None:
            return Look(one, look, at_ns, Process(place, threads), problem or None)
    blocked = kernel_stack(one.pid)
    return Look(one, look, at_ns, Process(place, [blocked]) if blocked else None, problem)


def _by_py_spy(program: Path, pid: int, native: bool) -> tuple[list[Thread] | None, str]:
    """The threads with native frames, else without, else why there are none."""
    problem = ""
    for options in (["--native"], []) if native else ([],):
        command = [str(program), "dump", "--json", *options, "--pid", str(pid)]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = f"py-spy: {_first(str(error))}"
            continue
        if done.returncode == 0:
            with suppress(json.JSONDecodeError):
                found = from_json(done.stdout.decode(errors="replace"))
                if found:
                    return found[0].threads, f"no native frames ({problem})" if problem else ""
        problem = _why(pid, done.stderr.decode(errors="replace"))
    return None, problem


def _why(pid: int, said: str) -> str:
    """What py-spy complains of, and what would help."""
    if "permission" not in said.lower() and "not permitted" not in said.lower():
        return f"py-spy: {_first(said) or 'no stack'}"
    owner = "another user"
    with suppress(OSError, KeyError):
        owner = pwd.getpwuid(Path(f"/proc/{pid}").stat().st_uid).pw_name
    help_ = "as root" if os.geteuid() else "with CAP_SYS_PTRACE"
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    yama = ""
    with suppress(OSError):
        if (value := scope.read_text().strip()) != "0":
            yama = f"; kernel.yama.ptrace_scope is {value}"
    return f"py-spy may not trace processes of {owner} here{yama}: run `oncall node` {help_}"


def _first(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:_MOST_PROBLEM] if lines else ""


def kernel_stack(pid: int, proc: Path = Path("/proc")) -> Thread | None:
    """Where the kernel has a process blocked: its own stack for root, else one function of it."""
    folder = proc / str(pid)
    try:
        state = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return None
    names: list[str] = []
    with suppress(OSError):
        lines = (folder / "stack").read_text(errors="replace").splitlines()
        names = [line.split()[-1].partition("+")[0] for line in lines if line.split()]
    if not names:
        with suppress(OSError):
            wchan = (folder / "wchan").read_text(errors="replace").strip()
            names = [wchan] if wchan not in ("", "0") else []
    frames = tuple(frame(name, "kernel") for name in names)
    return Thread(frames, MAIN, str(pid), state) if frames else None
