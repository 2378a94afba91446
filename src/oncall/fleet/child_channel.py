"""Bytes to and from a command on a node, through a child process of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from oncall.fleet.child_process import Child
from oncall.fleet.outcome import HostError

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
