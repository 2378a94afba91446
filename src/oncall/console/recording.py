"""Snapshots of a recording: a saved incident, or whatever the importers read.

The whole evidence is one incident file, read in place: each snapshot narrows views of it.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from oncall.console.cancellation import Lane, Task
from oncall.console.source import Evidence, Source
from oncall.core import room
from oncall.core.errors import BadInput, SeveralJobs, UsageError
from oncall.evidence import window
from oncall.evidence.incident import Incident
from oncall.importers import detect
from oncall.importers.so_far import ReadSoFar
from oncall.use_case.recordings import is_incident, saved_incident
from oncall.views.snapshot import JobLine, Moment, job_line

SUFFIX = ".oncall"
# What is computed may take so many times the file in memory, and the rest goes to disk: the figures
# of 4,096 ranks in docs/performance.md are as quick as without a limit.
_TABLES = 4


class Recording(Source):
    """A source whose evidence is complete."""

    def __init__(self, paths: Sequence[Path], job: str | None = None) -> None:
        """Nothing is read before the first question, nor of recordings of several jobs before one
        is chosen. Raises UsageError for several saved incidents.
        """
        self.title = ", ".join(path.name or str(path) for path in paths)
        self._origin = f"recording {', '.join(map(str, paths))}"
        self._job = job
        self._paths = paths
        self._several: SeveralJobs | None = None  # of recordings that are read job by job
        self._opened: Incident | None = None  # a copy that nobody has narrowed yet
        self._believed: frozenset[str] = frozenset()  # tables without an impossible value
        self._opening = threading.Lock()
        self._read: dict[str, Path] = {}  # of several jobs: those that were chosen
        self._so_far: ReadSoFar | None = None  # while it is read
        self._spans: dict[str | None, tuple[int | None, int | None]] = {}
        with contextlib.ExitStack() as stack:
            saved = saved_incident(paths)
            self._unread = saved is None
            if saved is None:
                folder = tempfile.TemporaryDirectory(prefix="oncall-", ignore_cleanup_errors=True)
                saved = Path(stack.enter_context(folder), f"evidence{SUFFIX}")
            else:
                self._origin = f"recording {saved}{_left_out(paths, saved)}"
            self._file = saved
            self._stack = stack.pop_all()

    def _read_once(self) -> None:
        """Read the recordings, unless that is done. Raises BadInput, UsageError."""
        if not self._unread:
            return
        try:
            self._import(self._job, self._file)
        except SeveralJobs as error:
            if self._job is not None:
                raise
            self._several = error
        self._unread = False

    def _import(self, job: str | None, file: Path) -> None:
        for path in self._paths:
            if not path.exists():
                raise BadInput(str(path), "no such file or folder")
        so_far = self._so_far = ReadSoFar()
        try:
            with Incident.empty() as incident:
                detect.load(self._paths, incident, job, so_far=so_far)
                incident.save(file)
        finally:
            self._so_far = None

    def progress(self, lane: Lane) -> str:
        so_far = self._so_far
        return so_far.phrase() if so_far is not None and lane == "snapshots" else ""

    def jobs(self, task: Task) -> tuple[JobLine, ...]:
        self._read_once()
        if self._several is not None:
            return tuple(JobLine(job, 0, 0, None, "recorded") for job in self._several.jobs)
        incident = self._copy()
        with task.computing(incident):
            each = (job_line(incident, job) for job in window.jobs(incident.con))
            lines = {line.job: line for line in each}  # names may be alike as a terminal shows them
        # Copying takes longest: the first snapshot goes on with it.
        self._opened = incident
        return tuple(lines.values())

    def _copy(self) -> Incident:
        with self._opening:  # a judgement may begin while the next snapshot is read
            opened, self._opened = self._opened, None
        if opened is not None:
            return opened
        most_bytes = min(_TABLES * self._file.stat().st_size, room.quarter_bytes())
        return Incident.in_place(self._file, self._believed, most_bytes)

    def choose(self, job: str) -> None:
        if not self._unread and self._several is not None and job != self._job:
            self._file, self._believed = self._file_of(job), frozenset()
            self._drop_opened()
        self._job = job

    def look(self, job: str, task: Task) -> Evidence:
        self._read_once()
        incident = Incident.in_place(self._file_of(job))
        with task.computing(incident):
            window.keep_job(incident.con, job)
            incident.disbelieve()
            first_ns, last_ns = window.span(incident.con)
        return Evidence(incident, job, Moment(last_ns, first_ns, last_ns), origin=self._origin)

    def _file_of(self, job: str) -> Path:
        """The incident file that holds a job; of recordings of several it is made once."""
        if self._several is None:
            return self._file
        if job not in self._read:
            file = self._file.with_name(f"{len(self._read)}{SUFFIX}")
            self._import(job, file)
            self._read[job] = file
        return self._read[job]

    def at(self, at_ns: int | None, task: Task) -> Evidence:
        task.check()
        self._read_once()
        if self._several is not None and self._job is None:
            raise UsageError(str(self._several))
        incident = self._copy()
        with task.computing(incident):
            job = window.keep_job(incident.con, self._job)
            if job not in self._spans:
                self._spans[job] = window.span(incident.con)
                incident.disbelieve()
                self._believed |= incident.believed
            first_ns, last_ns = self._spans[job]
            moment = Moment(last_ns, first_ns, last_ns)
            if at_ns is not None and first_ns is not None and last_ns is not None:
                moment = replace(moment, at_ns=min(max(at_ns, first_ns), last_ns))
                if moment.at_ns is not None and moment.at_ns < last_ns:
                    window.cut_after(incident.con, moment.at_ns)
        return Evidence(incident, job, moment, origin=self._origin)

    def save(self, path: Path) -> None:
        self._read_once()
        if self._several is not None and self._job is None:
            raise UsageError(str(self._several))
        copy_incident(self._file, path)

    def close(self) -> None:
        self._drop_opened()
        self._stack.close()

    def _drop_opened(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None


def _left_out(paths: Sequence[Path], saved: Path) -> str:
    """What lies beside a saved incident in the folder that was named, and is not read."""
    others = sum(one != saved for path in paths if path.is_dir() for one in path.iterdir())
    return f"; not read: {others} more in that folder" if others else ""


def copy_incident(file: Path, path: Path) -> None:
    """Copy an incident file in one step. Raises UsageError if that cannot be."""
    if path.suffix != SUFFIX:
        raise UsageError(f"{path}: the name of an incident file ends in {SUFFIX}")
    if path.exists() and not is_incident(path):
        raise UsageError(f"{path} exists and is not an incident file, so it was not overwritten")
    try:
        if path.exists() and path.samefile(file):
            return
        with tempfile.TemporaryDirectory(
            prefix=f".{path.name}.", dir=path.parent, ignore_cleanup_errors=True
        ) as folder:
            part = Path(folder, "incident")
            shutil.copyfile(file, part)
            part.replace(path)
    except OSError as error:
        raise UsageError(f"cannot save {path}: {error.strerror}") from error
