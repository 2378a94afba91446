"""Datagrams from other nodes, and the sockets of NCCL RAS."""

from __future__ import annotations

import json
import socket
import threading

from oncall.core.errors import BadInput
from oncall.importers.ras.client import fetch
from oncall.importers.ras.poll import parse_json
from oncall.node.ping import ping_packet
from oncall.node.triggers import channel
from oncall.node.triggers.in_flight import Flow

from ..registry import target

_SECRET = b"known to all collectors"
_STATUS = {
    "nccl_version": "2.28.9",
    "job": {"total_nodes": 4, "total_ranks": 32},
    "communicators": [
        {
            "hash": "0xab27a079b828ff",
            "size": 2,
            "ranks": [
                {"rank": 0, "host": "10.0.0.1", "pid": 800, "status": {"init_state": 0}},
                {"rank": 1, "host": "10.0.0.2", "pid": 801, "collective_counts": {"AllGather": 3}},
            ],
            "missing_ranks": [{"rank": 3, "considered_dead": True}],
        }
    ],
}


def _packets() -> list[bytes]:
    kinds = ping_packet.Kind
    found = [ping_packet.Packet(kind, 7, 1, 10**18, 10**18 + 5, nic="mlx5_0") for kind in kinds]
    sealed = channel.Notification(Flow(0xC0FFEE, 0, 1), 3, 10**18)
    return [
        *(packet.encoded() for packet in found if packet.kind is not kinds.FOUND),
        sealed.encoded(_SECRET),
    ]


@target(_packets)
def datagrams(data: bytes) -> None:
    """Pings and detections: one that can be answered, or none."""
    packet = ping_packet.decode(data)
    if packet is not None:
        assert packet.nic.isprintable()
        assert len(packet.encoded()) == ping_packet.PACKET_BYTES
    reported = channel.decode(data)
    if reported is not None:
        assert channel.decode(reported.encoded(_SECRET)) == reported
    channel.is_sealed(data, _SECRET)


@target(documents=lambda: [_STATUS])
def ras_json(data: bytes) -> None:
    """A RAS status as JSON."""
    for poll in parse_json(data.decode("utf-8", "replace")):
        assert all(str(problem) for problem in poll.problems)


_ANSWERS = b"SERVER PROTOCOL 2\nOK\nOK\n"


@target(lambda: [_ANSWERS + json.dumps(_STATUS).encode(), _ANSWERS, b"SSH-2.0-OpenSSH\r\n"])
def ras_sockets(data: bytes) -> None:
    """Whatever listens at the port of RAS and says: an answer, or an error that names the place."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_answer, args=(server, data))
        thread.start()
        try:
            assert isinstance(fetch("127.0.0.1", server.getsockname()[1], timeout_s=0.2), str)
        except BadInput as error:
            assert error.place.startswith("ras://")
        finally:
            thread.join()


def _answer(server: socket.socket, data: bytes) -> None:
    """Say it line by line, as commands come, and leave."""
    client, _ = server.accept()
    with client:
        client.settimeout(1)
        try:
            for line in data.splitlines(keepends=True)[:3]:
                client.recv(4096)
                client.sendall(line)
            client.recv(4096)
            client.sendall(b"".join(data.splitlines(keepends=True)[3:]))
        except OSError:
            pass
