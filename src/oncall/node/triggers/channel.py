"""The channel between collectors: one UDP socket, on which only senders that know the secret are
accepted.

Whatever comes is bounded three times: so many datagrams a look, none that is malformed, sealed
with another secret or old, and what is left raises a budget that has a limit (`node`). Nothing is
answered, so nothing can be reflected.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import stat
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from oncall.core.errors import BadInput
from oncall.core.units import NS_PER_S
from oncall.node.common.rate_limit import RateLimit
from oncall.node.common.source import Instant
from oncall.node.triggers.in_flight import Flow

# A notification from one collector to another: so many detections for a flow that the sender waits
# for (figure 6).
#
# A node that waits for a flow notifies the node that sends it. The packet contains no address and
# no data of a job. Its seal (HMAC-SHA256, 16 bytes) proves that its author knows the collectors'
# secret; the time in it excludes replays.


# magic, version, detections, when by Unix time, communicator, from rank, to rank
_LAYOUT = struct.Struct("!4sBBxxqQii")
_MAGIC = b"oclt"
_VERSION = 1
_SEAL_BYTES = 16
NOTIFICATION_BYTES = _LAYOUT.size + _SEAL_BYTES
MOST_DETECTIONS = 255


@dataclass(frozen=True)
class Notification:
    """`detections`, 1 to 255, for the step that `flow` is in; sent at `at_ns`, Unix time."""

    flow: Flow
    detections: int
    at_ns: int

    def encoded(self, secret: bytes) -> bytes:
        """Its NOTIFICATION_BYTES bytes."""
        flow = self.flow
        content = _LAYOUT.pack(
            *(_MAGIC, _VERSION, min(self.detections, MOST_DETECTIONS), self.at_ns),
            *(flow.comm, flow.src, flow.dst),
        )
        return content + _seal(secret, content)


def is_sealed(data: bytes, secret: bytes) -> bool:
    """Whether the author knows the secret."""
    content, seal = data[: _LAYOUT.size], data[_LAYOUT.size :]
    return hmac.compare_digest(seal, _seal(secret, content))


def decode(data: bytes) -> Notification | None:
    """The notification in a datagram; None if there is none. The seal is not checked here."""
    if len(data) != NOTIFICATION_BYTES:
        return None
    magic, version, detections, at_ns, *flow = _LAYOUT.unpack(data[: _LAYOUT.size])
    if magic != _MAGIC or version != _VERSION or not detections:
        return None
    return Notification(Flow(*flow), detections, at_ns)


def _seal(secret: bytes, content: bytes) -> bytes:
    return hmac.digest(secret, content, hashlib.sha256)[:_SEAL_BYTES]


LEAST_SECRET_BYTES = 16
FRESH_NS = 10 * NS_PER_S  # apart: clocks of a cluster are kept together by far less
MOST_AT_ONCE = 64  # datagrams of one look; of what is beyond, the kernel keeps what fits
_PER_SECOND, _BURST = 20.0, 40.0  # that leave
_HIGHEST = 6 << 5  # CS6, as congestion notifications: not held up by what it reports (III-C2)


@dataclass
class Counted:
    """What came and went, ever; of what came, what was refused and why."""

    sent: int = 0
    taken: int = 0
    elsewhere: int = 0  # of flows that are not sent from here
    malformed: int = 0
    foreign: int = 0
    stale: int = 0

    def sentences(self) -> tuple[str, ...]:
        """What there is to say."""
        refused = {
            "malformed": self.malformed,
            "sealed with another secret": self.foreign,
            f"more than {FRESH_NS // NS_PER_S} s old": self.stale,
        }
        sentences = []
        if self.sent:
            sentences.append(f"{self.sent} detections were handed over")
        if self.taken:
            sentences.append(f"{self.taken} detections were taken over from others")
        if self.elsewhere:
            sentences.append(
                f"{self.elsewhere} notifications were for flows not sent from this node"
            )
        sentences += [f"{n} notifications refused: {why}" for why, n in refused.items() if n]
        return tuple(sentences)


class Channel:
    """Sends and receives notifications. Never blocks; used by one thread."""

    def __init__(self, secret: bytes, address: str, port: int) -> None:
        """Bind to an address, "" being every IPv4 and `::` every one. Raises OSError."""
        self.counted = Counted()
        self._secret = secret
        self._port = port
        self._limit = RateLimit(_PER_SECOND, _BURST)
        self._is_v6 = ":" in address
        family = socket.AF_INET6 if self._is_v6 else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            self._socket.setblocking(False)
            if self._is_v6:
                self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, _HIGHEST)
                self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            else:
                self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, _HIGHEST)
            self._socket.bind((address, port))
        except OSError:
            self._socket.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def may_send(self, now: Instant) -> bool:
        """Whether one more may leave now; if so, that counts."""
        return self._limit.allows(now.monotonic_ns)

    def send(self, notification: Notification, addresses: Iterable[str]) -> None:
        """Send it to whoever is there. A lost one is never repeated."""
        data = notification.encoded(self._secret)
        self.counted.sent += 1
        for address in addresses:
            mapped = f"::ffff:{address}" if self._is_v6 and ":" not in address else address
            # No way there, no room, or an address of the other family: as good as lost.
            with suppress(OSError):
                self._socket.sendto(data, (mapped, self._port))

    def received(self, now: Instant) -> list[Notification]:
        """What came since the last call and is to be believed."""
        found = []
        for _ in range(MOST_AT_ONCE):
            try:
                data = self._socket.recv(NOTIFICATION_BYTES + 1)
            except BlockingIOError:
                break
            except OSError:
                continue
            notification = decode(data)
            if notification is None:
                self.counted.malformed += 1
            elif not is_sealed(data, self._secret):
                self.counted.foreign += 1
            elif abs(now.realtime_ns - notification.at_ns) > FRESH_NS:
                self.counted.stale += 1
            else:
                found.append(notification)
        return found


def read_secret(path: Path) -> bytes:
    """What collectors share. Raises BadInput where there is none, or where others may read it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            secret = file.read(4096).strip()
    except OSError as error:
        raise BadInput(str(path), f"cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise BadInput(str(path), "not a file")
    if mode & 0o077:
        raise BadInput(str(path), "users other than its owner can read or write it: chmod 600")
    if len(secret) < LEAST_SECRET_BYTES:
        raise BadInput(str(path), f"a secret has at least {LEAST_SECRET_BYTES} bytes")
    return secret
