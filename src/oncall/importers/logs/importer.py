"""Job logs: one file of a whole job, one a node or one a rank, or any mixture of them.

Content decides whether a file is one: it is text and holds words of a recogniser, or it is called
a log. What a log says becomes `log_events`, `watchdog_reports` and `logged_steps`; where a line
names a rank's host or GPU, and the job's size, that fills `ranks` and `jobs`.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oncall.core.errors import Unreadable
from oncall.evidence.incident import Incident
from oncall.evidence.schema import BY_NAME
from oncall.importers import files, zstd
from oncall.importers.logs.clock import Clock
from oncall.importers.logs.file_names import host_of, ranks_of
from oncall.importers.logs.line import Found, Line
from oncall.importers.logs.prefixes import peeled, plain
from oncall.importers.logs.reading import Candidate, Log
from oncall.importers.logs.recognisers import NEEDLES, RECOGNISERS
from oncall.importers.printable import printable

KIND = "log"

_NAMED = re.compile(
    r"\.(?:log|out|err|stdout|stderr|txt)(?:\.\d+)?(?:\.(?:gz|zst))?$|^(?:stdout|stderr)\b|^slurm-\d+|[-_.](?:log|stderr|stdout)$",
    re.IGNORECASE,
)
_HOLES = re.compile(rb"\0{64,}")  # where a log was cut while a process wrote on, or a host died
_BINARY = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")
_TEXT_BYTES = 256  # for each byte that no text holds: file systems leave some in torn logs
_DOCUMENT = re.compile(rb'\s*(?:\{\s*"|<)')  # JSON, XML or HTML
# Logs may be JSON, too: an object a line, with what was said as a field.
_JSON_LINES = re.compile(
    rb'(?:\{(?=")[^\r\n]*?"(?:log|textPayload|message|msg|line)": ?"[^\r\n]*\}(?:\r?\n|$)){2}'
)
# Lines that say nothing of a fault, and whose file is a job's log nevertheless.
_SIGN = re.compile(rb"\[rank\d+\]:|NCCL (?:INFO|WARN)|ProcessGroupNCCL|torch\.distributed")
_TAIL_BYTES = 64 << 10
_MOST_OF_A_KIND = 5_000  # rows of one kind and code in one file: repeats say no more
_MOST_STEPS = 500_000
_MOST_ROWS = 200_000  # of one file, steps aside
_GOES_ON = 3  # answers after an error: the server outlived it
_MOST_TEXT = 600  # characters kept of a line
_SLURM_JOB = re.compile(r"^slurm-(\d+)")
_ELASTIC = re.compile(r"attempt_(\d+)/(\d+)/(?:stdout|stderr)\.log$")
# What a sentence quotes, as samples of a data set do, is not said by the program. In JSON quotes
# follow punctuation.
_QUOTATION = re.compile(r"(?<=[A-Za-z] )[\"\N{LEFT DOUBLE QUOTATION MARK}][^\"]{24,}[\"]")
_STEP_TABLE = "logged_steps"
_APART_NS = 3600 * 10**9  # longer than any watchdog's timeout: ranks of one failure log within it
_LATER = "begins an hour or more after the logs before it end: taken as another attempt"
_LARGEST = 2**62
_LARGEST_INTEGER = 2**31 - 1
_MOST_RANKS = 1_000_000


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file that starts with `head` is text that a job may have written."""
    if not head:
        return False
    if head.startswith(zstd.ZSTD):
        return bool(_NAMED.search(path.name))  # reading it says what to install
    head = _HOLES.sub(b"", head)
    if len(_BINARY.findall(head)) * _TEXT_BYTES > len(head):
        return False
    if _has_words(head):
        return _is_prose(path, head)
    return bool(_NAMED.search(path.name)) and _has_words(_tail(path))


def _is_prose(path: Path, head: bytes) -> bool:
    """A log, not documentation or a program that quotes one, nor a document of another kind."""
    if _JSON_LINES.match(head):
        return True
    if path.suffix.lower() in (
        ".md",
        ".rst",
        ".py",
        ".html",
        ".yaml",
        ".yml",
        ".toml",
        ".json",
        ".csv",
    ):
        return False
    return _DOCUMENT.match(head) is None


def _has_words(part: bytes) -> bool:
    return _SIGN.search(part) is not None or next(NEEDLES.find(part), None) is not None


