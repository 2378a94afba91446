"""What a console asks of a node, and how the answer travels: one protocol for every transport.

A request is one line of JSON. An answer is a stream of frames; each is one line of JSON and, for
a part, that many bytes of Parquet:

    {"part": "ops", "rows": 1200, "bytes": 10240}\\n <10240 bytes>
    {"end": {"node": "gpu017", ...}}\\n              the answer is complete
    {"error": "...", "reason": "version"}\\n          or it never will be

Requests name relations and keys, never SQL: whoever may ask can read evidence and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import IO, Any, Literal

from oncall.errors import OncallError

PROTOCOL = 1  # rises when an older side would misread a newer one
OLDEST_PROTOCOL = 1  # the oldest that this side still understands
MOST_LINE_BYTES = 64 * 1024

Ask = Literal["hello", "digest", "detail"]
Reason = Literal["version", "request", "no-data", "job", "internal"]


class WireError(OncallError):
    """The other side does not speak the protocol, or says why it cannot answer."""

    def __init__(self, message: str, reason: str = "protocol") -> None:
        self.reason = reason
        super().__init__(message)


@dataclass(frozen=True)
class Request:
    """One question to a node.

    `hello`: versions, clock, state of the collector, jobs seen. `digest`: what every rulebook's
    `start_when` needs of `job` in the window, in about `budget_rows` rows of operations.
    `detail`: all rows of `tables` for the communicators `comms` (and, if given, operation numbers
    from `seqs[0]` to `seqs[1]`) in the window. Instants are Unix time in ns on the console's
    clock less the node's offset, that is on the node's.
    """

    ask: Ask
    job: str | None = None
    since_ns: int | None = None
    until_ns: int | None = None
    budget_rows: int = 60_000
    tables: tuple[str, ...] = ()
    comms: tuple[int, ...] = ()
    seqs: tuple[int, int] | None = None
    protocol: int = PROTOCOL

    def line(self) -> bytes:
        """The request as the one line that is sent."""
        return json.dumps(asdict(self), separators=(",", ":")).encode() + b"\n"


@dataclass(frozen=True)
class Part:
    """Rows of one evidence table, as Parquet."""

    table: str
    rows: int
    parquet: bytes


@dataclass(frozen=True)
class End:
    """The last frame of a complete answer: what the node says of itself."""

    status: dict[str, Any] = field(default_factory=dict)


def write_frames(stream: IO[bytes], frames: Iterator[Part | End]) -> None:
    """Send an answer, frame by frame; the reader can use each part as it comes."""
    for frame in frames:
        if isinstance(frame, Part):
            head = {"part": frame.table, "rows": frame.rows, "bytes": len(frame.parquet)}
            stream.write(json.dumps(head).encode() + b"\n" + frame.parquet)
        else:
            stream.write(json.dumps({"end": frame.status}).encode() + b"\n")
        stream.flush()


def write_error(stream: IO[bytes], message: str, reason: Reason) -> None:
    """Send that there is no answer, and why."""
    stream.write(json.dumps({"error": message, "reason": reason}).encode() + b"\n")
    stream.flush()
