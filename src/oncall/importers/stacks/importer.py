"""Files of stacks: one a process, one a node or one of a whole job.

Whose they are is in a heading, in the file's name or in py-spy's own lines; what nothing says is
NULL, and such processes are distinguished by file and thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from oncall.core.errors import Unreadable
from oncall.evidence.incident import Incident
from oncall.importers import files
from oncall.importers.documents import check_json
from oncall.importers.recordings import append_recording
from oncall.importers.stacks import documents, places, text
from oncall.importers.stacks.dump import Place, Process, write_ranks, write_stacks

KIND = "stacks"
OF_ONE_JOB = True  # in several folders: one a node

_LEAST_SHARE = 0.5  # of a file's lines that belong to stacks; a log that holds some is a log
_MEMORY_FACTOR = 8.0  # bytes of memory that parsing takes for each byte of text
_MOST_PROCESSES = 100_000


def recognises(path: Path, head: bytes) -> bool:  # noqa: ARG001 - content alone decides
    """Whether a file that starts with `head` holds stacks, and little else."""
    # A process that crashed leaves its stacks in its log, below what ended it.
    if b"\0" in head or b"Fatal Python error" in head or not _may_be(head):
        return False
    start = head.decode("utf-8", "replace")
    if documents.is_spy_json(start):
        return True
    found = text.parse(start)
    if found.processes:
        return found.share >= _LEAST_SHARE and not found.is_log
    return documents.is_folded(start)


def _may_be(head: bytes) -> bool:
    """A cheap look, as every file is offered."""
    marks = (b"Thread ", b"Traceback for thread", b'"thread_id"', b"most recent call", b";")
    return any(mark in head for mark in marks)


def read(paths: Sequence[Path], incident: Incident, job: str) -> None:
    """Add the stacks in `paths` as evidence of `job`. A file without any becomes a recording with
    its problem."""
    found: dict[Path, list[Process]] = {}
    problems: dict[Path, str | None] = {}
    written: dict[Path, int | None] = {}
    for path in sorted(paths):
        found[path], written[path] = [], None
        try:
            written[path] = files.modified_ns(path)
            found[path] = _read(path)[:_MOST_PROCESSES]
            problems[path] = None if found[path] else "holds no stack"
        except Unreadable as error:
            problems[path] = str(error)
    _number(found)
    for path, processes in found.items():
        write_stacks(incident, job, processes, path=str(path))
        write_ranks(incident, job, processes)
        append_recording(
            incident,
            job,
            KIND,
            path,
            sum(len(process.threads) for process in processes),
            problems[path],
            rank=processes[0].place.rank if len(processes) == 1 else None,
            written_ns=written[path],
        )


def _number(found: Mapping[Path, list[Process]]) -> None:
    """Give the processes ranks where nothing names any: on one host their local ranks are these,
    else the numbers of their files, counted from 0."""
    processes = [process for each in found.values() for process in each]
    if any(process.place.rank is not None for process in processes):
        return
    files_alone = all(len(each) == 1 for each in found.values())
    numbers = [places.number_of(path.name) for path in found] if files_alone else []
    local = [process.place.local_rank for process in processes]
    nodes, pids = ({getattr(one.place, name) for one in processes} for name in ("node", "pid"))
    for ranks in (local, numbers if 0 in numbers else []):
        distinct = len(set(ranks)) == len(pids - {None}) == len(processes)
        if distinct and None not in ranks and len(nodes) == 1:
            for process, rank in zip(processes, ranks, strict=True):
                process.place = replace(process.place, rank=rank)
            return


def _read(path: Path) -> list[Process]:
    words = files.text(path, _MEMORY_FACTOR)
    if documents.is_spy_json(words[: 1 << 16]):
        check_json(words)
        processes = documents.from_json(words)
    else:
        processes = list(text.parse(words).processes) or documents.from_folded(words)
    around = places.file_place(path.name)
    # A name with a number of a process is of one; the host and the rank of several may be shared.
    alone = len(processes) == 1
    shared = around if alone else Place(node=around.node)
    return [process.at(shared) for process in processes]
