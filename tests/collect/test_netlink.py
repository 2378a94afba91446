"""Netlink by hand: what is put together is taken apart again, and garbage is an error."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.collect.netlink import (
    DONE,
    ERROR,
    Message,
    attribute,
    attributes,
    message,
    messages,
)
from oncall.collect.rdma_netlink import NoRdma, QueuePair, device_indices, queue_pairs_in
from oncall.collect.rdma_netlink import queue_pairs as ask_the_kernel
from oncall.errors import BadInput

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
    told = answer(DEVICE + attribute(19 | NESTED, CONNECTED + OF_THE_KERNEL))
    assert queue_pairs_in([told]) == [
        QueuePair("mlx5_0", 4711, 815, "rc", "rts", 1234),
        QueuePair("mlx5_0", 1, None, "gsi", None, None),
    ]


def test_what_a_newer_kernel_adds_is_passed_over() -> None:
    odd = queue_pair(number(21, 5), number(26, 77, "=B"), number(27, 77, "=B"))
    unknown = attribute(400, b"?")
    told = answer(DEVICE + unknown + attribute(19, odd + attribute(21, unknown)))
    assert queue_pairs_in([told]) == [QueuePair("mlx5_0", 5, None, None, None, None)]


def test_devices_by_number() -> None:
    assert device_indices([answer(DEVICE), answer(number(1, 3))]) == [0, 3]


def test_a_number_of_an_odd_size_is_damaged() -> None:
    told = answer(DEVICE + attribute(19, queue_pair(attribute(21, b"abc"))))
    with pytest.raises(BadInput, match="a number of 3 bytes"):
        queue_pairs_in([told])


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
    told = b"".join(attribute(kind, payload) for kind, payload in given_)
    assert [(each.kind, each.payload) for each in attributes(told)] == given_


@given(st.lists(st.tuples(st.integers(0, 0xFFFF), st.binary(max_size=40)), max_size=6))
def test_messages_are_taken_apart_as_they_were_put_together(
    given_: list[tuple[int, bytes]],
) -> None:
    told = b"".join(
        message(kind, 0, 3, payload) + bytes(-len(payload) % 4) for kind, payload in given_
    )
    assert [(each.kind, each.payload) for each in messages(told)] == given_


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
    told = bytearray(message(0x140A, 2, 7, DEVICE + attribute(19, CONNECTED + OF_THE_KERNEL)))
    for _ in range(data.draw(st.integers(1, 4))):
        told[data.draw(st.integers(0, len(told) - 1))] = data.draw(st.integers(0, 255))
    try:
        for pair in queue_pairs_in(list(messages(bytes(told)))):
            assert 0 <= pair.number < 2**32
    except BadInput as error:
        assert "damaged" in error.problem


def test_the_kernel_here_answers_or_has_no_rdma() -> None:
    """Which of both depends on the machine; nothing else may come of it."""
    try:
        assert all(pair.device for pair in ask_the_kernel())
    except NoRdma as absent:
        assert "kernel" in str(absent)
