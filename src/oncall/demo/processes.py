"""Child processes that do not outlive their parent, however it ends."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_libc = ctypes.CDLL(None)


@dataclass(frozen=True, eq=False)
class Process:
    """A child and where its output goes. `name` is what a person calls it: rank 5."""

    name: str
    child: subprocess.Popen[bytes]
    log: Path

    def last_words(self, lines: int = 5) -> str:
        """The end of its output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


@dataclass
class Processes:
    """The children of a demonstration. A context manager: leaving it ends them all.

    Each has a session of its own, so that Ctrl-C reaches only their starter, who ends them in
    order; and the kernel ends them should their starter be killed.
    """

    logs: Path
    running: list[Process] = field(default_factory=list)

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> Process:
        """Start a child whose output goes to `<logs>/<name>.log`. Raises OSError."""
        log = self.logs / f"{name.replace(' ', '-')}.log"
        with log.open("wb") as output:
            child = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # before any thread is started
            )
        process = Process(name, child, log)
        self.running.append(process)
        return process

    def ended(self) -> list[Process]:
        """The children that have ended by themselves."""
        return [process for process in self.running if process.child.poll() is not None]

    def stop(self, processes: Sequence[Process], patience_s: float = 0.0) -> None:
        """End these children: asked first where there is patience, then killed."""
        if patience_s:
            for process in processes:
                process.child.terminate()
            for process in processes:
                with suppress(subprocess.TimeoutExpired):
                    process.child.wait(patience_s)
        for process in processes:
            # SIGKILL also ends a stopped process, and what it started is in its group.
            with suppress(ProcessLookupError):
                os.killpg(process.child.pid, signal.SIGKILL)
            process.child.wait()
            self.running.remove(process)

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # An impatient second Ctrl-C must not leave half of them behind.
        with _ignoring(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self.stop(list(self.running))


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Within, SIGTERM and a closed terminal end things in order, as Ctrl-C does."""

    def leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise KeyboardInterrupt

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _ignoring(*numbers: signal.Signals) -> Iterator[None]:
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
