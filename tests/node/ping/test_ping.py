"""UDP pings over real sockets: what is measured, and answers that are late, double or false."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.node.common.rate_limit import RateLimit, RateLimits
from oncall.node.ping.ping import Ping, Pinger, Target
from oncall.node.ping.ping_packet import PACKET_BYTES, Kind, Packet, RdmaAddress, decode, find
from oncall.node.ping.responder import Responder, Responding
from oncall.node.ping.stamped_socket import CLOCKS, StampedSocket

MS = 1_000_000
LONG_NS = 60 * 10**9
tokens = st.integers(0, 2**64 - 1)
sequences = st.integers(0, 2**32 - 1)
names = st.text("abcdefgh_0123456789", max_size=24)
instants = st.integers(-(2**63), 2**63 - 1)


# ------------------------------------------------------------------------ packets


@given(
    st.builds(
        Packet,
        st.sampled_from([kind for kind in Kind if kind is not Kind.FOUND]),
        tokens,
        sequences,
        instants,
        instants,
        st.sampled_from(CLOCKS),
        names,
    )
    | st.builds(
        Packet,
        st.just(Kind.FOUND),
        tokens,
        sequences,
        nic=names,
        gid=st.binary(min_size=16, max_size=16),
        qpn=sequences,
    )
)
def test_every_packet_has_one_size_and_reads_back(packet: Packet) -> None:
    assert len(packet.encoded()) == PACKET_BYTES
    assert decode(packet.encoded()) == packet


@given(st.binary(max_size=2 * PACKET_BYTES))
def test_garbage_is_no_packet(data: bytes) -> None:
    assert decode(data) is None


@given(st.integers(0, 7), st.integers(1, 255))
def test_a_packet_of_another_kind_or_version_is_none(at: int, flip: int) -> None:
    data = bytearray(Packet(Kind.PING, 1, 2).encoded())
    data[at] ^= flip
    packet = decode(bytes(data))
    assert packet is None or packet != Packet(Kind.PING, 1, 2) or at == 7  # a byte of padding


# ----------------------------------------------------------------- a real responder


@pytest.fixture
def pinger() -> Iterator[Pinger]:
    pinger = Pinger("eth0", StampedSocket("127.0.0.1"), LONG_NS)
    yield pinger
    pinger.close()


def wait_until(pinger: Pinger, is_so: Callable[[], object], ended: list[Ping]) -> list[Ping]:
    """Let the pinger go on until something is so; returns `ended` with the pings that are over."""
    poll = select.poll()
    poll.register(pinger.fileno(), select.POLLIN)
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        poll.poll(20)
        ended += pinger.ended()
    return ended


def wait_for(pinger: Pinger, count: int) -> list[Ping]:
    """That many pings that are over."""
    ended: list[Ping] = []
    return wait_until(pinger, lambda: len(ended) >= count, ended)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_pings_are_stamped_by_the_kernel_and_the_turnaround_is_taken_off(address: str) -> None:
    try:
        stamped = StampedSocket(address)
    except OSError:
        pytest.skip(f"this machine has no {address}")
    responding = Responding(Responder(stamped, {1: "mlx5_0"}.get))  # type: ignore[arg-type]
    pinger = Pinger("eth0", StampedSocket(address), LONG_NS)
    target = Target("gpu002", (address, stamped.port))
    ended: list[Ping] = []
    for _ in range(20):
        began_ns = time.monotonic_ns()
        pinger.send(target)
        [ping] = wait_for(pinger, 1)
        took_ns = time.monotonic_ns() - began_ns
        assert ping.rtt_ns is not None and ping.target_ns is not None
        assert ping.rtt_ns > 0 and ping.target_ns > 0
        assert ping.rtt_ns + ping.target_ns <= took_ns
        ended.append(ping)
    responding.close()
    pinger.close()
    # Loopback has number 1 everywhere; the responder names the NIC that it was reached by.
    assert {(ping.nic, ping.target.node, ping.target.nic) for ping in ended} == {
        ("eth0", "gpu002", "mlx5_0")
    }
    assert any(ping.clock == "kernel" for ping in ended)
    assert not pinger.oddities.sentences()


def test_where_a_nic_takes_rdma_pings_is_found_by_udp() -> None:
    stamped = StampedSocket("127.0.0.1")
    there = RdmaAddress(bytes(range(16)), 0x112233)
    nics = dict(socket.if_nameindex())
    responding = Responding(Responder(stamped, nics.__getitem__, {"lo": there}))
    assert find(("127.0.0.1", stamped.port)) == ("lo", there)
    responding.close()
    assert find(("127.0.0.1", stamped.port)) is None  # nobody any more
    without = StampedSocket("127.0.0.1")
    responding = Responding(Responder(without))
    assert find(("127.0.0.1", without.port)) is None  # somebody, who takes none
    responding.close()


# ------------------------------------------------------------------ a false responder


class FalseResponder:
    """A socket that a test answers by itself."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(30)

    @property
    def target(self) -> Target:
        return Target("gpu004", self.socket.getsockname())

    def take(self, kind: Kind) -> Packet:
        """The next packet of the pinger, which has this kind."""
        data, self.sender = self.socket.recvfrom(2048)
        packet = decode(data)
        assert packet is not None and packet.kind is kind
        return packet

    def send(self, packet: Packet) -> None:
        self.socket.sendto(packet.encoded(), self.sender)


