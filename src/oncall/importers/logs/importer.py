"""Job logs: one file of a whole job, one a node or one a rank, or any mixture of them.

What a log says becomes `log_events`, `watchdog_reports` and `logged_steps`; where a line
names a rank's host or GPU, and the job's size, that fills `ranks` and `jobs`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from oncall.core.errors import Unreadable
from oncall.evidence.incident import Incident
from oncall.evidence.schema import BY_NAME
from oncall.importers import files
from oncall.importers.logs.calls import Calls
from oncall.importers.logs.clock import Clock
from oncall.importers.logs.line import Found, Line, event
from oncall.importers.logs.places import (
    ELASTIC,
    STEP_TABLE,
    LogFile,
    identity_of,
    name_hosts,
    places_of,
    rank_by_folder,
    rank_by_prefix,
    rank_by_task,
    ranks_of,
    tell_apart,
    world_size,
)
from oncall.importers.logs.prefixes import peeled, plain
from oncall.importers.logs.reading import Candidate, Log
from oncall.importers.logs.recognisers.order import NEEDLES, RECOGNISERS
from oncall.importers.logs.recognisers.reported import read_at_end
from oncall.importers.one_job import files_of_others
from oncall.importers.packed import ZSTD
from oncall.importers.recordings import append_recording
from oncall.importers.so_far import has_found

# Whether a file is a log that a job may have written.
#
# Its name decides: text in which no recogniser reads a line is a log all the same. Of other text,
# content decides: a recogniser reads a line, at its start or, of `.txt`, at its end.

_NAMED = re.compile(
    r"\.(?:log|out|err|stdout|stderr|txt)(?:\.\d+)?(?:\.(?:gz|zst|xz|bz2))?$|^(?:stdout|stderr)\b|^slurm-\d+|[-_.](?:log|stderr|stdout|[eo]\d{1,9})$",
    re.IGNORECASE,
)
_HOLES = re.compile(rb"\0{64,}")  # where a log was cut while a process wrote on, or a host died
_BINARY = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")
_TEXT_BYTES = 256  # for each byte that no text holds: file systems leave some in torn logs
_NO_LOGS = {
    *(".md", ".rst", ".html", ".yaml", ".yml", ".toml", ".json", ".csv", ".ipynb"),
    *(".py", ".sh", ".c", ".h", ".cc", ".cpp", ".hpp", ".cu", ".go", ".rs"),
}
_DOCUMENT = re.compile(rb'\s*(?:\{\s*"|<(?!\d))')  # JSON, XML or HTML, not syslog's priority
# Logs may be JSON, too: an object a line, with what was said as a field.
_JSON_LINES = re.compile(
    rb'(?:(?=\{"[^\r\n]*?(?<=")(?:(?:log|textPayload|message|msg|line|event)": ?"|'
    rb'(?:\w+[/_])?(?:step|iteration)": ?\d))[^\r\n]*+(?<=\})(?:\r?\n|$)){2}'
)
# Lines that say nothing of a fault, and whose file is a job's log nevertheless.
_SIGN = re.compile(rb"\[rank\d+\]:|NCCL (?:INFO|WARN)|ProcessGroupNCCL|torch[./]distributed")
_TAIL_BYTES = 64 << 10


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file that starts with `head` is text that a job may have written."""
    if not head:
        return False
    if head.startswith(ZSTD):
        return bool(_NAMED.search(path.name))  # reading it says what to install
    head = _HOLES.sub(b"", head)
    if len(_BINARY.findall(head)) * _TEXT_BYTES > len(head):
        return False
    is_named = bool(_NAMED.search(path.name))
    if (is_named and ".txt" not in path.name) or _has_lines(head):
        return _is_prose(path, head)
    return is_named and _has_lines(_tail(path))


def _is_prose(path: Path, head: bytes) -> bool:
    """A log, not documentation or a program that quotes one, nor a document of another kind."""
    if _JSON_LINES.match(head):
        return True
    return path.suffix.lower() not in _NO_LOGS and _DOCUMENT.match(head) is None


def _has_lines(part: bytes) -> bool:
    clock = Clock(None)
    candidates = Log(Path(), NEEDLES).of_part(part)
    return _SIGN.search(part) is not None or any(
        _recognised(_line(one, clock), one) for one in candidates
    )


def _tail(path: Path) -> bytes:
    try:
        with files.open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES)
    except (Unreadable, OSError):
        return b""


__all__ = ["KIND", "OF_ONE_JOB", "read", "recognises"]

KIND = "log"
OF_ONE_JOB = True  # in several folders: one a rank, a node or an attempt

