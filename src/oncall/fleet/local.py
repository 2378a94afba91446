"""Nodes that are data folders on this machine: `local:DIR/*`.

For recorded evidence and for trying things out. Each node is a child process that runs the real
endpoint, or the same endpoint in a thread of this process.
"""

from __future__ import annotations

import asyncio
import glob
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from oncall.core.errors import UsageError
from oncall.fleet.child_process import Child, ChildChannel
from oncall.fleet.outcome import HostError, last_line
from oncall.fleet.transport import Connection
from oncall.node.store.catalog import sealed_shards

PREFIX = "local:"
_RUN = "run"  # a folder's own run folder, if it has one
# All nodes share this machine: fewer run at once, and each may take longer.
PATIENCE_S = 300.0
AT_ONCE = 2 * (os.cpu_count() or 1)


def local_nodes(pattern: str) -> dict[str, Path]:
    """The nodes of `local:PATTERN`: name -> data folder. Raises UsageError if there are none."""
    # A shell does not expand the ~ after `local:`.
    wanted = os.path.expanduser(pattern.removeprefix(PREFIX))  # noqa: PTH111 - no path, a pattern
    found = [Path(name) for name in sorted(glob.glob(wanted))]  # noqa: PTH207
    folders = {path.name: path for path in found if path.is_dir()}
    if not folders:
        raise UsageError(f"{pattern}: no such folder")
    return folders


class LocalTransport:
    """Reaches nodes that are folders."""

    def __init__(self, folders: Mapping[str, Path], *, in_process: bool = False) -> None:
        """`folders`: data folder by host. If it contains a folder `run`, the collector's socket is
        in there."""
        self._folders = folders
        self._in_process = in_process

    @asynccontextmanager
    async def connect(self, host: str) -> AsyncIterator[Connection]:
        folder = self._folders.get(host)
        if folder is None or not folder.is_dir():
            raise HostError("refused", "no such folder")
        opened = _in_thread(host, folder) if self._in_process else _in_child(host, folder)
        async with opened as connection:
            yield connection


class StreamChannel:
    """Bytes to and from whoever holds the other end of a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def read(self, most_bytes: int) -> bytes:
        return await self._reader.read(most_bytes)

    async def failure(self) -> HostError | None:
        return None


@asynccontextmanager
async def _in_child(host: str, folder: Path) -> AsyncIterator[Connection]:
    child = await Child.start(
        (
            *(sys.executable, "-m", "oncall.cli.node", "serve"),
            *("--data-dir", str(folder)),
            *(["--run-dir", str(folder / _RUN)] if _is_live(folder) else ["--sealed"]),
            *(["--node", host] if _is_of(folder, host) else []),
        )
    )
    channel = ChildChannel(child, _why_ended)
    try:
        yield Connection(host, channel, silence_s=PATIENCE_S)
    finally:
        await channel.leave()


def _why_ended(status: int, said: str) -> HostError:
    return HostError("error", last_line(said) or f"its process ended with status {status}")


@asynccontextmanager
async def _in_thread(host: str, folder: Path) -> AsyncIterator[Connection]:
    from oncall.fleet.endpoint.node import Node
    from oncall.fleet.endpoint.serve import serve

    ours, theirs = socket.socketpair()
    name = host if _is_of(folder, host) else None
    node = Node.here(folder, folder / _RUN, name, sealed=not _is_live(folder))

    def run() -> None:
        reading, writing = theirs.makefile("rb"), theirs.makefile("wb")
        with suppress(OSError), theirs, reading, writing:
            serve(node, reading, writing)

    thread = threading.Thread(target=run, name=f"node-{host}", daemon=True)
    thread.start()
    reader, writer = await asyncio.open_connection(sock=ours)
    try:
        yield Connection(host, StreamChannel(reader, writer), silence_s=PATIENCE_S)
    finally:
        writer.close()
        await asyncio.to_thread(thread.join)


def _is_live(folder: Path) -> bool:
    """Whether a collector runs there."""
    return (folder / _RUN).is_dir()


def _is_of(folder: Path, host: str) -> bool:
    """Whether the folder holds shards of that node, or no shards yet."""
    nodes = {shard.node for shard in sealed_shards(folder)}
    return host in nodes or not nodes