@pytest.fixture
def false() -> Iterator[FalseResponder]:
    responder = FalseResponder()
    yield responder
    responder.socket.close()


def test_what_no_answer_came_to_is_lost_and_what_comes_then_is_late(false: FalseResponder) -> None:
    pinger = Pinger("eth0", StampedSocket("127.0.0.1"), 10 * MS)
    pinger.send(false.target)
    [ping] = wait_for(pinger, 1)
    assert (ping.lost, ping.rtt_ns, ping.clock) == (True, None, None)
    pong = replace(false.take(Kind.PING), kind=Kind.PONG)
    false.send(pong)
    assert wait_until(pinger, lambda: pinger.oddities.late, []) == []
    pinger.close()


def test_a_target_that_does_not_tell_its_stamps_counts_by_its_program(
    false: FalseResponder,
) -> None:
    pinger = Pinger("eth0", StampedSocket("127.0.0.1"), 300 * MS)
    pinger.send(false.target)
    ping = false.take(Kind.PING)
    false.send(replace(ping, kind=Kind.PONG, received_ns=1_000, sent_ns=1_400))
    [ended] = wait_for(pinger, 1)
    assert (ended.clock, ended.target_ns, ended.lost) == ("program", 400, False)
    pinger.close()


def test_answers_that_come_twice_count_once(false: FalseResponder, pinger: Pinger) -> None:
    pinger.send(false.target)
    pong = replace(false.take(Kind.PING), kind=Kind.PONG)
    for _ in range(3):
        false.send(pong)
    assert wait_until(pinger, lambda: pinger.oddities.duplicate == 2, []) == []
    changed = replace(false.take(Kind.ASK), kind=Kind.STAMPED, received_ns=5, sent_ns=6)
    false.send(changed)
    false.send(changed)
    assert len(wait_until(pinger, lambda: pinger.oddities.duplicate == 3, [])) == 1


@pytest.mark.parametrize("turnaround_ns", [-1, 10**12, 2**62, -(2**62)])
def test_a_turnaround_that_cannot_be_is_no_measurement(
    turnaround_ns: int, false: FalseResponder, pinger: Pinger
) -> None:
    pinger.send(false.target)
    ping = false.take(Kind.PING)
    false.send(replace(ping, kind=Kind.PONG))
    false.send(replace(ping, kind=Kind.STAMPED, sent_ns=turnaround_ns))
    assert wait_until(pinger, lambda: pinger.oddities.impossible, []) == []
    assert "impossible times" in pinger.oddities.sentences()[0]


def test_an_answer_from_elsewhere_or_for_another_is_nobodys(
    false: FalseResponder, pinger: Pinger
) -> None:
    pinger.send(false.target)
    pong = replace(false.take(Kind.PING), kind=Kind.PONG)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.sendto(pong.encoded(), false.sender)
    false.send(replace(pong, token=pong.token ^ 1))
    false.send(replace(pong, sequence=77))
    false.socket.sendto(b"nonsense", false.sender)
    assert wait_until(pinger, lambda: pinger.oddities.foreign == 4, []) == []


# ---------------------------------------------------------------------- its limits


def test_only_whole_pings_are_answered_each_with_one_packet_of_its_size() -> None:
    responder = Responder(StampedSocket("127.0.0.1"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.bind(("127.0.0.1", 0))
        asking.connect(("127.0.0.1", responder.port))
        asking.settimeout(30)
        ping = Packet(Kind.PING, 7, 9)
        for data in (b"", b"x" * PACKET_BYTES, ping.encoded()[:-1], ping.encoded() + b"x"):
            asking.send(data)
        for kind in (Kind.PONG, Kind.STAMPED, Kind.ASK):
            asking.send(replace(ping, kind=kind).encoded())
        asking.send(ping.encoded())
        responder.answer()
        answer = decode(asking.recv(2048))
        assert answer is not None and answer.kind is Kind.PONG
        asking.setblocking(False)
        with pytest.raises(BlockingIOError):
            asking.recv(2048)
    responder.close()


def test_a_sender_without_measure_is_not_answered_without_end() -> None:
    responder = Responder(StampedSocket("127.0.0.1"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect(("127.0.0.1", responder.port))
        for number in range(4_000):
            asking.send(Packet(Kind.PING, 7, number).encoded())
            responder.answer()
    assert 0 < responder.limited < 4_000
    responder.close()


@given(st.lists(st.integers(0, 10**9), max_size=200), st.integers(1, 20), st.integers(1, 10))
def test_a_limit_holds_over_any_span(gaps_ns: list[int], per_second: int, burst: int) -> None:
    limit = RateLimit(per_second, burst)
    now_ns = allowed = 0
    for gap_ns in gaps_ns:
        now_ns += gap_ns
        allowed += limit.allows(now_ns)
    assert allowed <= burst + per_second * now_ns / 10**9 + 1e-6


def test_one_sender_does_not_use_up_what_another_may() -> None:
    limits = RateLimits(1, 1, most=2)
    assert [limits.allows(who, 0) for who in "aab"] == [True, False, True]
