"""The node's side: answers requests for evidence.

Reads the sealed shards and queries the collector for what it has not sealed yet. A source that
cannot be read is named at the end of the answer; the others are read nevertheless.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, get_args

import duckdb

from oncall import __version__
from oncall.core.errors import OncallError
from oncall.evidence.columns import create_table_sql
from oncall.evidence.schema import SCHEMA_VERSION, TABLES
from oncall.evidence.settle import settle_duplicates
from oncall.fleet.doctor_images import images_status
from oncall.fleet.process_requests import answer_processes, answer_stacks
from oncall.fleet.ring_states import ring_states
from oncall.node.store.answer import answer, jobs_seen, shows
from oncall.node.store.catalog import Shard, sealed_shards
from oncall.node.store.database import Limits, connect, reason
from oncall.node.store.labelled import LabelledTasks
from oncall.node.store.parts import ReceivedPart, load_parts
from oncall.node.store.places import data_dir, run_dir, socket_path
from oncall.node.store.reader import Shards, open_shards, read_shards
from oncall.node.store.seal_log import in_sealing_order
from oncall.node.store.shard_digest import CANDIDATES
from oncall.node.store.wire import (
    MOST_LINE_BYTES,
    OLDEST_PROTOCOL,
    PROTOCOL,
    Ask,
    End,
    FrameDecoder,
    Part,
    Request,
    WireError,
    parse_request,
    write_error,
    write_frames,
)

if TYPE_CHECKING:
    from oncall.fleet.probe_node import ProbeNode

LIMITS = Limits(memory_bytes=512 * 2**20, threads=2)
COLLECTOR_TIMEOUT_S = 5.0
_TASKS = "stage_tasks"
_INTERVENING = ("probe", "stacks")  # what does more than read evidence
# The most shards that one answer reads: each is an open file, and the machine belongs to the job.
MOST_SHARDS = 500
_AHEAD_NS = 60 * 10**9  # for a smaller step of the clock, no rows are left out
_NEWEST_SHARDS = 20  # searched for jobs if the request has no start time


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


def serve(node: Node, requests: IO[bytes], answers: IO[bytes], *, read_only: bool = False) -> None:
    """Answer one request per line until the input ends. `read_only`: refuse probes."""
    with _Probes(node, requests, read_only) as probes:
        while line := requests.readline(MOST_LINE_BYTES + 1):
            respond(node, line, answers, probes)
            if len(line) > MOST_LINE_BYTES:
                return  # what follows is the rest of that line, not a request


class _Probes:
    """Probes and stacks for one connection; probes are loaded at the first request for one."""

    def __init__(self, node: Node, requests: IO[bytes], read_only: bool) -> None:
        self._node, self._requests, self._read_only = node, requests, read_only
        self._probe_node: ProbeNode | None = None

    @property
    def asks(self) -> list[str]:
        """The requests that this connection may make."""
        return [ask for ask in get_args(Ask) if not (self._read_only and ask in _INTERVENING)]

    def answer(self, request: Request) -> Iterator[Part | End]:
        if self._read_only:
            what = "probe" if request.ask == "probe" else "take stacks"
            raise WireError(f"this key is read-only: it may not {what}", "read-only")
        if request.ask == "stacks":
            yield from answer_stacks(self._node.name, self._node.run, request)
            return
        if self._probe_node is None:
            from oncall.fleet.probe_node import ProbeNode

            self._probe_node = ProbeNode(self._node.name, self._requests.fileno())
        yield from self._probe_node.answer(request)

    def __enter__(self) -> _Probes:
        return self

    def __exit__(self, *_: object) -> None:
        if self._probe_node is not None:
            self._probe_node.close()


def respond(node: Node, line: bytes, answers: IO[bytes], probes: _Probes | None = None) -> None:
    """Answer one request; errors are answered too."""
    received_ns = time.time_ns()
    try:
        request = parse_request(line)
        write_frames(answers, _stamped(node, _frames(node, request, probes), received_ns))
    except WireError as error:
        known = ("version", "request", "no-data", "job", "read-only")
        why = error.reason if error.reason in known else "internal"
        write_error(answers, str(error), why)  # type: ignore[arg-type]
    except (OncallError, duckdb.Error, OSError, MemoryError) as error:
        write_error(answers, f"{type(error).__name__}: {reason(error)}", "internal")


def _stamped(node: Node, frames: Iterator[Part | End], received_ns: int) -> Iterator[Part | End]:
    """The frames, with the node's name and clock added to the last."""
    for frame in frames:
        if isinstance(frame, End):
            clock = {"received_ns": received_ns, "answered_ns": time.time_ns()}
            frame = End({**frame.status, "node": node.name, **clock})
        yield frame


