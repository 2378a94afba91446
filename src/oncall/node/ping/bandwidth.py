"""The TCP bandwidth from one node to another: a short check, bounded in bytes and time.

It uses one stream of one program. Its result can show that a path is slow, never that a path is as
fast as its NICs; only RDMA can fill those.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from oncall.node.ping.stamped_socket import Address

MOST_BYTES = 256 * 2**20
MOST_S = 2.0
_PIECE_BYTES = 2**20
_PATIENCE_S = 5.0
_MAGIC = b"ocbw"


@dataclass(frozen=True)
class Transfer:
    """Bytes that arrived, and how long that took from the first to the last."""

    at_ns: int
    bytes: int
    duration_ns: int


class Receiver:
    """Accepts one stream at a time and discards its bytes, in a thread, until closed."""

    def __init__(self, address: str) -> None:
        """Raises OSError."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.create_server((address, 0), family=family, backlog=4)
        self.port: int = self._socket.getsockname()[1]
        self._client: socket.socket | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="receiver", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing = True
        for each in (self._socket, self._client):
            if each is not None:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        while not self._closing:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            self._client = client
            with client, suppress(OSError):
                client.settimeout(_PATIENCE_S)
                _receive(client)


def send(
    address: Address,
    here: str,
    most_bytes: int,
    most_s: float,
    is_over: Callable[[], bool] = lambda: False,
) -> Transfer:
    """Send zeros to a receiver from the local address `here`, until one of both bounds is met.
    Raises OSError."""
    piece = bytes(_PIECE_BYTES)
    most_bytes = min(most_bytes, MOST_BYTES)
    with socket.create_connection(address[:2], _PATIENCE_S, source_address=(here, 0)) as stream:
        at_ns = time.time_ns()
        deadline = time.monotonic() + min(most_s, MOST_S)
        sent = 0
        stream.sendall(_MAGIC)
        while sent < most_bytes and time.monotonic() < deadline and not is_over():
            stream.sendall(piece)
            sent += len(piece)
        stream.shutdown(socket.SHUT_WR)
        return _result(stream, at_ns)


def _receive(client: socket.socket) -> None:
    """Count a stream to its end, and report bytes and time from its first byte to its last."""
    if client.recv(len(_MAGIC), socket.MSG_WAITALL) != _MAGIC:
        return
    buffer = bytearray(_PIECE_BYTES)
    began_ns = last_ns = time.monotonic_ns()
    total = 0
    while (count := client.recv_into(buffer)) and total <= 2 * MOST_BYTES:
        total += count
        last_ns = time.monotonic_ns()
    client.sendall(struct.pack("!QQ", total, last_ns - began_ns))


def _result(stream: socket.socket, at_ns: int) -> Transfer:
    readable, _, _ = select.select([stream], [], [], _PATIENCE_S)
    answer = stream.recv(16, socket.MSG_WAITALL) if readable else b""
    if len(answer) != 16:
        raise OSError("the receiver did not say what came")
    total, duration_ns = struct.unpack("!QQ", answer)
    return Transfer(at_ns, total, max(1, duration_ns))
