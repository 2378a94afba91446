"""Clients that say nothing, say it slowly, or never listen: each costs a place, for a while."""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import pytest

from oncall.node.agent.clients import Clients

Until = Callable[[Callable[[], object]], None]
ANSWER = b"answer\n" * 100_000  # more than a socket holds


def _answer(question: bytes, spool: IO[bytes]) -> None:
    spool.write(ANSWER if question == b"all\n" else b"you asked " + question)


@contextmanager
def serving(
    path: Path, *, make: Callable[[bytes, IO[bytes]], None] = _answer, **limits: float
) -> Iterator[Clients]:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen(64)
    clients = Clients(
        listening,
        make,
        io.BytesIO,
        most_question_bytes=1000,
        **limits,  # type: ignore[arg-type]
    )
    try:
        yield clients
    finally:
        clients.close()
        listening.close()


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[[], socket.socket]]:
    with ExitStack() as stack:

        def to_it() -> socket.socket:
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.settimeout(30)
            client.connect(str(tmp_path / "socket"))
            return client

        yield to_it


def _all_of(client: socket.socket) -> bytes:
    with client.makefile("rb") as reading:
        return reading.read()


def test_each_gets_its_answer(tmp_path: Path, connect: Callable[[], socket.socket]) -> None:
    with serving(tmp_path / "socket"):
        for question in (b"what\n", b"all\n"):
            client = connect()
            client.sendall(question)
            expected = ANSWER if question == b"all\n" else b"you asked what\n"
            assert _all_of(client) == expected


def test_silent_clients_make_room_for_who_asks(
    tmp_path: Path, connect: Callable[[], socket.socket]
) -> None:
    with serving(tmp_path / "socket", most_clients=4, ask_within_s=3600):
        silent = [connect() for _ in range(20)]
        asking = connect()
        asking.sendall(b"what\n")
        assert _all_of(asking) == b"you asked what\n"
        assert _all_of(silent[0]) == b""  # it was let go of


def test_a_byte_now_and_then_does_not_put_off_the_deadline(
    tmp_path: Path, connect: Callable[[], socket.socket]
) -> None:
    with serving(tmp_path / "socket", ask_within_s=0.2):
        client = connect()
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while True:
                client.sendall(b"x")
                time.sleep(0.02)


def test_who_never_listens_holds_up_nobody(
    tmp_path: Path, connect: Callable[[], socket.socket], until: Until
) -> None:
    with serving(tmp_path / "socket", listen_within_s=0.3) as clients:
        deaf = [connect() for _ in range(8)]  # more than answer at a time
        for client in deaf:
            client.sendall(b"all\n")
        asking = connect()
        asking.sendall(b"what\n")
        assert _all_of(asking) == b"you asked what\n"
        until(lambda: not clients._clients)
        assert len(_all_of(deaf[0])) < len(ANSWER)


def test_a_question_without_end_is_passed_on_as_it_is(
    tmp_path: Path, connect: Callable[[], socket.socket]
) -> None:
    with serving(tmp_path / "socket"):
        endless = connect()
        endless.sendall(b"x" * 2000)
        assert _all_of(endless).startswith(b"you asked xxx")


def test_who_leaves_before_the_answer_costs_nothing(
    tmp_path: Path, connect: Callable[[], socket.socket], until: Until
) -> None:
    may_go_on = threading.Event()

    def make(question: bytes, spool: IO[bytes]) -> None:
        may_go_on.wait(30)
        _answer(question, spool)

    with serving(tmp_path / "socket", make=make) as clients:
        client = connect()
        client.sendall(b"what\n")
        until(lambda: clients._clients and clients._clients[0].is_waiting)
        client.close()
        may_go_on.set()
        until(lambda: not clients._clients)
        asking = connect()
        asking.sendall(b"what\n")
        assert _all_of(asking) == b"you asked what\n"
