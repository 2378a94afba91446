"""What a console asks of a node, and how the answer travels: one protocol for every transport.

A request is one line of JSON. An answer is a stream of frames; each is one line of JSON and, for
a part, that many bytes of Parquet:

    {"part": "ops", "rows": 1200, "bytes": 10240}\\n <10240 bytes>
    {"end": {"node": "gpu017", ...}}\\n              the answer is complete
    {"error": "...", "reason": "version"}\\n          or it never will be

Requests name relations and keys, never SQL: whoever may ask can read evidence and nothing else.
Both sides say which protocols they understand, and neither believes the other's sizes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from itertools import islice
from typing import IO, Any, Literal, Protocol, get_args, runtime_checkable

from oncall.core.errors import OncallError
from oncall.core.json_text import json_of

PROTOCOL = 1  # rises when an older side would misread a newer one
OLDEST_PROTOCOL = 1  # the oldest that this side still understands
MOST_LINE_BYTES = 64 * 1024
NO_COLLECTOR = "no collector is running"  # an end's `collector.problem`; any other: it may run

Ask = Literal["hello", "clock", "pulse", "digest", "detail", "probe", "stacks", "processes"]
Reason = Literal["version", "request", "no-data", "job", "read-only", "internal"]

_MOST_BUDGET_ROWS = 1_000_000
_MOST_ANSWER_ROWS = 5_000_000  # the budget holds for operations; other tables come on top
_MOST_TABLES = 64  # more than there are
_MOST_COMMS = 4_096
_MOST_NAME = 1000
_MOST_LOOKS = 5
_MOST_MESSAGE = 500
_MOST_DEPTH, _MOST_ITEMS = 6, 4_096  # of what a node says of itself
_TABLE = re.compile(r"[a-z][a-z0-9_]{0,62}")
_INT64 = range(-(2**63), 2**63)
_UINT64 = range(2**64)


class WireError(OncallError):
    """The other side does not speak the protocol, or says why it cannot answer."""

    def __init__(self, message: str, reason: str = "protocol") -> None:
        self.reason = reason
        super().__init__(message)


@dataclass(frozen=True)
class Request:
    """One question to a node. Instants are Unix time in ns on its clock.

    `hello`: versions, clock, state of the collector, jobs seen; with `images` also the C libraries
    beside which the hooks would be loaded there. `clock`: the node's clock alone. `pulse`: how much
    the ranks of `job` have recorded so far, which rises whenever one calls or ends. `digest`: what
    every rulebook's `start_when` needs of `job` in the window, in about `budget_rows` rows of
    operations. `detail`: all rows of `tables` (none named: of every table) for the communicators
    `comms` (and, if given, operation numbers from `seqs[0]` to `seqs[1]`) in the window; of more
    operations than `budget_rows`, a thinned selection. `probe`: what `probe_request` says.
    `stacks`: those of the job's living processes, taken now, in `looks` looks, with native frames
    if `native`, after Flight Recorder dumps if `recorder`. `processes`: what these are set to
    record. A node answers `pulse` and the last three if its `hello` names them under `asks`.
    """

    ask: Ask
    job: str | None = None
    since_ns: int | None = None
    until_ns: int | None = None
    budget_rows: int = 30_000
    tables: tuple[str, ...] = ()
    comms: tuple[int, ...] = ()
    seqs: tuple[int, int] | None = None
    probe: dict[str, Any] | None = None
    images: bool = False
    native: bool = True
    looks: int = 1
    recorder: bool = False
    protocol: int = PROTOCOL
    oldest_protocol: int = OLDEST_PROTOCOL

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


# ------------------------------------------------------------------ requests


def parse_request(line: bytes) -> Request:
    """The request that a line holds; what a newer peer added to it is passed over.

    Raises WireError with reason `request`, or `version` where the two sides share no protocol.
    """
    message = _json_line(line, "request")
    _check_protocols(message)
    if message.get("ask") not in get_args(Ask):
        known = ", ".join(get_args(Ask))
        raise WireError(f"unknown request {_shown(message.get('ask'))}; known: {known}", "request")
    values: dict[str, Any] = {"ask": message["ask"]}
    for each in fields(Request):
        if each.name in _CHECKS and message.get(each.name) is not None:
            check, wanted = _CHECKS[each.name]
            value = message[each.name]
            if not check(value):
                raise WireError(f"`{each.name}` is {_shown(value)}, not {wanted}", "request")
            values[each.name] = _once(each.name, value) if isinstance(value, list) else value
    request = Request(**values)
    if request.ask in ("digest", "detail") and request.job is None:
        raise WireError(f"a {request.ask} request must name a job", "request")
    return request


def _once(name: str, values: list[Any]) -> tuple[Any, ...]:
    """Names and numbers of a list as they are asked for: each is answered once."""
    return tuple(values) if name == "seqs" else tuple(dict.fromkeys(values))


def _check_protocols(message: dict[str, Any]) -> None:
    newest, oldest = (
        message.get("protocol", PROTOCOL),
        message.get("oldest_protocol", OLDEST_PROTOCOL),
    )
    if not _is_int(newest) or not _is_int(oldest):
        raise WireError("`protocol` is not a number", "request")
    if oldest > PROTOCOL:
        raise WireError(
            f"this node speaks protocol {PROTOCOL}, the console {oldest} or newer: "
            "upgrade oncall on the node",
            "version",
        )
    if newest < OLDEST_PROTOCOL:
        raise WireError(
            f"this node speaks protocol {OLDEST_PROTOCOL} or newer, the console {newest}: "
            "upgrade oncall on the console",
            "version",
        )


def check_versions(status: dict[str, Any]) -> None:
    """Whether a node's `hello` is one that this console understands. Raises WireError if not."""
    spoken = status.get("protocol")
    if not isinstance(spoken, list) or len(spoken) != 2 or not all(map(_is_int, spoken)):
        raise WireError("the node does not say which protocol it speaks")
    oldest, newest = spoken
    version = _shown(status.get("oncall_version"))
    if newest < OLDEST_PROTOCOL:
        raise WireError(f"oncall {version} on the node is too old: upgrade it there", "version")
    if oldest > PROTOCOL:
        raise WireError(f"oncall {version} on the node is newer: upgrade the console", "version")