_MOST_OF_A_KIND = 5_000  # rows of one kind and code in one file: repeats say no more
_MOST_STEPS = 500_000
_MOST_ROWS = 200_000  # of one file, steps aside
_MOST_TEXT = 600  # characters kept of a line
# Events that are causes; how far from them a stamped line is looked for: most tracebacks have fewer
# lines.
# What shows, as steps do, that the job outlived what stands above.
_ENDS = {"finished", "passed"}
_PROGRESS = {*_ENDS, "served", "attempt", "unstuck"}
_CAUSES = {"error", "cuda", "memory", "crash"}
_NEIGHBOURS = 60
_MOST_DATED = 200  # of a file
_SLURM_JOB = re.compile(r"^slurm-(\d+)")
# What a sentence quotes, as samples of a data set do, is not said by the program. In JSON quotes
# follow punctuation.
_QUOTATION = re.compile(r"(?<=[A-Za-z] )[\"\N{LEFT DOUBLE QUOTATION MARK}][^\"]{24,}[\"]")
_LARGEST = 2**62
_LARGEST_INTEGER = 2**31 - 1


def read(paths: Sequence[Path], incident: Incident, job: str) -> None:
    """Add what the logs say as evidence of `job`. A file that cannot be read, or that says nothing
    of a job, becomes a recording with its problem or its note."""
    jobs = sorted({int(found[1]) for path in paths if (found := _SLURM_JOB.match(path.name))})
    ranks = ranks_of(paths)
    logs = [_read(path, jobs, ranks.get(path)) for path in sorted(paths)]
    others = files_of_others({log.path: identity_of(log) for log in logs}, job)
    for log in logs:
        if log.path in others:
            log.problem = others[log.path]
            log.rows.clear()
            _write_recording(incident, job, log)
    logs = [log for log in logs if log.path not in others]
    rank_by_folder(logs)
    rank_by_prefix(logs)
    rank_by_task(logs)
    name_hosts(logs)
    tell_apart(logs)
    _write_places(logs, incident, job)
    for log in logs:
        for table, rows in log.rows.items():
            _write(incident, table, job, log, rows)
        _write_recording(incident, job, log)


def _read(path: Path, slurm_jobs: Sequence[int], rank: int | None = None) -> LogFile:
    found, elastic = _SLURM_JOB.match(path.name), ELASTIC.search(path.as_posix())
    before = slurm_jobs.index(int(found[1])) if found else int(elastic[1]) if elastic else 0
    file = LogFile(path, before + 1, rank)
    file.numbered = bool(found or elastic)
    try:
        file.written_ns = files.modified_ns(path)
    except Unreadable as error:
        file.problem = str(error)
        return file
    clock, log, calls = Clock(file.written_ns), Log(path, NEEDLES), Calls()
    sort_ns, is_done = None, False
    for candidate in log.candidates():
        line = _line(candidate, clock)
        sort_ns = line.at_ns or sort_ns
        file.world = max(file.world, line.world or 0)
        for one in _recognised(line, candidate):
            if one.columns.get("kind") == "attempt" and not file.begins:
                file.attempt += 1
            elif one.table == "calls":
                calls.add(line, one.columns["call"])
                continue
            kind, code = one.columns.get("kind"), one.columns.get("code")
            if one.table == STEP_TABLE or _PROGRESS & {kind, code}:
                # What is logged between two ends of training comes after it.
                if not (is_done and code in _ENDS):
                    log.went_on()
                is_done = code in _ENDS
            if code == "unstuck":
                file.went_on()
                continue
            if kind == "test_session":
                file.test_session()
                continue
            if code == "passed":
                file.tests_passed()
            if one.table == STEP_TABLE or kind == "phase":
                log.restart_stamps()
            _keep(file, line, one, sort_ns)
    for line, differs in calls.first_difference():
        _keep(file, line, differs, line.at_ns)
    _keep_end(file, clock, log)
    _keep_silence(file, clock, log)
    file.stamps_ns = [
        at_ns
        for stamp in (log.first_stamp, *log.stamps[1:])
        if stamp and (at_ns := clock.iso(stamp)) is not None
    ]
    file.problem = log.problem or (None if log.has_text else "empty file")
    file.local_ranks = log.local_ranks
    return file


def _line(candidate: Candidate, clock: Clock) -> Line:
    """The candidate without its prefixes, and so its neighbours."""
    line = peeled(candidate.number, _QUOTATION.sub("...", candidate.text), clock)
    line.above = lambda count: [plain(raw) for raw in candidate.above(count)]
    line.below = lambda count: [plain(raw) for raw in candidate.below(count)]
    line.raw_above, line.raw_below = candidate.above, candidate.below
    line.around = lambda: (
        _stamp_of(candidate.above(_NEIGHBOURS), clock),
        _stamp_of(candidate.below(_NEIGHBOURS), clock),
    )
    return line


def _stamp_of(raw: Sequence[str], clock: Clock) -> int | None:
    """The first stamp that one of the lines bears."""
    stamps = (peeled(0, one, clock).at_ns for one in raw)
    return next((at_ns for at_ns in stamps if at_ns is not None), None)


