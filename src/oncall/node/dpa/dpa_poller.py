"""The poller process of one NIC: started, read, and restarted when it ends."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oncall.core.errors import BadInput
from oncall.node.dpa.dpa_pages import FrameKind, Page, read_page, split_frames

_READ_BYTES = 1 << 20
_MOST_HELD = 16 * 2**20  # bytes of pages; beyond, the poller and then the NIC have to wait
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)  # before it is started again
_PATIENCE_S = 2.0


@dataclass
class Taken:
    """Pages since it was asked last, each with the Unix time it was here, ns; what is wrong."""

    pages: list[tuple[Page, int]] = field(default_factory=list)
    problem: str = ""


class Poller:
    """Runs `program nic` in a thread of its own until `close`."""

    def __init__(
        self, program: Path, nic: str, every_ms: int, pauses_s: Sequence[float] = PAUSES_S
    ) -> None:
        self.nic = nic
        self._command = [str(program), nic, str(every_ms)]
        self._pauses_s = pauses_s
        self._polled = Taken()
        self._held = 0  # bytes of its pages
        self._pages = 0  # ever
        self._room = threading.Condition()
        self._closing = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name=f"dpa {nic}", daemon=True)
        self._thread.start()

    def take(self) -> Taken:
        """Pages since the last call; never waits."""
        with self._room:
            taken, self._polled = self._polled, Taken(problem=self._polled.problem)
            self._held = 0
            self._room.notify()
        return taken

    def close(self) -> None:
        """End the process, if it lives."""
        self._closing.set()
        with self._room:
            self._room.notify()
            if self._process:
                self._process.terminate()
        self._thread.join(_PATIENCE_S)

    # ---------------------------------------------------------------- its own thread

    def _run(self) -> None:
        failures = 0
        while not self._closing.is_set():
            before = self._pages
            why = self._run_once()
            failures = 0 if self._pages > before else failures + 1
            pause_s = self._pauses_s[min(failures, len(self._pauses_s) - 1)]
            self._say(f"{why}; restarting it after {pause_s:g} s")
            self._closing.wait(pause_s)

    def _run_once(self) -> str:
        """One life of the process; returns what ended it."""
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            return f"{self._command[0]} cannot be started: {error.strerror}"
        with self._room:
            self._process = process
        try:
            last_words = self._read(process)
        except BadInput as error:
            last_words = f"{error.place}: {error.problem}"
        finally:
            _end(process)
        return last_words or f"{self._command[0]} ended ({_how(process.returncode)})"

    def _read(self, process: subprocess.Popen[bytes]) -> str:
        """Frames until there are no more; returns the last problem, if nothing followed it."""
        assert process.stdout is not None
        left = b""
        problem = ""
        while not self._closing.is_set():
            came = os.read(process.stdout.fileno(), _READ_BYTES)
            if not came:
                return problem
            frames, left = split_frames(left + came, self._command[0])
            for frame in frames:
                if frame.kind == FrameKind.PAGE:
                    problem = ""
                    page = read_page(frame.payload, self.nic)
                    self._hand_over(page, frame.after_ns)
                else:
                    problem = frame.payload.decode("utf-8", "replace")
                    self._say(problem)
        return problem

    def _hand_over(self, page: Page, after_ns: int) -> None:
        with self._room:
            while self._held > _MOST_HELD and not self._closing.is_set():
                self._room.wait()
            self._polled.pages.append((page, after_ns))
            self._polled.problem = ""
            self._held += page.batches.nbytes
            self._pages += 1

    def _say(self, problem: str) -> None:
        with self._room:
            self._polled.problem = problem


def _end(process: subprocess.Popen[bytes]) -> None:
    """Make sure that the process has ended, and close its pipe."""
    process.terminate()
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    assert process.stdout is not None
    process.stdout.close()


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit {code}"