def _is_int(value: Any, allowed: range = _INT64) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in allowed


def _is_list(value: Any, item: Any, most: int) -> bool:
    return isinstance(value, list) and all(map(item, value)) and len(set(value)) <= most


def _is_job(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _MOST_NAME and value.isprintable()


_YES_OR_NO = (lambda value: isinstance(value, bool), "true or false")
_CHECKS: dict[str, tuple[Any, str]] = {
    "job": (_is_job, "a job's name"),
    "since_ns": (_is_int, "an instant"),
    "until_ns": (_is_int, "an instant"),
    "budget_rows": (
        lambda value: _is_int(value, range(1, _MOST_BUDGET_ROWS + 1)),
        f"a number of rows up to {_MOST_BUDGET_ROWS:,}",
    ),
    "tables": (
        lambda value: _is_list(
            value, lambda v: isinstance(v, str) and _TABLE.fullmatch(v), _MOST_TABLES
        ),
        f"a list of up to {_MOST_TABLES} tables",
    ),
    "comms": (
        lambda value: _is_list(value, lambda v: _is_int(v, _UINT64), _MOST_COMMS),
        f"a list of up to {_MOST_COMMS:,} communicators",
    ),
    "probe": (lambda value: isinstance(value, dict), "a probe"),
    "images": _YES_OR_NO,
    "recorder": _YES_OR_NO,
    "native": _YES_OR_NO,
    "looks": (lambda value: _is_int(value, range(1, _MOST_LOOKS + 1)), "a number of looks"),
    "seqs": (
        lambda value: _is_list(value, _is_int, 2) and len(value) == 2,
        "a first and a last number",
    ),
}


# ------------------------------------------------------------------- answers


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
    refusal = {"error": message[:_MOST_MESSAGE], "reason": reason}
    stream.write(json.dumps(refusal).encode() + b"\n")
    stream.flush()


@dataclass(frozen=True)
class Limits:
    """What one answer may be at most; whoever sends more is not believed."""

    part_bytes: int = 64 * 2**20
    total_bytes: int = 256 * 2**20
    parts: int = 256
    rows: int = _MOST_ANSWER_ROWS  # of all parts together


DEFAULT_LIMITS = Limits()


class Sink(Protocol):
    """Where the parts of an answer go."""

    def part(self, table: str, rows: int) -> IO[bytes]:
        """A file for the Parquet of one part; the decoder writes and closes it."""


@runtime_checkable
class NodesSink(Sink, Protocol):
    """Where the answer of a gateway goes."""

    def node(self, host: str, became: dict[str, Any]) -> None:
        """The outcome of a host that the gateway asked."""


class FrameDecoder:
    """Reads one answer from bytes as they come, in pieces of whatever size.

    Holds one line or nothing; parts go to the sink as they arrive. No input or output of its own.
    """

    def __init__(self, sink: Sink, limits: Limits = DEFAULT_LIMITS) -> None:
        self._sink = sink
        self._limits = limits
        self._line = bytearray()
        self._file: IO[bytes] | None = None
        self._left = 0  # bytes of the current part still to come
        self._parts = 0
        self._rows = 0
        self.bytes = 0  # of all that was fed

    def feed(self, data: bytes) -> End | None:
        """Take the next bytes; returns the answer's end once it is there.

        Raises WireError for what is no answer, for one beyond the limits, and for the error that
        the node itself reports.
        """
        self.bytes += len(data)
        if self.bytes > self._limits.total_bytes:
            raise WireError(f"answered more than {self._limits.total_bytes // 2**20} MiB")
        rest = memoryview(data)
        while rest:
            if self._file is not None:
                rest = self._take(rest)
                continue
            end, rest = self._read_line(rest)
            if end is not None:
                if rest:
                    raise WireError("sent data after the end of its answer")
                return end
        return None

    def broken_off(self) -> WireError:
        """What to say where the stream ended without the end of the answer."""
        if not self.bytes:
            return WireError("ended without an answer", "broken-off")
        return WireError(
            f"disconnected within its answer, after {self.bytes:,} bytes", "broken-off"
        )

    def close(self) -> None:
        """Discard a part that is incomplete."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _take(self, rest: memoryview) -> memoryview:
        assert self._file is not None
        piece = rest[: self._left]
        self._file.write(piece)
        self._left -= len(piece)
        if not self._left:
            self.close()
        return rest[len(piece) :]

    def _read_line(self, rest: memoryview) -> tuple[End | None, memoryview]:
        """Take bytes up to the end of a line, and act on the line if it is whole."""
        data = bytes(rest[: MOST_LINE_BYTES + 1])
        end = data.find(b"\n")
        self._line += data[: end + 1] if end >= 0 else data
        if len(self._line) > MOST_LINE_BYTES:
            raise WireError("does not speak the protocol: a line without end")
        if end < 0:
            return None, rest[len(data) :]
        line, self._line = bytes(self._line), bytearray()
        return self._frame(line), rest[end + 1 :]

    def _frame(self, line: bytes) -> End | None:
        head = _json_line(line, "protocol")
        if isinstance(head.get("end"), dict):
            return End(_bounded(head["end"]))
        if isinstance(head.get("error"), str):
            raise WireError(_plain(head["error"]), str(head.get("reason", "internal"))[:40])
        host, table = head.get("of"), head.get("part")
        if isinstance(host, str) and isinstance(self._sink, NodesSink):
            self._sink.node(_plain(host, _MOST_NAME), _bounded(head))
            return None
        rows, size = head.get("rows"), head.get("bytes")
        if not isinstance(table, str) or not _TABLE.fullmatch(table):
            raise WireError(f"does not speak the protocol: {_shown(head)}")
        if not _is_int(rows, range(2**40)) or not _is_int(size, range(1, 2**63)):
            raise WireError(f"sent a part of {table} without its size")
        assert isinstance(rows, int) and isinstance(size, int)
        self._parts += 1
        if size > self._limits.part_bytes or self._parts > self._limits.parts:
            raise WireError(f"sent {size:,} bytes of {table} as part {self._parts}: over the limit")
        self._rows += rows
        if self._rows > self._limits.rows:
            raise WireError(
                f"sent more than {self._limits.rows:,} rows in one answer: over the limit"
            )
        self._file, self._left = self._sink.part(table, rows), size
        return None


def _bounded(value: Any, depth: int = 0) -> Any:
    """What a node says of itself, as far as anybody may rely on it: text that can be printed and
    has an end, numbers that a column can hold, nothing deeply nested. The rest is None."""
    if depth > _MOST_DEPTH:
        return None
    if isinstance(value, dict):
        items = islice(value.items(), _MOST_ITEMS)
        return {_plain(key, _MOST_NAME): _bounded(each, depth + 1) for key, each in items}
    if isinstance(value, list):
        return [_bounded(each, depth + 1) for each in value[:_MOST_ITEMS]]
    if isinstance(value, str):
        return _plain(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) and value not in _INT64:
        return None
    return value


def _json_line(line: bytes, reason: str) -> dict[str, Any]:
    if len(line) > MOST_LINE_BYTES:
        raise WireError(f"a line of more than {MOST_LINE_BYTES} bytes", reason)
    try:
        parsed = json_of(line)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise WireError(f"does not speak the protocol: {_shown(line)}", reason)
    return parsed


def _shown(value: object) -> str:
    """A foreign value as a short quotation."""
    text = value.decode(errors="replace").strip() if isinstance(value, bytes) else str(value)
    text = _plain(text)
    return f"`{text[:60]}…`" if len(text) > 60 else f"`{text}`"


def _plain(text: str, most: int = _MOST_MESSAGE) -> str:
    """Foreign text without what could steer a terminal, and not without end."""
    return "".join(c if c.isprintable() else " " for c in text[:most])
