"""What really went out of an interface: RoCE packets, stamped by the kernel as they leave.

The kernel writes the head of each packet into a ring that is mapped here (packet(7),
TPACKET_V2), so nothing of ours runs while traffic flows.
"""

from __future__ import annotations

import mmap
import socket
import struct
from pathlib import Path

import numpy as np

_PACKET_RX_RING, _PACKET_STATISTICS, _PACKET_VERSION = 5, 6, 10
_SOL_PACKET, _TPACKET_V2, _ETH_P_ALL, _OUTGOING = 263, 1, 3, 4
_BLOCK_BYTES, _BLOCKS, _FRAME_BYTES = 1 << 20, 8, 128
_ROCE_PORT = 4791

# A frame: the kernel's header, the address, then Ethernet, IPv4, UDP and InfiniBand's base header.
_FRAME = np.dtype(
    {
        "names": [
            *("status", "second", "nanosecond", "packet_type"),
            *("receiver", "udp_port", "udp_bytes", "opcode", "flags", "qpn", "psn"),
        ],
        "formats": ["<u4", "<u4", "<u4", "u1", ">u4", ">u2", ">u2", "u1", "u1", ">u4", ">u4"],
        "offsets": [0, 16, 20, 42, 96, 102, 104, 108, 109, 112, 116],
        "itemsize": _FRAME_BYTES,
    }
)
# Bytes of headers between the base header and the payload, by opcode (InfiniBand 1.4, 9.2).
_RETH, _IMMEDIATE, _AETH = 16, 4, 4
_EXTENDED = {0x06: _RETH, 0x09: _IMMEDIATE, 0x0A: _RETH, 0x0B: _RETH + _IMMEDIATE, 0x11: _AETH}
_AROUND = 8 + 12 + 4  # UDP's header, the base header, the checksum


class Wire:
    """Packets leaving an interface, from creation to `save`."""

    def __init__(self, interface: str) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
        self._socket.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
        frames = _BLOCK_BYTES * _BLOCKS // _FRAME_BYTES
        ring = struct.pack("4I", _BLOCK_BYTES, _BLOCKS, _FRAME_BYTES, frames)
        self._socket.setsockopt(_SOL_PACKET, _PACKET_RX_RING, ring)
        self._frames = mmap.mmap(self._socket.fileno(), _BLOCK_BYTES * _BLOCKS)
        self._socket.bind((interface, _ETH_P_ALL))

    def save(self, path: Path) -> None:
        """at_ns (Unix time), receiver (IPv4 address) and its qpn, psn, bytes of payload, of each
        packet."""
        _, lost = struct.unpack("2I", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        assert lost == 0, "the ring was too small"
        frames = np.frombuffer(self._frames, _FRAME)
        kept = (frames["status"] & 1 == 1) & (frames["packet_type"] == _OUTGOING)
        frames = frames[kept & (frames["udp_port"] == _ROCE_PORT)]
        extended = np.array([_EXTENDED.get(opcode, 0) for opcode in range(256)])
        padding = (frames["flags"] >> 4) & 3
        np.savez(
            path,
            at_ns=frames["second"].astype(np.int64) * 10**9 + frames["nanosecond"],
            receiver=frames["receiver"].astype(np.uint32),
            qpn=frames["qpn"] & 0xFFFFFF,
            psn=frames["psn"] & 0xFFFFFF,
            bytes=frames["udp_bytes"].astype(np.int64)
            - (_AROUND + extended[frames["opcode"]] + padding),
        )
        self._socket.close()
