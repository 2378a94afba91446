"""A notification from one collector to another: so many detections for a flow that the sender waits
for (figure 6).

A node that waits for a flow notifies the node that sends it. The packet contains no address and no
data of a job. Its seal (HMAC-SHA256, 16 bytes) proves that its author knows the collectors' secret;
the time in it excludes replays.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass

from oncall.node.triggers.flows import Flow

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
