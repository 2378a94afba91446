"""A node as its endpoint sees it: its name, and where its shards and its collector are."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from oncall.core.errors import OncallError
from oncall.node.store.catalog import Shard, sealed_shards
from oncall.node.store.database import Limits
from oncall.node.store.parts import ReceivedPart
from oncall.node.store.places import data_dir, run_dir, socket_path
from oncall.node.store.retention import in_sealing_order
from oncall.node.store.wire import (
    NO_COLLECTOR,
    PROTOCOL,
    End,
    FrameDecoder,
    Part,
    Request,
    WireError,
)

LIMITS = Limits(memory_bytes=512 * 2**20)  # of one answer
# The most shards that one answer reads: each is an open file, and the machine belongs to the job.
MOST_SHARDS = 500
_AHEAD_NS = 60 * 10**9  # for a smaller step of the clock, no rows are left out


@dataclass(frozen=True)
class Node:
    """A node as its endpoint sees it. Without `run` it is a recording, with no collector."""

    name: str
    data: Path
    run: Path | None

    @classmethod
    def here(
        cls,
        data: Path | None = None,
        run: Path | None = None,
        name: str | None = None,
        *,
        sealed: bool = False,
    ) -> Node:
        """This node, or the one with the given folders. The name defaults to $ONCALL_NODE, else
        that of the newest shard, else the host name. `sealed`: a recording."""
        data = data or data_dir()
        name = name or os.environ.get("ONCALL_NODE")
        if name is None:
            with suppress(OncallError):
                newest = max(sealed_shards(data), key=lambda shard: shard.end_ns, default=None)
                name = newest.node if newest else None
        name = name or socket.gethostname().partition(".")[0]
        return cls(name, data, None if sealed else run or run_dir())


def sealed_in_window(
    node: Node, until_ns: int | None, since_ns: int | None = None
) -> tuple[list[Shard], list[str]]:
    """The node's shards that overlap the window, in sealing order, and the gaps.

    A shard from the future was written before the clock was set back; its rows would hide newer
    ones. It is left out unless the request asks for its time. Recordings are not checked.
    """
    found = sealed_shards(node.data, since_ns=since_ns, until_ns=until_ns, nodes=[node.name])
    gaps = []
    if node.run is not None and until_ns is None:
        now_ns = time.time_ns()
        ahead = [shard for shard in found if shard.start_ns > now_ns + _AHEAD_NS]
        found = [shard for shard in found if shard not in ahead]
        if ahead:
            last = max(shard.end_ns for shard in ahead)
            until = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(last // 10**9))
            gaps.append(
                f"{len(ahead)} shards skipped, dated up to {until} UTC: the clock of this node was "
                "set back; use --at with that time to see them"
            )
    return in_sealing_order(node.data, found), gaps


# Asks the collector of this node for what it has not sealed yet.

GREETING_TIMEOUT_S = 5.0  # of a collector that needs not do anything to greet
EVIDENCE_TIMEOUT_S = 12.0  # what is late is worth more than what is missing


def greet_collector(node: Node) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state of the collector, with for how long a question waits there (`takes_s`), and what it
    says of its jobs and its problems. Takes at most `GREETING_TIMEOUT_S`."""
    try:
        said = dict(_asked(node, Request("hello"), None, GREETING_TIMEOUT_S))
    except _NoAnswer as no_answer:
        return no_answer.state, {}
    takes_s = said.pop("takes_s", 0.0)
    return {"alive": True, "takes_s": takes_s if isinstance(takes_s, int | float) else 0.0}, said


def ask_collector(node: Node, request: Request, into: AnswerFolder) -> dict[str, Any]:
    """Write the collector's answer into the folder; returns its state. One that greets, but has not
    answered after `EVIDENCE_TIMEOUT_S`, needs at least so long."""
    state, _ = greet_collector(node)
    if not state["alive"]:
        return state
    try:
        _asked(node, request, into, EVIDENCE_TIMEOUT_S)
    except _NoAnswer as no_answer:
        if not no_answer.is_late:
            return no_answer.state
        problem = f"needs over {EVIDENCE_TIMEOUT_S:g} s to answer: the newest evidence is missing"
        takes_s = max(state["takes_s"], EVIDENCE_TIMEOUT_S)
        return {"alive": True, "takes_s": takes_s, "problem": problem}
    return state


class _NoAnswer(Exception):
    """Why a collector does not answer; `is_late`: it may still."""

    def __init__(self, problem: str | None, *, is_late: bool = False) -> None:
        self.state: dict[str, Any] = {"alive": False} | ({"problem": problem} if problem else {})
        self.is_late = is_late
        super().__init__(problem)


def _asked(
    node: Node, request: Request, into: AnswerFolder | None, timeout_s: float
) -> Mapping[str, Any]:
    """The end of the collector's answer, whose parts go into the folder. Raises _NoAnswer."""
    if node.run is None:
        raise _NoAnswer(None)
    into = into or AnswerFolder(Path(os.devnull))
    already = len(into.parts)
    decoder = FrameDecoder(into)
    deadline = time.monotonic() + timeout_s
    is_late = False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(timeout_s)
            asking.connect(str(socket_path(node.run)))
            asking.sendall(replace(request, protocol=PROTOCOL).line())
            while data := asking.recv(2**18):
                if (end := decoder.feed(data)) is not None:
                    return end.status
                asking.settimeout(max(0.001, deadline - time.monotonic()))
            raise decoder.broken_off()
    except (FileNotFoundError, ConnectionRefusedError):
        problem = NO_COLLECTOR
    except TimeoutError:
        problem, is_late = f"the collector did not answer within {timeout_s:g} s", True
    except OSError as error:
        problem = f"cannot query the collector: {error.strerror or error}"
    except WireError as error:
        problem = f"invalid answer of the collector: {error}"
    finally:
        decoder.close()
    del into.parts[already:]
    raise _NoAnswer(problem, is_late=is_late)


class AnswerFolder:
    """Parts on disk until all are there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts: list[ReceivedPart] = []

    def part(self, table: str, rows: int, sender: str = "collector") -> IO[bytes]:
        path = self.folder / f"{len(self.parts)}.parquet"
        self.parts.append(ReceivedPart(sender, table, rows, path))
        return path.open("wb")

    def clear(self) -> None:
        """Forget the parts so far; files of the same numbers take their places."""
        self.parts.clear()

    def take(self, frames: Iterable[Part | End]) -> list[str]:
        """Write the parts; returns the gaps listed at the end of the answer."""
        gaps: list[str] = []
        for frame in frames:
            if isinstance(frame, Part):
                with self.part(frame.table, frame.rows, "shards") as file:
                    file.write(frame.parquet)
            else:
                gaps += gaps_of(frame)
        return gaps


def gaps_of(end: End) -> list[str]:
    """The gaps listed at the end of an answer."""
    gaps = end.status.get("gaps")
    return list(map(str, gaps)) if isinstance(gaps, list) else []
