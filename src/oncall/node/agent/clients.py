"""Clients of a local socket: one thread reads what they ask and writes what they get, none waits.

    accepted --a line--> asking --an answer--> listening --all of it--> gone

Every client has a deadline for each of these steps as a whole, however often it sends or takes a
byte, and there is room for a few dozen. One that says nothing makes room for the next; one that is
slow costs a place among these and nothing else. Answers are made elsewhere, in a few threads; quick
ones here.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

MOST_CLIENTS = 32
MOST_ANSWERS = 4  # made at a time
ASK_WITHIN_S = 5.0  # from the connection to the end of the question
LISTEN_WITHIN_S = 30.0  # from the answer's first byte to its last
_PIECE_BYTES = 64 * 1024
_NO_ROOM_S = 0.05  # between attempts to accept, where that fails

MakeAnswer = Callable[[bytes, IO[bytes]], None]  # of a question, into a file


@dataclass(eq=False)
class _Client:
    """One connection. Before its question is whole `answer` is None and so is `spool`."""

    connection: socket.socket
    deadline_s: float
    question: bytearray = field(default_factory=bytearray)
    is_waiting: bool = False  # for its answer to be made
    spool: IO[bytes] | None = None
    piece: memoryview = field(default_factory=lambda: memoryview(b""))


class Clients:
    """Serves who connects to `listening`, until `close`.

    `make_answer(question, file)` is called in a thread of its own and must not raise, nor wait
    where `is_quick(question)`: then this thread calls it. A question is a line of at most
    `most_question_bytes`, or what came instead of one. `spool` makes the file.
    """

    def __init__(
        self,
        listening: socket.socket,
        make_answer: MakeAnswer,
        spool: Callable[[], IO[bytes]],
        *,
        is_quick: Callable[[bytes], bool] = lambda question: False,  # noqa: ARG005
        most_question_bytes: int,
        ask_within_s: float = ASK_WITHIN_S,
        listen_within_s: float = LISTEN_WITHIN_S,
        most_clients: int = MOST_CLIENTS,
    ) -> None:
        self._listening = listening
        self._make_answer = make_answer
        self._spool = spool
        self._is_quick = is_quick
        self._most_question_bytes = most_question_bytes
        self._ask_within_s, self._listen_within_s = ask_within_s, listen_within_s
        self._most_clients = most_clients
        self._clients: list[_Client] = []
        self._made: deque[tuple[_Client, IO[bytes] | None]] = deque()
        self._answering = ThreadPoolExecutor(MOST_ANSWERS, thread_name_prefix="tail")
        self._stopping = False
        self._selector = selectors.DefaultSelector()
        self._wakes, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        listening.setblocking(False)
        self._selector.register(listening, selectors.EVENT_READ)
        self._selector.register(self._wakes, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="tail", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, finish the answers that are being made, and close all connections."""
        self._stopping = True
        self._wake_up()
        self._thread.join()
        self._answering.shutdown(wait=True, cancel_futures=True)
        for client in list(self._clients):
            self._leave(client)
        while self._made:
            if spool := self._made.popleft()[1]:
                spool.close()
        self._selector.close()
        os.close(self._wakes)
        os.close(self._wake)

    # ------------------------------------------------------------------ the loop

    def _run(self) -> None:
        while not self._stopping:
            for key, _ in self._selector.select(self._patience_s()):
                if key.fileobj is self._listening:
                    self._accept()
                elif isinstance(key.data, _Client):
                    self._serve(key.data)
                else:
                    with suppress(BlockingIOError):
                        os.read(self._wakes, 4096)
            while self._made:
                self._begin_to_write(*self._made.popleft())
            now_s = time.monotonic()
            for client in [each for each in self._clients if not each.is_waiting]:
                if now_s >= client.deadline_s:
                    self._leave(client)

    def _patience_s(self) -> float | None:
        """Seconds until the next deadline. A client that waits for an answer has none."""
        deadlines = [each.deadline_s for each in self._clients if not each.is_waiting]
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None

    def _wake_up(self) -> None:
        with suppress(BlockingIOError):  # it is full: it wakes anyway
            os.write(self._wake, b".")

    def _serve(self, client: _Client) -> None:
        try:
            if client.spool is None:
                self._read(client)
            else:
                self._write(client)
        except BlockingIOError:
            pass
        except OSError:
            self._leave(client)  # gone

    # ------------------------------------------------------------------ the steps

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except OSError:
            time.sleep(_NO_ROOM_S)  # gone again, or no file descriptor is left for it
            return
        connection.setblocking(False)
        if len(self._clients) >= self._most_clients:
            silent = [each for each in self._clients if not each.is_waiting and not each.spool]
            if not silent:
                connection.close()
                return
            self._leave(min(silent, key=lambda each: each.deadline_s))
        client = _Client(connection, time.monotonic() + self._ask_within_s)
        self._clients.append(client)
        self._selector.register(connection, selectors.EVENT_READ, client)

    def _read(self, client: _Client) -> None:
        data = client.connection.recv(_PIECE_BYTES)
        if not data and not client.question:
            self._leave(client)
            return
        client.question += data
        end = client.question.find(b"\n")
        if data and end < 0 and len(client.question) <= self._most_question_bytes:
            return
        self._selector.unregister(client.connection)
        client.is_waiting = True
        line = bytes(client.question[: end + 1 or None])
        if self._is_quick(line):
            self._make(client, line)
        else:
            self._answering.submit(self._make, client, line)

    def _make(self, client: _Client, question: bytes) -> None:
        """Make the answer, in a thread of its own unless it is quick, and hand it to the loop."""
        spool: IO[bytes] | None = None
        try:
            spool = self._spool()
            self._make_answer(question, spool)
            spool.seek(0)
        finally:
            self._made.append((client, spool))
            self._wake_up()

    def _begin_to_write(self, client: _Client, spool: IO[bytes] | None) -> None:
        client.is_waiting, client.spool = False, spool
        client.deadline_s = time.monotonic() + self._listen_within_s
        if spool is None:
            self._leave(client)
            return
        self._selector.register(client.connection, selectors.EVENT_WRITE, client)

    def _write(self, client: _Client) -> None:
        assert client.spool is not None
        if not client.piece:
            client.piece = memoryview(client.spool.read(_PIECE_BYTES))
            if not client.piece:
                self._leave(client)
                return
        client.piece = client.piece[client.connection.send(client.piece) :]

    def _leave(self, client: _Client) -> None:
        self._clients.remove(client)
        with suppress(KeyError, ValueError):  # it waits for its answer
            self._selector.unregister(client.connection)
        client.connection.close()
        if client.spool is not None:
            client.spool.close()