def _frames(node: Node, request: Request, probes: _Probes | None) -> Iterator[Part | End]:
    match request.ask:
        case "clock":
            yield End()
        case "hello":
            yield End(hello(node, request) | ({"asks": probes.asks} if probes else {}))
        case "probe" | "stacks":
            if probes is None:
                raise WireError(
                    f"`{request.ask}` needs a lasting connection: use `oncall node serve`",
                    "request",
                )
            yield from probes.answer(request)
        case "processes":
            yield from answer_processes(node.run, request)
        case _:
            yield from _evidence(node, request)


# ----------------------------------------------------------------------- hello


def hello(node: Node, request: Request) -> dict[str, Any]:
    """The node's versions, the state of its collector, and its jobs."""
    sealed, gaps = _sealed(node, request.until_ns)
    wanted = [s for s in sealed if request.since_ns and s.end_ns >= request.since_ns]
    collector, tail = ask_collector(node, Request("hello"))
    with open_shards(wanted[-MOST_SHARDS:] or sealed[-_NEWEST_SHARDS:], LIMITS) as shards:
        try:
            found = read_shards(shards, _jobs_in)
        except (OncallError, duckdb.Error) as error:
            # A greeting must succeed: unreadable shards become a gap in it.
            found, gaps = [], [*gaps, f"jobs of the shards: {reason(error)}"]
        gaps = [*map(str, shards.gaps), *gaps]
    jobs = _together(found)
    for job, seen in tail.get("jobs", {}).items() if isinstance(tail.get("jobs"), dict) else ():
        jobs[job] = seen
    return {
        "protocol": [OLDEST_PROTOCOL, PROTOCOL],
        "oncall_version": __version__,
        "duckdb_version": duckdb.__version__,
        "schema_version": SCHEMA_VERSION,
        "jobs": jobs,
        "collector": collector,
        "shards": {
            "count": len(sealed),
            "oldest_ns": min((shard.start_ns for shard in sealed), default=None),
            "newest_ns": max((shard.end_ns for shard in sealed), default=None),
        },
        "gaps": gaps,
        "free_bytes": _free_bytes(node.data),
        "rings": ring_states(node.run) if node.run is not None else None,
        **({"images": images_status()} if request.images and node.run is not None else {}),
        **{key: value for key, value in tail.items() if key == "problems"},
    }


