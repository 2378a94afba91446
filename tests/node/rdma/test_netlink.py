"""Netlink by hand: what is put together is taken apart again, and garbage is an error."""

from __future__ import annotations

import errno
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.core.errors import BadInput
from oncall.node.rdma.rdma_netlink import (
    DONE,
    ERROR,
    Message,
    NoRdma,
    QueuePair,
    attribute,
    attributes,
    device_indices,
    message,
    messages,
    queue_pairs_by,
    queue_pairs_in,
)
from oncall.node.rdma.rdma_netlink import queue_pairs as ask_the_kernel

NESTED = 0x8000
KINDS = st.integers(0, 0x3FFF)


def number(kind: int, value: int, code: str = "=I") -> bytes:
    return attribute(kind, struct.pack(code, value))


def answer(payload: bytes) -> Message:
    """A message as the kernel answers with."""
    (only,) = messages(message(0x140A, 2, 7, payload))
    return only


def queue_pair(*values: bytes) -> bytes:
    """One entry: RDMA_NLDEV_ATTR_RES_QP_ENTRY."""
    return attribute(20 | NESTED, b"".join(values))


DEVICE = number(1, 0) + attribute(2, b"mlx5_0\0")
CONNECTED = queue_pair(
    number(3, 1), number(21, 4711), number(22, 815), number(26, 2, "=B"), number(27, 3, "=B"),
    number(28, 1234), number(99, 5),
)  # fmt: skip
OF_THE_KERNEL = queue_pair(number(21, 1), number(26, 1, "=B"), attribute(29, b"ib_core\0"))


def test_queue_pairs_with_their_processes_peers_and_states() -> None:
    reported = answer(DEVICE + attribute(19 | NESTED, CONNECTED + OF_THE_KERNEL))
    assert queue_pairs_in([reported]) == [
        QueuePair("mlx5_0", 4711, 815, "rc", "rts", 1234),
        QueuePair("mlx5_0", 1, None, "gsi", None, None),
    ]


def test_what_a_newer_kernel_adds_is_passed_over() -> None:
    odd = queue_pair(number(21, 5), number(26, 77, "=B"), number(27, 77, "=B"))
    unknown = attribute(400, b"?")
    reported = answer(DEVICE + unknown + attribute(19, odd + attribute(21, unknown)))
    assert queue_pairs_in([reported]) == [QueuePair("mlx5_0", 5, None, None, None, None)]


def test_devices_by_number() -> None:
    assert device_indices([answer(DEVICE), answer(number(1, 3))]) == [0, 3]


def test_a_number_of_an_odd_size_is_damaged() -> None:
    reported = answer(DEVICE + attribute(19, queue_pair(attribute(21, b"abc"))))
    with pytest.raises(BadInput, match="a number of 3 bytes"):
        queue_pairs_in([reported])


def test_errors_of_the_kernel() -> None:
    refused = struct.pack("=i", -errno.EPERM) + bytes(16)
    assert Message(ERROR, 0, 1, refused).error == errno.EPERM
    assert Message(DONE, 0, 1, struct.pack("=i", 0)).error == 0
    assert Message(ERROR, 0, 1, b"").error == 0
    assert Message(0x1401, 0, 1, refused).error == 0


@given(st.lists(st.tuples(KINDS, st.binary(max_size=40)), max_size=8))
def test_attributes_are_taken_apart_as_they_were_put_together(
    given_: list[tuple[int, bytes]],
) -> None:
    text = b"".join(attribute(kind, payload) for kind, payload in given_)
    assert [(each.kind, each.payload) for each in attributes(text)] == given_


@given(st.lists(st.tuples(st.integers(0, 0xFFFF), st.binary(max_size=40)), max_size=6))
def test_messages_are_taken_apart_as_they_were_put_together(
    given_: list[tuple[int, bytes]],
) -> None:
    text = b"".join(
        message(kind, 0, 3, payload) + bytes(-len(payload) % 4) for kind, payload in given_
    )
    assert [(each.kind, each.payload) for each in messages(text)] == given_


@given(st.binary(max_size=400))
def test_garbage_is_damaged_or_says_nothing(garbage: bytes) -> None:
    try:
        found = list(messages(garbage))
        queue_pairs_in([*found, Message(0x140A, 0, 1, garbage)])
        device_indices(found)
    except BadInput as error:
        assert error.place == "netlink"


@given(st.data())
def test_an_answer_with_flipped_bytes_is_damaged_or_still_an_answer(data: st.DataObject) -> None:
    reported = bytearray(message(0x140A, 2, 7, DEVICE + attribute(19, CONNECTED + OF_THE_KERNEL)))
    for _ in range(data.draw(st.integers(1, 4))):
        reported[data.draw(st.integers(0, len(reported) - 1))] = data.draw(st.integers(0, 255))
    try:
        for pair in queue_pairs_in(list(messages(bytes(reported)))):
            assert 0 <= pair.number < 2**32
    except BadInput as error:
        assert "damaged" in error.problem


class Kernel:
    """Answers what it is asked through a socket; a device may go after the first listing."""

    def __init__(self, ours: socket.socket, gone: int | None, refuses: bool) -> None:
        self._ours, self._gone, self._refuses = ours, gone, refuses
        self._listings = 0

    def run(self) -> None:
        while reported := self._ours.recv(1 << 16):
            (asked,) = messages(reported)
            for payload in self._answers(asked):
                self._ours.send(message(asked.kind, 2, asked.sequence, payload))
            end = -errno.EINVAL if self._is_refused(asked) else 0
            self._ours.send(message(DONE, 2, asked.sequence, struct.pack("=i", end)))

    def _answers(self, asked: Message) -> list[bytes]:
        if asked.kind & 0xFF == 1:
            self._listings += 1
            there = (
                [1, 2] if self._listings == 1 else [each for each in (1, 2) if each != self._gone]
            )
            return [number(1, index) for index in there]
        if self._is_refused(asked):
            return []
        return [DEVICE + attribute(19 | NESTED, CONNECTED)]

    def _is_refused(self, asked: Message) -> bool:
        is_listing = asked.kind & 0xFF == 1
        index = next((each.number for each in asked.attributes if each.kind == 1), None)
        return not is_listing and (self._refuses or index == self._gone)


@pytest.fixture
def asked_through() -> Iterator[Callable[..., list[QueuePair]]]:
    """Ask a kernel that is a thread here."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    threads = []

    def ask(gone: int | None = None, refuses: bool = False) -> list[QueuePair]:
        threads.append(threading.Thread(target=Kernel(ours, gone, refuses).run))
        threads[0].start()
        theirs.settimeout(10)
        return queue_pairs_by(theirs)

    yield ask
    theirs.close()
    for thread in threads:
        thread.join()
    ours.close()


def test_a_device_that_goes_while_it_is_listed_is_passed_over(
    asked_through: Callable[..., list[QueuePair]],
) -> None:
    (only,) = asked_through(gone=2)
    assert only.number == 4711


def test_a_kernel_that_knows_no_such_question_has_none_to_tell(
    asked_through: Callable[..., list[QueuePair]],
) -> None:
    with pytest.raises(NoRdma, match=r"Linux 4\.17"):
        asked_through(refuses=True)


def test_the_kernel_here_answers_or_has_no_rdma() -> None:
    """Which of both depends on the machine; nothing else may come of it."""
    try:
        assert all(pair.device for pair in ask_the_kernel())
    except NoRdma as absent:
        assert "kernel" in str(absent)
