"""Statistics of network interfaces as drivers keep them, by ioctl SIOCETHTOOL (linux/ethtool.h).

What `ethtool -S` prints, without the command. Names are of the driver's own making.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import socket
import struct
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

_SIOCETHTOOL = 0x8946
_GET_STRINGS, _GET_STATISTICS, _GET_SET_INFO = 0x1B, 0x1D, 0x37
_STATISTICS_SET = 1
_NAME_BYTES = 32
_REQUEST = struct.Struct("16sP16x")  # struct ifreq
_SET_INFO = struct.Struct("=IIQI")  # command, -, mask of sets, size of the one asked for
_STRINGS = struct.Struct("=III")  # command, set, count; names follow
_STATISTICS = struct.Struct("=II")  # command, count; 64-bit values follow
# The kernel writes as many as the driver has by then, whatever was asked: the room is far beyond
# any driver's, and takes memory only where it is written.
_ROOM_BYTES = 8 * 2**20
_NONE = (errno.EOPNOTSUPP, errno.EINVAL)


@dataclass(frozen=True)
class _Layout:
    """How many statistics an interface has, and where those are that are wanted."""

    count: int
    names: list[str]
    places: np.ndarray[Any, np.dtype[np.intp]]


class Statistics:
    """Those of the statistics called `wanted`, of any interface of this network namespace; what
    a driver calls them is asked for once."""

    def __init__(self, wanted: Collection[str]) -> None:
        self._wanted = wanted
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._room = mmap.mmap(-1, _ROOM_BYTES)
        self._bytes = np.frombuffer(self._room, np.uint8)
        self._address: int = self._bytes.ctypes.data
        self._layouts: dict[str, _Layout] = {}

    def read(self, interface: str) -> dict[str, int]:
        """The statistics by name; none where the driver keeps none. Raises OSError if there is
        no such interface here."""
        try:
            if interface not in self._layouts:
                self._layouts[interface] = self._layout(interface)
            layout = self._layouts[interface]
            values = self._values(interface, layout.count) if layout.names else None
        except OSError as error:
            self._layouts.pop(interface, None)
            if error.errno in _NONE:
                return {}
            raise
        if values is None:
            return {}
        if len(values) != layout.count:  # queues came or went: all lie elsewhere from now on
            del self._layouts[interface]
            return {}
        return dict(zip(layout.names, values[layout.places].tolist(), strict=True))

    def close(self) -> None:
        """Close the socket; nothing more is asked."""
        self._socket.close()

    def _layout(self, interface: str) -> _Layout:
        _SET_INFO.pack_into(self._room, 0, _GET_SET_INFO, 0, 1 << _STATISTICS_SET, 0)
        self._ask(interface)
        _, _, sets, count = _SET_INFO.unpack_from(self._room, 0)
        names = self._names(interface, count) if sets else []
        found = {name: place for place, name in enumerate(names) if name in self._wanted}
        return _Layout(len(names), list(found), np.array(list(found.values()), np.intp))

    def _names(self, interface: str, count: int) -> list[str]:
        _STRINGS.pack_into(self._room, 0, _GET_STRINGS, _STATISTICS_SET, count)
        self._ask(interface)
        _, _, count = _STRINGS.unpack_from(self._room, 0)
        return names_in(bytes(self._bytes[_STRINGS.size : _STRINGS.size + count * _NAME_BYTES]))

    def _values(self, interface: str, count: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        _STATISTICS.pack_into(self._room, 0, _GET_STATISTICS, count)
        self._ask(interface)
        _, count = _STATISTICS.unpack_from(self._room, 0)
        return np.frombuffer(self._room, np.uint64, count, offset=_STATISTICS.size)

    def _ask(self, interface: str) -> None:
        request = _REQUEST.pack(interface.encode(), self._address)
        fcntl.ioctl(self._socket, _SIOCETHTOOL, request)


def names_in(content: bytes) -> list[str]:
    """Names of 32 bytes each, ended by NUL, as the driver wrote them."""
    return [
        content[start : start + _NAME_BYTES].split(b"\0", 1)[0].decode("ascii", "replace").strip()
        for start in range(0, len(content), _NAME_BYTES)
    ]
