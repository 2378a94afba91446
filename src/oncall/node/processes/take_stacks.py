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
from dataclasses import dataclass, field
from pathlib import Path

from oncall.importers.stacks.documents import from_json
from oncall.importers.stacks.dump import MAIN, Place, Process, Thread, frame
from oncall.node.processes.training_processes import TrainingProcess

LOOK_EVERY_S = 2.0
_AT_ONCE = 4  # py-spy reads hundreds of megabytes of debug symbols for native frames
_TIMEOUT_S = 5.0  # of one look at one process, which py-spy may hold stopped as long
_ALL_S = 45.0  # less than the patience of who asks
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
    milliseconds, for native frames up to a second; after five it is killed, and that process is
    not stopped again."""
    looking = _Looking(find_py_spy(), node, native, time.monotonic() + _ALL_S)
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        for look in range(1, looks + 1):
            next_s = time.monotonic() + LOOK_EVERY_S
            asked = [pool.submit(looking.look, one, look) for one in processes]
            for done in as_completed(asked):
                yield done.result()
            if look < looks:
                time.sleep(max(0.0, next_s - time.monotonic()))
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass
class _Looking:
    """How processes are looked at, and which of them py-spy was too slow for."""

    program: Path | None
    node: str
    native: bool
    ends_s: float
    slow: dict[int, str] = field(default_factory=dict)

    def look(self, one: TrainingProcess, look: int) -> Look:
        place, at_ns = Place(one.rank, self.node, one.pid), time.time_ns()
        left_s = self.ends_s - time.monotonic()
        if left_s <= 0:
            return Look(one, look, at_ns, None, f"not looked at within {_ALL_S:g} s")
        problem = self.slow.get(one.pid, NOT_FOUND)
        if self.program is not None and one.pid not in self.slow:
            try:
                threads, problem = _by_py_spy(
                    self.program, one.pid, self.native, min(_TIMEOUT_S, left_s)
                )
            except subprocess.TimeoutExpired:
                hint = "; try --no-native" if self.native else ""
                threads, problem = None, f"py-spy took more than {_TIMEOUT_S:g} s{hint}"
                self.slow[one.pid] = problem
            if threads is not None:
                return Look(one, look, at_ns, Process(place, threads), problem or None)
        blocked = kernel_stack(one.pid)
        return Look(one, look, at_ns, Process(place, [blocked]) if blocked else None, problem)


def _by_py_spy(
    program: Path, pid: int, native: bool, timeout_s: float
) -> tuple[list[Thread] | None, str]:
    """The threads with native frames, else without, else why there are none. Raises
    TimeoutExpired."""
    problem, ends_s = "", time.monotonic() + timeout_s
    kinds = [["--native"], []] if native else [[]]
    # py-spy cannot stop such a thread: it would wait for it, with the other threads stopped.
    if has_uninterruptible_thread(pid):
        kinds = [["--nonblocking"]]
        problem = "a thread of it is in state D" if native else ""
    for options in kinds:
        command = [str(program), "dump", "--json", *options, "--pid", str(pid)]
        left_s = max(0.0, ends_s - time.monotonic())
        try:
            done = subprocess.run(command, capture_output=True, timeout=left_s, check=False)
        except OSError as error:
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


def has_uninterruptible_thread(pid: int, proc: Path = Path("/proc")) -> bool:
    """Whether a thread waits in the kernel in state D, in which no tracer can stop it."""
    return any(_state(folder) == "D" for folder in (proc / str(pid)).glob("task/*"))


def _state(folder: Path) -> str | None:
    """The state of a process or thread (`S`, `D`), None if it has ended."""
    try:
        return (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return None


def kernel_stack(pid: int, proc: Path = Path("/proc")) -> Thread | None:
    """Where the kernel has a process blocked: its own stack for root, else one function of it."""
    folder = proc / str(pid)
    state = _state(folder)
    if state is None:
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