def _recognised(line: Line, candidate: Candidate) -> Sequence[Found]:
    """What the first recogniser makes of it that wants the line and can read it."""
    for number, recogniser in enumerate(RECOGNISERS):
        if candidate.bits >> number & 1 and (found := recogniser.read(line)):
            return found
    return ()


def _keep(file: LogFile, line: Line, found: Found, sort_ns: int | None) -> None:
    columns = found.columns
    is_step = found.table == STEP_TABLE
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
    row.setdefault("task", line.task)
    if not is_step:
        row.setdefault("node", line.node)
        row["sort_ns"] = sort_ns
        if row["at_ns"] is None and kind in _CAUSES and file.dated < _MOST_DATED:
            file.dated += 1
            after_ns, row["before_ns"] = line.around()
            row["sort_ns"] = after_ns or sort_ns
    if found.table == "log_events":
        row.setdefault("pid", line.pid)
        row.setdefault("local_rank", line.gpu if line.local_rank is None else line.local_rank)
        for name in ("rank", "local_rank", "comm_rank", "pid"):
            row[name] = _kept(row.get(name), "INTEGER")
        row["text"] = str(row.get("text") or "")[:_MOST_TEXT].strip() or None
        if kind in _CAUSES:
            has_found(row["text"])
    file.rows[found.table].append(row)


def _keep_end(file: LogFile, clock: Clock, log: Log) -> None:
    """What lines in no known form say of a failure behind the last progress, and the last line."""
    rows = (row for rows in file.rows.values() for row in rows)
    known, last = {row["line"] for row in rows if row.get("kind") != "phase"}, None
    for line in _lines_of(log.end, clock, log.first_of_end):
        for found in () if line.number in known else read_at_end(line):
            _keep(file, line, found, line.at_ns)
        last = line if line.text.strip() else last
    if last is not None and last.number not in known:
        _keep(file, last, event("reported", "last", text=last.text), last.at_ns)


def _lines_of(part: bytes, clock: Clock, first: int) -> Iterator[Line]:
    """The lines of a part of a log, the first of which has that number; of a bar its last form."""
    for number, text in enumerate(part.decode("utf-8", "replace").split("\n"), first):
        said = text.rstrip("\r").rpartition("\r")[2]
        yield peeled(number, _QUOTATION.sub("...", said), clock)


def _keep_silence(file: LogFile, clock: Clock, log: Log) -> None:
    """For how long other lines went on after the last step, by their own stamps."""
    if len(log.stamps) == 2 and file.rows[STEP_TABLE]:
        first, last = (clock.iso(stamp) for stamp in log.stamps)
        if first is not None and last is not None and last > first:
            row = {"kind": "silence", "code": "other_lines", "number": last - first}
            row |= {"line": log.lines, "attempt": file.attempt, "at_ns": last, "sort_ns": last}
            file.rows["log_events"].append(row)


# ------------------------------------------------------------------- writing


def _write(
    incident: Incident, table: str, job: str, log: LogFile, rows: Sequence[dict[str, Any]]
) -> None:
    if not rows:
        return
    types = {one.name: one.type for one in BY_NAME[table].columns}
    said = set().union(*rows) & types.keys()
    columns: dict[str, Any] = {
        name: [_kept(row.get(name), types[name]) for row in rows] for name in said
    }
    for name in ("node", "peer_host", "device", "process_group"):
        if name in columns:
            columns[name] = [value and str(value)[:_MOST_TEXT] for value in columns[name]]
    incident.append(table, {"job": job, "path": str(log.path), **columns})


def _kept(value: Any, kind: str) -> Any:
    """A value that fits its column; numbers that no counter reaches are unknown."""
    largest = _LARGEST if kind == "BIGINT" else _LARGEST_INTEGER
    return None if isinstance(value, int) and abs(value) > largest else value


def _write_places(logs: Sequence[LogFile], incident: Incident, job: str) -> None:
    """The world size, and the host and GPU of ranks, as far as lines state them."""
    events = [row for log in logs for row in log.rows["log_events"]]
    world = world_size(logs, events)
    if world is not None:
        incident.append("jobs", {"job": job, "world_size": [world]})
    reports = [row for log in logs for row in log.rows["watchdog_reports"]]
    places = places_of(events, reports, world)
    rows = ({"rank": rank, **place} for rank, place in places.items())
    incident.append_rows("ranks", rows, job=job)


def _write_recording(incident: Incident, job: str, log: LogFile) -> None:
    rows = sum(len(found) for found in log.rows.values())
    append_recording(
        incident,
        job,
        KIND,
        log.path,
        rows,
        log.problem,
        [log.note],
        rank=log.rank,
        written_ns=log.written_ns,
    )
