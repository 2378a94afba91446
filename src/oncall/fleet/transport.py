"""How a console queries nodes: one protocol over any byte channel.

    async with transport.connect("gpu017") as connection:
        await connection.measure_clock()
        end = await connection.ask(Request("digest", job="llama"), FolderSink(folder, "gpu017"))

A transport opens a byte channel to `oncall node serve` on a host. Frames, size and time limits and
the clock are handled here. Each answer goes to disk as it arrives, so memory stays bounded however
many nodes answer at once.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Protocol, TypeGuard

from oncall.fleet.outcome import HostError, Kind
from oncall.node.store.parts import ReceivedPart
from oncall.node.store.wire import (
    DEFAULT_LIMITS,
    End,
    FrameDecoder,
    Limits,
    Request,
    Sink,
    WireError,
    check_versions,
)

READ_BYTES = 256 * 1024
_MOST_INSTANT_NS = 2**62  # in the year 2116

_KIND_OF_REASON: dict[str, Kind] = {
    "version": "version",
    "protocol": "protocol",
    "no-data": "no-data",
    "job": "no-data",
}


class Channel(Protocol):
    """Bytes to and from `oncall node serve` on a host."""

    async def write(self, data: bytes) -> None:
        """Send; returns once buffered. Raises OSError or HostError."""

    async def read(self, most_bytes: int) -> bytes:
        """The next bytes; b"" at the end. Raises OSError, or HostError if the reason is known."""

    async def failure(self) -> HostError | None:
        """Why the channel ended before an answer did (exit status, stderr), if that is known.

        Called once after the end, or after a first line that is not a frame."""


class Question(Protocol):
    """What can be asked over a connection."""

    def line(self) -> bytes:
        """The question as the one line that is sent."""


class Transport(Protocol):
    """Reaches hosts. `connect` retries by itself and fails when retrying is useless."""

    def connect(self, host: str) -> AbstractAsyncContextManager[Connection]:
        """A connection to the host's endpoint, closed on leaving.

        Raises HostError."""


@asynccontextmanager
async def opened(transport: Transport) -> AsyncIterator[Transport]:
    """The transport, entered if it is a context manager."""
    if isinstance(transport, AbstractAsyncContextManager):
        async with transport:
            yield transport
    else:
        yield transport


@dataclass(frozen=True)
class Clock:
    """A node's clock minus the console's at `at_ns` (node's clock), accurate to `error_ns`."""

    at_ns: int
    offset_ns: int
    error_ns: int


def _is_instant(value: object) -> TypeGuard[int]:
    """Whether the value is a valid time: a difference of two must fit in a column."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_INSTANT_NS


class NoSink:
    """The sink of requests whose answer has no parts."""

    def part(self, table: str, rows: int) -> IO[bytes]:  # noqa: ARG002
        raise WireError(f"sent rows of {table} that were not requested")


class FolderSink:
    """Parts of one answer as Parquet files in a folder of their own."""

    def __init__(self, folder: Path, sender: str) -> None:
        self.folder = folder
        self.sender = sender
        self.parts: list[ReceivedPart] = []
        folder.mkdir(parents=True, exist_ok=True)

    def part(self, table: str, rows: int) -> IO[bytes]:
        path = self.folder / f"{len(self.parts)}.{table}.parquet"
        self.parts.append(ReceivedPart(self.sender, table, rows, path))
        return path.open("wb")

    def moved_to(self, folder: Path) -> list[ReceivedPart]:
        """The parts, below another folder from now on."""
        place = folder / self.folder.name
        if place != self.folder:
            shutil.move(self.folder, place)
        return [replace(part, path=place / part.path.name) for part in self.parts]


_ROUND_TRIPS = 3  # to measure a clock by


class Connection:
    """A connection to a node's endpoint; takes one request at a time."""

    def __init__(
        self,
        host: str,
        channel: Channel,
        *,
        silence_s: float = 15.0,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """`silence_s`: the time limit without any bytes from the node."""
        self.host = host
        self.channel = channel
        self.clock: Clock | None = None
        self.bytes = 0
        self.progress: Callable[[int], None] | None = None  # called with the bytes received
        self._silence_s = silence_s
        self._limits = limits
        self._fresh = True

    async def ask(
        self,
        request: Question,
        sink: Sink | None = None,
        limits: Limits | None = None,
        silence_s: float | None = None,
    ) -> End:
        """Send a request and read the answer into the sink; `silence_s` for an answer that takes
        its time. After a HostError, close."""
        decoder = FrameDecoder(sink or NoSink(), limits or self._limits)
        silence_s = silence_s or self._silence_s
        try:
            await self._send(request.line())
            return await self._receive(decoder, silence_s)
        except WireError as error:
            raise await self._explained(error) from error
        except TimeoutError:
            raise HostError("timeout", f"no data for {silence_s:g} s") from None
        except OSError as error:
            raise HostError("error", error.strerror or str(error)) from error
        finally:
            decoder.close()
            self._fresh = False

    async def hello(self, request: Request | None = None, *, silence_s: float | None = None) -> End:
        """Query the node's status. Raises HostError, of kind `version` if incompatible."""
        end = await self.ask(request or Request("hello"), silence_s=silence_s)
        try:
            check_versions(end.status)
        except WireError as error:
            raise await self._explained(error) from error
        return end

    async def measure_clock(self) -> Clock:
        """The node's clock offset, from the fastest of some round trips, as in NTP."""
        for _ in range(_ROUND_TRIPS):
            sent_ns, began_ns = time.time_ns(), time.monotonic_ns()
            end = await self.ask(Request("clock"))
            took_ns = time.monotonic_ns() - began_ns
            received, answered = end.status.get("received_ns"), end.status.get("answered_ns")
            if not _is_instant(received) or not _is_instant(answered):
                raise HostError("protocol", "the answer has no clock readings")
            offset_ns = (received + answered - 2 * sent_ns - took_ns) // 2
            error_ns = max(0, took_ns - max(0, answered - received)) // 2 + 1
            if self.clock is None or error_ns < self.clock.error_ns:
                self.clock = Clock(answered, offset_ns, error_ns)
        assert self.clock is not None
        return self.clock

    async def _send(self, line: bytes) -> None:
        try:
            async with asyncio.timeout(self._silence_s):
                await self.channel.write(line)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it closed the connection: its last output says why

    async def _receive(self, decoder: FrameDecoder, silence_s: float) -> End:
        while True:
            async with asyncio.timeout(silence_s):
                data = await self.channel.read(READ_BYTES)
            if not data:
                raise decoder.broken_off()
            self.bytes += len(data)
            if self.progress is not None:
                self.progress(len(data))
            # Parts are written to disk while other hosts are read.
            if (end := decoder.feed(data)) is not None:
                return end

    async def _explained(self, error: WireError) -> HostError:
        """The error as the channel explains it, else as the answer does."""
        ended = error.reason == "broken-off"
        if ended or (error.reason == "protocol" and self._fresh):
            known = await self.channel.failure()
            if known is not None:
                return known
        return HostError(_KIND_OF_REASON.get(error.reason, "error"), str(error))
