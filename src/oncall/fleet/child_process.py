"""Child processes that can be abandoned at any moment without leaving anything behind.

Python 3.11's asyncio children hang if interrupted while they start (cpython issue 103847). Here
starting and ending are atomic; only reading and writing wait.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

from oncall.fleet.outcome import HostError


class Child:
    """A running program in its own process group. `output` is its stdout, `said` its stderr,
    `input` its stdin. The caller must call `end`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._writers: list[asyncio.StreamWriter] = []
        self.output: asyncio.StreamReader
        self.said: asyncio.StreamReader
        self.input: asyncio.StreamWriter

    @classmethod
    async def start(cls, argv: Sequence[str]) -> Child:
        """Run a program by its argument list. Raises HostError if that fails."""
        with ExitStack() as sockets:
            (ours, theirs), (hearing, saying) = _pair(sockets), _pair(sockets)
            try:
                process = subprocess.Popen(  # noqa: ASYNC220 - see above; it takes 1 ms
                    argv,
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=saying.fileno(),
                    # We handle Ctrl-C, and can end all processes of the group together.
                    start_new_session=True,
                )
            except FileNotFoundError:
                raise HostError(
                    "error", f"{argv[0]} not found on this machine: install it, or add it to PATH"
                ) from None
            except OSError as error:
                raise HostError("error", f"{argv[0]}: {error.strerror}") from None
            theirs.close()
            saying.close()
            child = cls(process)
            try:
                child.output, child.input = await asyncio.open_connection(sock=ours)
                child._writers.append(child.input)
                child.said, unused = await asyncio.open_connection(sock=hearing)
                child._writers.append(unused)
            except BaseException:
                child.end()
                raise
            sockets.pop_all()
        return child

    async def status(self) -> int:
        """The exit status, once it has ended; that of a signal is negative."""
        while (status := self._process.poll()) is None:  # noqa: ASYNC110
            # Its streams have usually ended by now: this takes milliseconds.
            await asyncio.sleep(0.005)
        return status

    def end(self) -> None:
        """Kill the program and all processes it started. Does not wait for the event loop."""
        # The group outlives its leader: a jump host's ssh is in it too.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for writer in self._writers:
            writer.transport.abort()


async def run_program(argv: Sequence[str], most_s: float) -> tuple[int, bytes, bytes]:
    """Run a program without input; returns its exit status, stdout and stderr.

    Raises HostError if it cannot be run or does not end in time; it is then killed.
    """
    child = await Child.start(argv)
    try:
        async with asyncio.timeout(most_s):
            child.input.write_eof()
            output, said = await asyncio.gather(child.output.read(), child.said.read())
            return await child.status(), output, said
    except TimeoutError:
        raise HostError("timeout", f"{argv[0]} did not end within {most_s:g} s") from None
    finally:
        child.end()


def _pair(sockets: ExitStack) -> tuple[socket.socket, socket.socket]:
    one, other = socket.socketpair()
    return sockets.enter_context(one), sockets.enter_context(other)


_SAID_BYTES = 16 * 1024  # kept of stderr
_GOODBYE_S = 2.0
_LEAVE_S = 5.0

# Exit status and stderr of the child -> why it ended before its answer did.
WhyEnded = Callable[[int, str], HostError]


class ChildChannel:
    """A Channel whose other end is the child's stdin and stdout."""

    def __init__(self, child: Child, why_ended: WhyEnded) -> None:
        self._child = child
        self._why_ended = why_ended
        self._said = bytearray()
        self._listening = asyncio.create_task(self._listen())

    async def write(self, data: bytes) -> None:
        self._child.input.write(data)
        await self._child.input.drain()

    async def read(self, most_bytes: int) -> bytes:
        try:
            return await self._child.output.read(most_bytes)
        except ConnectionError:
            return b""  # it exited without reading all input; `failure` knows why

    async def failure(self) -> HostError | None:
        """Why the child ended, if it did."""
        try:
            async with asyncio.timeout(_GOODBYE_S):
                await asyncio.shield(self._listening)
                status = await self._child.status()
        except TimeoutError:
            return None
        return self._why_ended(status, self._error_output()) if status else None

    async def close(self) -> None:
        """End the child and all processes it started."""
        self._child.end()
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)

    async def leave(self) -> None:
        """End the child's input and wait until it ends by itself; end it after a time limit."""
        # Shielded, so that a cancelled gather leaves no child behind.
        await asyncio.shield(self._leave())

    async def _leave(self) -> None:
        try:
            self._child.input.write_eof()
            async with asyncio.timeout(_LEAVE_S):
                await self._child.status()
        except (TimeoutError, OSError):
            pass  # it reads no further, or is gone
        finally:
            await self.close()

    async def _listen(self) -> None:
        """Keep the end of the stderr."""
        with suppress(OSError):
            while data := await self._child.said.read(4096):
                self._said += data
                self._stderr_grew()
                del self._said[:-_SAID_BYTES]

    def _stderr_grew(self) -> None:
        """Called when the child has written to its stderr."""

    def _error_output(self) -> str:
        return self._said.decode(errors="replace").replace("\r", "")
