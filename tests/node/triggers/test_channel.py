"""Notifications over real sockets: whose are accepted, and that nothing else does harm."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.core.errors import BadInput
from oncall.core.units import NS_PER_S
from oncall.node.common.source import Instant
from oncall.node.triggers.channel import (
    FRESH_NS,
    MOST_AT_ONCE,
    MOST_DETECTIONS,
    NOTIFICATION_BYTES,
    Channel,
    Notification,
    decode,
    is_sealed,
    read_secret,
)
from oncall.node.triggers.in_flight import Flow

SECRET = b"of all collectors"
NOW = Instant(1_800_000_000 * NS_PER_S, 5 * NS_PER_S)
FLOW = Flow(0xFEDC_BA98_7654_3210, 3, 4)
NOTICE = Notification(FLOW, 2, NOW.realtime_ns)

NOTIFICATIONS = st.builds(
    Notification,
    st.builds(Flow, st.integers(0, 2**64 - 1), *2 * [st.integers(-(2**31), 2**31 - 1)]),
    st.integers(1, MOST_DETECTIONS),
    st.integers(0, 2**62),
)


@pytest.fixture
def channel() -> Iterator[Channel]:
    with closing(Channel(SECRET, "127.0.0.3", 0)) as opened:
        opened._port = opened._socket.getsockname()[1]
        yield opened


def addressed_to(channel: Channel, *datagrams: bytes) -> list[Notification]:
    """What it believes of these; on loopback they are there when `sendto` returns."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for data in datagrams:
            stranger.sendto(data, ("127.0.0.3", channel._port))
    return channel.received(NOW)


# ---------------------------------------------------------------------- packets


@given(data=st.binary(max_size=2 * NOTIFICATION_BYTES))
def test_anything_else_is_no_notification_or_not_sealed(data: bytes) -> None:
    assert decode(data) is None or not is_sealed(data, SECRET)


@given(reported=NOTIFICATIONS, bit=st.integers(0, 8 * NOTIFICATION_BYTES - 1))
def test_no_bit_of_it_can_be_changed(reported: Notification, bit: int) -> None:
    changed = bytearray(reported.encoded(SECRET))
    changed[bit // 8] ^= 1 << bit % 8
    assert decode(bytes(changed)) is None or not is_sealed(bytes(changed), SECRET)


# ---------------------------------------------------------------------- sockets


def test_an_ipv6_channel_hears_an_ipv4_one() -> None:
    try:
        v6 = Channel(SECRET, "::", 0)
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error.strerror}")
    with closing(v6), closing(Channel(SECRET, "127.0.0.2", 0)) as v4:
        v4._port, v6._port = (each._socket.getsockname()[1] for each in (v6, v4))
        v4.send(NOTICE, ["2001:db8::1", "127.0.0.1"])  # no way to the first
        assert v6.received(NOW) == [NOTICE]
        v6.send(NOTICE, ["127.0.0.2"])
        assert v4.received(NOW) == [NOTICE]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "malformed"),
        (b"\xff" * NOTIFICATION_BYTES, "malformed"),
        (NOTICE.encoded(SECRET)[:-1], "malformed"),
        (NOTICE.encoded(SECRET) + b"!", "malformed"),
        (b"\0" * 65_000, "malformed"),
        (Notification(FLOW, 0, NOW.realtime_ns).encoded(SECRET), "malformed"),
        (NOTICE.encoded(b"of somebody else"), "foreign"),
        (Notification(FLOW, 2, NOW.realtime_ns - FRESH_NS - 1).encoded(SECRET), "stale"),
        (Notification(FLOW, 2, NOW.realtime_ns + FRESH_NS + 1).encoded(SECRET), "stale"),
    ],
)
def test_what_is_not_to_be_believed_is_counted_and_nothing_else(
    channel: Channel, data: bytes, why: str
) -> None:
    assert addressed_to(channel, data) == []
    counted = {name: n for name, n in vars(channel.counted).items() if n}
    assert counted == {why: 1}
    assert len(channel.counted.sentences()) == 1


def test_a_flood_costs_a_look_no_more_than_so_many_datagrams(channel: Channel) -> None:
    found = addressed_to(channel, *[b"flood"] * MOST_AT_ONCE, NOTICE.encoded(SECRET))
    assert found == [] and channel.counted.malformed == MOST_AT_ONCE
    assert channel.received(NOW) == [NOTICE]


def test_only_so_many_leave(channel: Channel) -> None:
    assert sum(channel.may_send(NOW) for _ in range(1_000)) < 100


# ----------------------------------------------------------------------- secret


def test_a_secret_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    with pytest.raises(BadInput, match="cannot be read"):
        read_secret(path)
    path.write_bytes(b"short\n")
    path.chmod(0o600)
    with pytest.raises(BadInput, match="at least 16 bytes"):
        read_secret(path)
    path.write_bytes(SECRET + b"\n")
    assert read_secret(path) == SECRET
    path.chmod(0o640)
    with pytest.raises(BadInput, match="chmod 600"):
        read_secret(path)
    with pytest.raises(BadInput, match="not a file"):
        read_secret(Path("/dev/null"))