def _sealed(
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


def _jobs_in(shards: Shards) -> dict[str, Any]:
    source = CANDIDATES["ops"] if shows(shards.con, CANDIDATES["ops"]) else "ops"
    return jobs_seen(shards.con, source)


def _together(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge the jobs of several groups of shards."""
    jobs: dict[str, Any] = {}
    for seen in found:
        for job, new in seen.items():
            old = jobs.get(job, new)
            instants = [each["last_ns"] for each in (old, new) if each["last_ns"] is not None]
            ranks = {*old["ranks"], *new["ranks"]}
            jobs[job] = {
                "last_ns": max(instants, default=None),
                "ranks": sorted(rank for rank in ranks if rank is not None),
            }
    return jobs


def _free_bytes(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


# -------------------------------------------------------------------- evidence


def _evidence(node: Node, request: Request) -> Iterator[Part | End]:
    """Sealed and unsealed evidence in one answer."""
    with tempfile.TemporaryDirectory(prefix="oncall-node-") as folder:
        into = _Folder(Path(folder))
        gaps = _sealed_parts(node, request, into)
        collector, _ = ask_collector(node, request, into)
        con = connect(LIMITS, Path(folder))
        try:
            con.execute(";".join(create_table_sql(table.name, table.columns) for table in TABLES))
            gaps += [f"{bad.part.sender}: {bad.problem}" for bad in load_parts(con, into.parts)]
            settle_duplicates(con)
            rows = 0
            for frame in answer(con, request):
                if isinstance(frame, Part):
                    rows += frame.rows
                    yield frame
                else:
                    gaps += _gaps_of(frame)
        finally:
            con.close()
    yield End({"rows": rows, "gaps": gaps, "collector": collector})


def _sealed_parts(node: Node, request: Request, into: _Folder) -> list[str]:
    """Write the sealed shards' answer into the folder; returns what could not be read."""
    sealed, gaps = _sealed(node, request.until_ns, request.since_ns)
    if len(sealed) > MOST_SHARDS:
        older = len(sealed) - MOST_SHARDS
        gaps.append(f"{older} older shards not read: use a shorter window (--since, --at)")
        sealed = sealed[-MOST_SHARDS:]
    for opened in _opened(sealed, request):
        gaps += _answer_into(opened, request, into)
        gaps += [str(gap) for gap in opened.gaps]
    if request.ask == "digest" and sealed and (not request.tables or _TASKS in request.tables):
        gaps += _label(node, sealed, request, into)
    return gaps


def _label(node: Node, sealed: Sequence[Shard], request: Request, into: _Folder) -> list[str]:
    """Write the training tasks inferred from the shards' operations into the folder."""

    def read(opened: Shards) -> Part | None:
        return _labelled(node.data).part(opened.con, opened.shards, request.job, into.folder)

    with open_shards(sealed, LIMITS, into.folder) as opened:
        try:
            parts = read_shards(opened, read)
        except (OncallError, duckdb.Error) as error:
            return [f"training tasks: {reason(error)}"]
    into.take(part for part in parts if part)
    return []


@cache
def _labelled(data: Path) -> LabelledTasks:  # noqa: ARG001 - one for each folder
    """The tasks in the shards of that folder, cached for the life of the process."""
    return LabelledTasks()


def _opened(sealed: Sequence[Shard], request: Request) -> Iterator[Shards]:
    """The opened shards. For a digest, those with candidates and those without, which are read in
    full, are opened separately."""
    if not sealed:
        return
    with open_shards(sealed, LIMITS) as opened:
        prepared = {path for found in read_shards(opened, _prepared) for path in found}
        with_them = [shard for shard in sealed if str(shard.path) in prepared]
        without = [shard for shard in sealed if str(shard.path) not in prepared]
        if request.ask == "detail" or not with_them or not without:
            yield opened
            return
    for group in (with_them, without):
        with open_shards(group, LIMITS) as opened:
            yield opened


def _prepared(shards: Shards) -> set[str]:
    """The paths of the shards that hold candidates for a digest."""
    found = shards.con.execute(
        "SELECT path FROM shards WHERE list_has_all(tables, ?)", [[*CANDIDATES.values()]]
    ).fetchall()
    return {path for (path,) in found}


def _answer_into(shards: Shards, request: Request, into: _Folder) -> list[str]:
    """Write the shards' answer into the folder; returns what could not be computed. Damaged shards
    are among the shards' gaps."""

    def read(opened: Shards) -> list[str]:
        con, already = opened.con, len(into.parts)
        if request.ask == "digest" and all(shows(con, name) for name in CANDIDATES.values()):
            for table, candidates in CANDIDATES.items():
                con.execute(f"CREATE OR REPLACE TEMP VIEW {table} AS FROM memory.main.{candidates}")
        try:
            return into.take(answer(con, request))
        except duckdb.Error:
            del into.parts[already:]
            raise

    return [gap for gaps in read_shards(shards, read) for gap in gaps]


def _gaps_of(end: End) -> list[str]:
    """The gaps listed at the end of an answer."""
    gaps = end.status.get("gaps")
    return list(map(str, gaps)) if isinstance(gaps, list) else []


class _Folder:
    """Parts on disk until all are there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts: list[ReceivedPart] = []

    def part(self, table: str, rows: int, sender: str = "collector") -> IO[bytes]:
        path = self.folder / f"{len(self.parts)}.parquet"
        self.parts.append(ReceivedPart(sender, table, rows, path))
        return path.open("wb")

    def take(self, frames: Iterable[Part | End]) -> list[str]:
        """Write the parts; returns the gaps listed at the end of the answer."""
        gaps: list[str] = []
        for frame in frames:
            if isinstance(frame, Part):
                with self.part(frame.table, frame.rows, "shards") as file:
                    file.write(frame.parquet)
            else:
                gaps += _gaps_of(frame)
        return gaps


# ------------------------------------------------------------------- collector


def ask_collector(
    node: Node, request: Request, into: _Folder | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state of the collector, and the end of its answer; its parts go into the folder.

    Takes at most `COLLECTOR_TIMEOUT_S` if no collector runs or it does not answer.
    """
    if node.run is None:
        return {"alive": False}, {}
    into = into or _Folder(Path(os.devnull))
    already = len(into.parts)
    decoder = FrameDecoder(into)
    deadline = time.monotonic() + COLLECTOR_TIMEOUT_S
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(COLLECTOR_TIMEOUT_S)
            asking.connect(str(socket_path(node.run)))
            asking.sendall(replace(request, protocol=PROTOCOL).line())
            while data := asking.recv(2**18):
                if (end := decoder.feed(data)) is not None:
                    return {"alive": True}, end.status
                asking.settimeout(max(0.001, deadline - time.monotonic()))
            raise decoder.broken_off()
    except (FileNotFoundError, ConnectionRefusedError):
        problem = "no collector is running"
    except TimeoutError:
        problem = f"the collector did not answer within {COLLECTOR_TIMEOUT_S:g} s"
    except OSError as error:
        problem = f"cannot query the collector: {error.strerror or error}"
    except WireError as error:
        problem = f"invalid answer of the collector: {error}"
    finally:
        decoder.close()
    del into.parts[already:]
    return {"alive": False, "problem": problem}, {}
