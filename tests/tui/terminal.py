"""The real program in a real pseudo-terminal, played with as a person would."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
DEADLINE_S = 60.0
# What a terminal that was left clean received last: main screen, cursor, no mouse, no paste marks.
CLEAN = (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1000l", b"\x1b[?2004l")


class Terminal:
    """A process on a pseudo-terminal. `seen` is all it has written."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self.seen = b""
        self.status: int | None = None
        self._descriptor = descriptor

    def wait_for(self, text: str) -> None:
        """Until it has written that."""
        deadline = time.monotonic() + DEADLINE_S
        while text.encode() not in self.seen:
            assert time.monotonic() < deadline, f"no {text!r} in {self.seen[-4000:]!r}"
            assert self._read(), f"it ended without {text!r}: {self.seen[-4000:]!r}"

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    @property
    def unread(self) -> int:
        """How many bytes it has written that nobody has read."""
        reported = fcntl.ioctl(self._descriptor, termios.FIONREAD, bytes(4))
        return int(struct.unpack("i", reported)[0])

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def hang_up(self) -> None:
        """The terminal is gone, as when a connection breaks."""
        os.close(self._descriptor)
        self._descriptor = -1

    def wait(self) -> int:
        """Until it has ended; returns its exit code, or minus the signal that killed it."""
        deadline = time.monotonic() + DEADLINE_S
        while self.status is None:
            assert time.monotonic() < deadline, f"it does not end: {self.seen[-4000:]!r}"
            if self._descriptor >= 0:
                self._read()
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.status = os.waitstatus_to_exitcode(status)
            else:
                time.sleep(0.01)
        while self._descriptor >= 0 and self._read():
            pass
        return self.status

    @property
    def left_clean(self) -> bool:
        return all(
            self.seen.rfind(reported) > self.seen.rfind(b"\x1b[?1049h") for reported in CLEAN
        )

    def _read(self) -> bool:
        """Take in what comes within a moment; False at the end."""
        ready, _, _ = select.select([self._descriptor], [], [], 0.05)
        if ready:
            try:
                chunk = os.read(self._descriptor, 1 << 16)
            except OSError:
                return False
            self.seen += chunk
            return bool(chunk)
        return True

    def close(self) -> None:
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self._descriptor >= 0:
            os.close(self._descriptor)


@contextmanager
def terminal(
    *arguments: str, size: tuple[int, int] = (100, 30), environment: Mapping[str, str] | None = None
) -> Iterator[Terminal]:
    """`oncall` with arguments, on a terminal of that width and height."""
    pid, descriptor = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        os.environ |= {"TERM": "xterm-256color", "PYTHONPATH": str(SOURCE), **(environment or {})}
        os.execv(sys.executable, [sys.executable, "-m", "oncall.cli.main", *arguments])
    running = Terminal(pid, descriptor)
    try:
        yield running
    finally:
        running.close()
