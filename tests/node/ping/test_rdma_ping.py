"""RDMA pings without RDMA: what is made of answers, and what is said where it cannot be."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from pathlib import Path

import pytest

from oncall.node.ping import rdma_endpoint
from oncall.node.ping.local_nics import LocalNic
from oncall.node.ping.ping import Ping, Target
from oncall.node.ping.ping_packet import Kind, Packet, RdmaAddress, decode
from oncall.node.ping.rdma_endpoint import Datagram, NoRdma, RdmaEndpoint, _gid, _source
from oncall.node.ping.rdma_ping import RdmaPinger, RdmaResponder, respond_by_rdma
from oncall.node.ping.stamped_socket import Stamps

HERE = RdmaAddress(bytes(15) + b"\1", 17)
THERE = RdmaAddress(bytes(15) + b"\2", 18)
TARGET = Target("gpu002", THERE, "mlx5_0")


class Wire:
    """An endpoint whose datagrams a test takes and brings, and whose clock it moves."""

    def __init__(self) -> None:
        self.sent: list[Packet] = []
        self.coming: list[Datagram] = []
        self.now_ns = 10**18  # beyond any deadline that the machine's clock could reach
        self.broken = False

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        pass

    def send(self, data: bytes, to: RdmaAddress) -> Stamps:  # noqa: ARG002
        if self.broken:
            raise OSError("no route")
        packet = decode(data)
        assert packet is not None
        self.sent.append(packet)
        return Stamps(self.now_ns, 0)

    def receive(self) -> list[Datagram]:
        coming, self.coming = self.coming, []
        return coming

    def bring(self, packet: Packet, sender: RdmaAddress = THERE, after_ns: int = 50_000) -> None:
        self.coming.append(Datagram(packet.encoded(), sender, Stamps(self.now_ns + after_ns, 0)))


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def pinger(wire: Wire) -> RdmaPinger:
    return RdmaPinger("mlx5_0", wire)  # type: ignore[arg-type]


def pong(packet: Packet, turnaround_ns: int = 8_000) -> Packet:
    return replace(packet, kind=Kind.PONG, received_ns=5, sent_ns=5 + turnaround_ns)


def test_what_the_target_takes_is_taken_off(wire: Wire, pinger: RdmaPinger) -> None:
    pinger.send(TARGET)
    wire.bring(pong(wire.sent[0]))
    assert pinger.ended() == [
        Ping("mlx5_0", TARGET, wire.now_ns, 42_000, 8_000, "program", "end_to_end")
    ]
    assert pinger.next_deadline_ns() is None


@pytest.mark.parametrize("turnaround_ns", [-1, 50_000, 10**15])
def test_times_that_cannot_be_are_no_measurement(
    turnaround_ns: int, wire: Wire, pinger: RdmaPinger
) -> None:
    pinger.send(TARGET)
    wire.bring(pong(wire.sent[0], turnaround_ns))
    assert pinger.ended() == []
    assert pinger.oddities.impossible == 1


def test_second_and_foreign_answers_are_counted(wire: Wire, pinger: RdmaPinger) -> None:
    pinger.send(TARGET)
    answer = pong(wire.sent[0])
    wire.bring(replace(answer, token=answer.token ^ 1))
    wire.bring(answer, sender=HERE)
    wire.bring(answer)
    wire.bring(answer)
    assert len(pinger.ended()) == 1
    assert (pinger.oddities.foreign, pinger.oddities.duplicate) == (2, 1)


def test_what_is_not_answered_is_lost_and_what_comes_then_late(
    wire: Wire, pinger: RdmaPinger
) -> None:
    wire.now_ns = 0  # long ago
    pinger.send(TARGET)
    [ping] = pinger.ended()
    assert (ping.lost, ping.rtt_ns, ping.kind) == (True, None, "end_to_end")
    wire.bring(pong(wire.sent[0]))
    assert pinger.ended() == []
    assert pinger.oddities.late == 1


def test_what_cannot_be_sent_is_not_lost(wire: Wire, pinger: RdmaPinger) -> None:
    wire.broken = True
    pinger.send(TARGET)
    assert pinger.ended() == []
    assert "1 pings could not be sent" in pinger.oddities.sentences()[0]


def test_a_responder_answers_pings_once_each_and_nothing_else(wire: Wire) -> None:
    responder = RdmaResponder(wire)  # type: ignore[arg-type]
    ping = Packet(Kind.PING, 7, 9)
    wire.coming.append(Datagram(b"nonsense", THERE, Stamps(0, 0)))
    wire.bring(pong(ping))
    wire.bring(ping)
    responder.answer()
    [answer] = wire.sent
    assert (answer.kind, answer.token, answer.sequence) == (Kind.PONG, 7, 9)


# ---------------------------------------------------------------------- the endpoint


def test_a_nic_without_rdma_and_a_python_without_pyverbs_are_distinguished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(NoRdma, match="eth0 is not an RDMA NIC"):
        RdmaEndpoint(LocalNic("eth0", "eth0", "10.0.0.1"))
    monkeypatch.setitem(__import__("sys").modules, "pyverbs", None)
    with pytest.raises(NoRdma, match="the distribution's python3-pyverbs"):
        rdma_endpoint.verbs()
    responders, there, without = respond_by_rdma([LocalNic("mlx5_0", "eth0", "10.0.0.1", 1)])
    assert (responders, there) == ([], {}) and without and "pyverbs" in without


def test_pings_leave_by_the_gid_of_the_address(tmp_path: Path) -> None:
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    (port / "gids").mkdir(parents=True)
    (port / "gid_attrs/types").mkdir(parents=True)
    reported = [
        ("fe80:0000:0000:0000:0000:0000:0000:0001", "IB/RoCE v1"),
        ("0000:0000:0000:0000:0000:ffff:0a00:0001", "IB/RoCE v1"),
        ("0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2"),
        ("0000:0000:0000:0000:0000:0000:0000:0000", "RoCE v2"),
        ("garbage", ""),
    ]
    for number, (gid, kind) in enumerate(reported):
        (port / "gids" / str(number)).write_text(gid + "\n")
        (port / "gid_attrs/types" / str(number)).write_text(kind + "\n")
    nic = LocalNic("mlx5_0", "eth0", "10.0.0.1", 1)
    assert _gid(nic, tmp_path)[0] == 2
    # InfiniBand has no addresses among its GIDs: the first is the port's own.
    assert _gid(replace(nic, address="10.9.9.9"), tmp_path)[0] == 0
    with pytest.raises(NoRdma, match="no GID"):
        _gid(replace(nic, port=2), tmp_path)


def test_who_sent_is_read_from_either_header() -> None:
    v6 = bytes([0x60, *bytes(7)]) + THERE.gid + bytes(16)
    assert _source(v6) == THERE.gid
    v4 = bytes(20) + bytes([0x45, *bytes(11)]) + bytes([10, 0, 0, 2]) + bytes(4)
    assert ipaddress.IPv6Address(_source(v4)).ipv4_mapped == ipaddress.IPv4Address("10.0.0.2")