def _tail(path: Path) -> bytes:
    try:
        with files.open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES)
    except (Unreadable, OSError):
        return b""


@dataclass(frozen=True)
class Identity:
    """What tells one job's logs from another's: nothing but the folder that was given."""

    worth: int


def identify(paths: Sequence[Path]) -> Identity:
    """Logs in several folders are parts of one job: one a rank, a node or an attempt."""
    return Identity(len(paths))


def relate(_one: Identity, _other: Identity) -> str:
    """Always parts of one job."""
    return "part"


@dataclass
class _File:
    """One log, and what was found in it."""

    path: Path
    attempt: int
    rank: int | None
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    count: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    kept: int = 0
    problem: str | None = None
    written_ns: int | None = None
    note: str | None = None
    numbered: bool = False  # its name says which attempt it is of
    world: int = 0
    before_tests: dict[str, int] | None = None  # rows of each table when a test session began

    @property
    def begins(self) -> bool:
        """Whether the last that was kept is that a start begins: its agent says so twice."""
        events = self.rows["log_events"]
        return bool(events) and events[-1]["kind"] == "attempt"

    def test_session(self, code: str) -> None:
        """What tests print that all pass, they provoked: it says nothing of a fault."""
        if code == "begins":
            self.before_tests = {table: len(rows) for table, rows in self.rows.items()}
        elif self.before_tests is not None:
            for table, rows in self.rows.items():
                del rows[self.before_tests.get(table, 0) :]
            self.before_tests = None

    def forget_one_of_many(self, kind: str) -> None:
        """Of events in a row that say that a server answers, as many as show that it goes on."""
        events = self.rows["log_events"]
        if all(row["kind"] == kind for row in events[-_GOES_ON:]) and len(events) >= _GOES_ON:
            self.count["log_events", kind, None, None, events.pop()["node"]] -= 1
            self.kept -= 1


def read(paths: Sequence[Path], incident: Incident, job: str) -> None:
    """Add what the logs say as evidence of `job`. A file that cannot be read, or that says nothing
    of a job, becomes a recording with its problem or its note."""
    jobs = sorted({int(found[1]) for path in paths if (found := _SLURM_JOB.match(path.name))})
    ranks = ranks_of(paths)
    logs = [_read(path, jobs, ranks.get(path)) for path in sorted(paths)]
    _rank_by_folder(logs)
    _name_hosts(logs)
    _tell_apart(logs)
    _write_places(logs, incident, job)
    for log in logs:
        for table, rows in log.rows.items():
            _write(incident, table, job, log, rows)
        _write_recording(incident, job, log)


def _rank_by_folder(logs: Sequence[_File]) -> None:
    """torchrun's --log-dir has a folder for each local rank. On one node these are the global
    ranks, unless a line names another."""
    folders = [(log, found) for log in logs if (found := _ELASTIC.search(log.path.as_posix()))]
    rows = [
        (row, int(found[2])) for log, found in folders for each in log.rows.values() for row in each
    ]
    agents = {log.path.as_posix()[: found.start()] for log, found in folders}
    alone = len(agents) == 1 and all(row["rank"] in (None, local) for row, local in rows)
    for log, found in folders if alone else ():
        log.rank = int(found[2])
    for row, local in rows if alone else ():
        row["rank"] = local


def _name_hosts(logs: Sequence[_File]) -> None:
    """Lines that name no host are of the one that their file is called after."""
    rows = [row for log in logs for each in log.rows.values() for row in each]
    named = {row[name] for row in rows for name in ("node", "peer_host") if row.get(name)}
    for log in logs:
        host = host_of(log.path, named)
        for table, each in log.rows.items():
            for row in each if host and table != _STEP_TABLE else ():
                row["node"] = row.get("node") or host


def _tell_apart(logs: Sequence[_File]) -> None:
    """Logs of other times are of other starts, or of other jobs: what failed in one does not follow
    from the others. Names that count attempts have said it already."""
    spans = []
    for log in logs:
        times = [row["at_ns"] for each in log.rows.values() for row in each if row["at_ns"]]
        if times:
            spans.append((min(times), max(times), log))
    if any(log.numbered for log in logs):
        return
    spans.sort(key=lambda span: span[:2])
    earlier, last_ns, highest = 0, None, 0  # attempts before this group of logs, and in it
    for first_ns, end_ns, log in spans:
        if last_ns is not None and first_ns - last_ns > _APART_NS:
            earlier = highest
        last_ns = max(last_ns or 0, end_ns)
        for row in (row for each in log.rows.values() for row in each) if earlier else ():
            row["attempt"] += earlier
        log.note = _LATER if earlier else None
        highest = max(highest, log.attempt + earlier)


