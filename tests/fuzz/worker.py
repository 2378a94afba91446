"""A process that runs inputs one after the other, within limits that hold; and who watches it.

The worker writes down which input it is at before it runs it. Should it crash, hang or grow too
large, its watcher knows the input, saves it and starts another worker behind it.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import resource
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

from .registry import FOUND, Target, targets

MOST_S = 10.0  # of CPU time for one input: this machine may do other work
_MOST_WALL_S = 120.0  # for one that waits
MOST_BYTES = 2 * 10**9  # of memory, resident
_ADDRESS_BYTES = 16 * 2**30  # DuckDB reserves far more than it uses
_LOOK_S = 0.05
_NONE = -1


@dataclass(frozen=True)
class Failure:
    """An input that broke its target, and how."""

    target: str
    seed: int
    how: str
    saved: Path


@dataclass
class Result:
    """What became of a target's inputs."""

    target: str
    inputs: int = 0
    slowest_s: float = 0.0
    peak_bytes: int = 0
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)


class Surprise(AssertionError):
    """The target printed something."""


class Quiet:
    """Standard output and error of this process, caught: nothing may be printed."""

    def __init__(self) -> None:
        self._caught = os.memfd_create("printed")
        self._kept = os.dup(1), os.dup(2)
        self._point_to(self._caught, self._caught)

    def check(self) -> None:
        """Raise Surprise if something was printed since the last time."""
        sys.stdout.flush()
        sys.stderr.flush()
        if os.fstat(self._caught).st_size:
            printed = os.pread(self._caught, 500, 0)
            os.ftruncate(self._caught, 0)
            os.lseek(self._caught, 0, os.SEEK_SET)
            raise Surprise(f"printed {printed!r}")

    def close(self) -> None:
        """Streams as they were."""
        self._point_to(*self._kept)
        for descriptor in (self._caught, *self._kept):
            os.close(descriptor)

    def _point_to(self, out: int, err: int) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(out, 1)
        os.dup2(err, 2)


def fuzz(name: str, first: int, inputs: int, until: float, known: set[str]) -> Result:
    """Run `inputs` inputs of a target from seed `first`, or as many as fit before the moment
    `until`. `known` names failures that are reported already, and is added to."""
    target = targets()[name]
    result = Result(name)
    began = time.monotonic()
    seed = first
    while seed < first + inputs and time.monotonic() < until:
        seed = _run_worker(target, seed, first + inputs, until, result, known)
    result.inputs = seed - first
    result.seconds = time.monotonic() - began
    return result


def _run_worker(
    target: Target, first: int, end: int, until: float, result: Result, known: set[str]
) -> int:
    """Run inputs in one worker until it is through or breaks; returns the next seed."""
    context = multiprocessing.get_context("fork")
    at: Any = context.Value(ctypes.c_longlong, _NONE)
    since: Any = context.Value(ctypes.c_double, 0.0)
    used: Any = context.Value(ctypes.c_double, 0.0)
    peak: Any = context.Value(ctypes.c_longlong, 0)
    receiver, sender = context.Pipe(duplex=False)
    worker = context.Process(
        target=_work,
        args=(target, range(first, end), until, State(at, since, used, peak), sender),
        daemon=True,
    )
    worker.start()
    sender.close()
    how = _watch(worker, State(at, since, used, peak), result)
    worker.join()
    try:
        broken = receiver.recv()
    except EOFError:  # it had nothing to report
        broken = how
    result.peak_bytes = max(result.peak_bytes, peak.value)
    if broken is None and worker.exitcode:
        broken = f"the process died ({worker.exitcode})"
    if at.value == _NONE:
        if broken is None:
            return end  # the time was up before its first input
        raise RuntimeError(f"{target.name}: no input can be made: {broken}")
    if broken is None:
        return int(at.value) + 1
    _report(target, int(at.value), broken, result, known)
    return int(at.value) + 1


@dataclass(frozen=True)
class State:
    """What a worker and its watcher share."""

    at: Synchronized[int]  # the seed that is being run
    since: Synchronized[float]  # since when, by the monotonic clock
    used: Synchronized[float]  # CPU time of the worker until then
    peak: Synchronized[int]  # bytes


def _watch(worker: Any, state: State, result: Result) -> str | None:
    """Wait for the worker's end; why it was ended, if it had to be."""
    while worker.is_alive():
        worker.join(_LOOK_S)
        seed, wall_s = state.at.value, time.monotonic() - state.since.value
        cpu_s, rss = _cpu_s(worker.pid) - state.used.value, _rss_bytes(worker.pid)
        if seed == _NONE or seed != state.at.value:
            continue  # it goes on
        result.slowest_s = max(result.slowest_s, cpu_s)
        result.peak_bytes = max(result.peak_bytes, rss)
        for is_too_much, how in (
            (cpu_s > MOST_S, f"more than {MOST_S:g} s of CPU time"),
            (wall_s > _MOST_WALL_S, f"waits for more than {_MOST_WALL_S:g} s"),
            (rss > MOST_BYTES, "more than 2 GB of memory"),
        ):
            if is_too_much:
                worker.kill()
                worker.join()
                return how
    return None


def _work(target: Target, seeds: range, until: float, state: State, report: Any) -> None:
    """Run inputs until one breaks, or all are through."""
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_BYTES, _ADDRESS_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    quiet = Quiet()
    for seed in seeds:
        if time.monotonic() > until:
            break
        try:
            data = target.make(seed)
            state.used.value, state.since.value = time.process_time(), time.monotonic()
            state.at.value = seed
            target.run(data)
            quiet.check()
        except BaseException as error:  # whatever it is, it was not to escape
            report.send(_said(error))
            break
    state.peak.value = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    os._exit(0)


def _said(error: BaseException) -> str:
    """The error and the innermost line of ours that it came through."""
    lines = traceback.extract_tb(error.__traceback__)
    ours = [line for line in lines if "oncall" in line.filename and "fuzz" not in line.filename]
    where = f" at {Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""
    return f"{type(error).__name__}: {str(error)[:200]}{where}"


def _report(target: Target, seed: int, how: str, result: Result, known: set[str]) -> None:
    """Save the input, unless one that fails in the same place is saved already."""
    place = f"{target.name}: {how.rpartition(' at ')[2] if ' at ' in how else how[:40]}"
    if place in known:
        return
    known.add(place)
    folder = FOUND / target.name
    folder.mkdir(parents=True, exist_ok=True)
    saved = folder / f"seed-{seed}.bin"
    # In a process of its own: it may start threads, and workers are forked from here.
    save = multiprocessing.get_context("fork").Process(target=_save, args=(target, seed, saved))
    save.start()
    save.join()
    result.failures.append(Failure(target.name, seed, how, saved))
    print(f"BROKEN {target.name} seed {seed}: {how}; saved as {saved}", flush=True)


def _save(target: Target, seed: int, path: Path) -> None:
    path.write_bytes(target.make(seed))


def _cpu_s(pid: int | None) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_bytes(pid: int | None) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def names(wanted: Sequence[str]) -> list[str]:
    """The targets named, all if none is. Raises SystemExit for one that there is not."""
    known = targets()
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise SystemExit(f"unknown target {', '.join(unknown)}; there are {', '.join(known)}")
    return list(wanted or known)