def _read(path: Path, slurm_jobs: Sequence[int], rank: int | None = None) -> _File:
    found, elastic = _SLURM_JOB.match(path.name), _ELASTIC.search(path.as_posix())
    before = slurm_jobs.index(int(found[1])) if found else int(elastic[1]) if elastic else 0
    file = _File(path, before + 1, rank)
    file.numbered = bool(found or elastic)
    try:
        file.written_ns = files.modified_ns(path)
    except Unreadable as error:
        file.problem = str(error)
        return file
    clock, log = Clock(file.written_ns), Log(path, NEEDLES)
    sort_ns = None
    for candidate in log.candidates():
        line = _line(candidate, clock)
        sort_ns = line.at_ns or sort_ns
        file.world = max(file.world, line.world or 0)
        for one in _recognised(line, candidate):
            if one.columns.get("kind") == "attempt" and not file.begins:
                file.attempt += 1
            elif one.columns.get("kind") == "test_session":
                file.test_session(one.columns["code"])
                continue
            if one.table == _STEP_TABLE or one.columns.get("kind") == "phase":
                log.restart_stamps()
            _keep(file, line, one, sort_ns)
    _keep_silence(file, clock, log)
    file.problem = log.problem
    return file


def _line(candidate: Candidate, clock: Clock) -> Line:
    """The candidate without its prefixes, and so its neighbours."""
    line = peeled(candidate.number, _QUOTATION.sub("...", candidate.text), clock)
    line.above = lambda count: [plain(raw) for raw in candidate.above(count)]
    line.below = lambda count: [plain(raw) for raw in candidate.below(count)]
    line.raw_below = candidate.below
    return line


def _recognised(line: Line, candidate: Candidate) -> Sequence[Found]:
    """What the first recogniser makes of it that wants the line and can read it."""
    for number, recogniser in enumerate(RECOGNISERS):
        if candidate.bits >> number & 1 and (found := recogniser.read(line)):
            return found
    return ()


def _keep(file: _File, line: Line, found: Found, sort_ns: int | None) -> None:
    columns = found.columns
    is_step = found.table == _STEP_TABLE
    kind = columns.get("kind")
    if kind == "served":
        file.forget_one_of_many(kind)
    key = (found.table, kind, columns.get("code"), columns.get("device"), line.node)
    most = _MOST_STEPS if is_step else 3 if kind == "net" else _MOST_OF_A_KIND
    if file.count[key] >= most:
        return
    file.count[key] += 1
    if not is_step:
        if file.kept >= _MOST_ROWS:
            return
        file.kept += 1
    row = {
        "line": line.number,
        "attempt": file.attempt,
        "at_ns": line.at_ns,
        "rank": line.rank if line.rank is not None else file.rank,
        **{name: value for name, value in columns.items() if value is not None},
    }
    if not is_step:
        row.setdefault("node", line.node)
        row["sort_ns"] = sort_ns
    if found.table == "log_events":
        row.setdefault("pid", line.pid)
        row.setdefault("local_rank", line.gpu if line.local_rank is None else line.local_rank)
        for name in ("rank", "local_rank", "comm_rank", "pid"):
            row[name] = _kept(row.get(name), "INTEGER")
        row["text"] = printable(str(row.get("text") or ""))[:_MOST_TEXT].strip() or None
    file.rows[found.table].append(row)


def _keep_silence(file: _File, clock: Clock, log: Log) -> None:
    """For how long other lines went on after the last step, by their own stamps."""
    if len(log.stamps) == 2 and file.rows[_STEP_TABLE]:
        first, last = (clock.iso(stamp) for stamp in log.stamps)
        if first is not None and last is not None and last > first:
            columns = {"code": "other_lines", "number": last - first, "kind": "silence"}
            file.rows["log_events"].append(
                {
                    "line": log.lines,
                    "attempt": file.attempt,
                    "at_ns": last,
                    "sort_ns": last,
                    **columns,
                }
            )


# ------------------------------------------------------------------- writing


def _write(
    incident: Incident, table: str, job: str, log: _File, rows: Sequence[dict[str, Any]]
) -> None:
    if not rows:
        return
    types = {one.name: one.type for one in BY_NAME[table].columns}
    names = [name for name in types if name not in ("job", "path")]
    columns: dict[str, Any] = {
        name: [_kept(row.get(name), types[name]) for row in rows] for name in names
    }
    for name in ("node", "peer_host", "device", "process_group"):
        if name in columns:
            columns[name] = [
                value and printable(str(value))[:_MOST_TEXT] for value in columns[name]
            ]
    incident.append(table, {"job": job, "path": printable(str(log.path)), **columns})


def _kept(value: Any, kind: str) -> Any:
    """A value that fits its column; numbers that no counter reaches are unknown."""
    largest = _LARGEST if kind == "BIGINT" else _LARGEST_INTEGER
    return None if isinstance(value, int) and abs(value) > largest else value


def _write_places(logs: Sequence[_File], incident: Incident, job: str) -> None:
    """The world size, and the host and GPU of ranks, as far as lines state them."""
    events = [row for log in logs for row in log.rows["log_events"]]
    stated = [
        *(log.world for log in logs),
        *(
            row["number"]
            for row in events
            if (row["kind"] == "world" and row.get("code") != "least")
            or row.get("code") in ("clients", "barrier")
        ),
    ]
    worlds = [size for size in stated if 1 < size <= _MOST_RANKS]
    world = max(worlds, default=None) or _spanning(events)
    if world is not None:
        incident.append("jobs", {"job": job, "world_size": [world]})
    reports = [row for log in logs for row in log.rows["watchdog_reports"]]
    places = _places(events, reports, world)
    if places:
        incident.append(
            "ranks",
            {
                "job": job,
                "rank": list(places),
                **{
                    name: [place.get(name) for place in places.values()]
                    for name in ("node", "local_rank", "pid", "pci_bus")
                },
            },
        )


def _spanning(events: Iterable[dict[str, Any]]) -> int | None:
    """The size of the largest communicator, unless more processes are seen than it has ranks."""
    inits = [
        row for row in events if row["kind"] == "nccl_init" and row.get("comm_rank") is not None
    ]
    processes = {(row.get("node"), row.get("pid"), row.get("local_rank")) for row in inits}
    size = max((row["number"] for row in inits), default=0)
    return size if 1 < size <= _MOST_RANKS and len(processes) <= size else None


def _places(
    events: Sequence[dict[str, Any]], reports: Iterable[dict[str, Any]], world: int | None
) -> dict[int, dict[str, Any]]:
    """Each rank's host, GPU and process. In a communicator of the whole job, ranks are global."""
    places: dict[int, dict[str, Any]] = defaultdict(dict)
    by_process: dict[tuple[Any, Any, Any], int] = {}
    for row in events:
        rank = row.get("rank")
        if (
            row["kind"] == "nccl_init"
            and row.get("number") == world
            and row.get("comm_rank") is not None
        ):
            rank = row["comm_rank"]
            row["rank"] = rank
            places[rank].update(pci_bus=row.get("device"))
            by_process[row.get("node"), row.get("pid"), row.get("local_rank")] = rank
        if rank is not None and row.get("node"):
            places[rank].setdefault("node", row["node"])
            if row.get("pid") and row["kind"] in ("nccl_init", "exit"):
                places[rank].setdefault("pid", row["pid"])
            if row.get("local_rank") is not None and row["kind"] == "exit":
                places[rank].setdefault("local_rank", row["local_rank"])
    for row in events:
        process = (row.get("node"), row.get("pid"), row.get("local_rank"))
        if row.get("rank") is None and process in by_process and row["kind"] != "nccl_init":
            row["rank"] = by_process[process]
    for row in reports:
        if row.get("rank") is not None and row.get("node"):
            places[row["rank"]].setdefault("node", row["node"])
    return dict(sorted(places.items()))


def _write_recording(incident: Incident, job: str, log: _File) -> None:
    rows = sum(len(found) for found in log.rows.values())
    incident.append(
        "recordings",
        {
            "job": job,
            "path": printable(str(log.path)),
            "kind": KIND,
            "rank": [log.rank],
            "rows": rows,
            "problem": [log.problem],
            "note": [log.note],
            "written_ns": [log.written_ns],
        },
    )
