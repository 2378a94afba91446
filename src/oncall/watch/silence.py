"""A log that no longer grows: whether its job has ended, hangs, or may have done either."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from oncall.core.errors import MissingEvidence, RelationFailed
from oncall.core.json_text import json_of
from oncall.core.units import format_duration
from oncall.evidence.incident import Incident
from oncall.watch.look import Trouble

# Whether the processes that write a log still run, where they are on this machine.

Writers = Literal["run", "gone", "unknown"]
_STARTED_FIELD = 19  # of /proc/PID/stat, from the process's state on


class LogWriters:
    """The processes that were seen to have the logs open for writing: each PID, and when it
    started. They are kept in the watch's folder, as a watch that starts anew may come too late to
    see them. Those of other machines, and of users whose processes cannot be read, are not seen."""

    def __init__(self, folder: Path, proc: Path = Path("/proc")) -> None:
        self._kept = folder / "writers.json"
        self._proc = proc
        self._seen: dict[int, int] = {}
        with suppress(OSError, ValueError, AttributeError):
            found = json_of(self._kept.read_text(encoding="utf-8"))
            self._seen = {int(pid): int(ticks) for pid, ticks in found.items()}

    def look(self, logs: Collection[Path]) -> None:
        """Note who writes the logs, unless one of those that did still runs."""
        if not any(self._started(pid) == ticks for pid, ticks in self._seen.items()):
            self._note(logs)

    def now(self, logs: Collection[Path]) -> Writers:
        """Whether a process has one of the logs open for writing; `gone` if only former ones had,
        and `unknown` if none ever was seen."""
        if self._note(logs):
            return "run"
        return "gone" if self._seen else "unknown"

    def _note(self, logs: Collection[Path]) -> bool:
        found = {pid: ticks for pid in self._writing(logs) if (ticks := self._started(pid))}
        if found and found != self._seen:
            self._seen = found
            with suppress(OSError):
                self._kept.write_text(json.dumps(found), encoding="utf-8")
        return bool(found)

    def _writing(self, logs: Collection[Path]) -> Iterator[int]:
        """The processes that have one of these files open for writing."""
        files = set()
        for log in logs:
            with suppress(OSError):
                state = log.stat()
                files.add((state.st_dev, state.st_ino))
        for process in self._proc.glob("[0-9]*"):
            with suppress(OSError):
                if any(_is_open(entry, files) for entry in (process / "fd").iterdir()):
                    yield int(process.name)

    def _started(self, pid: int) -> int:
        """In ticks since boot; 0 if there is no such process, or it is dead and not yet reaped."""
        try:
            stat = (self._proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return 0
        fields = stat.rpartition(")")[2].split()
        return 0 if fields[0] in ("Z", "X") else int(fields[_STARTED_FIELD])


def _is_open(entry: Path, files: Collection[tuple[int, int]]) -> bool:
    """Whether /proc/PID/fd/N is one of the files, open for writing. Raises OSError."""
    state = entry.stat()
    if (state.st_dev, state.st_ino) not in files:
        return False
    return entry.lstat().st_mode & 0o200 != 0  # the link's mode is that of the descriptor


@dataclass(frozen=True)
class Silence:
    """How long nothing was written (ns), and whether processes of this machine write the logs."""

    lasted_ns: int
    writers: Writers


def how_it_ended(incident: Incident, silence: Silence) -> str:
    """How it is known that the job is done; empty if it is not known.

    A log rarely says that a process has ended in order. One that says that training is done does,
    and so do its writers, if they are gone and the log states no steps that are still to come.
    """
    progress = _progress(incident)
    if progress.finished:
        return "its log says that it is done"
    if silence.writers == "gone" and progress.of is None:
        return "the processes that wrote its log are gone, and the log shows no fault"
    return ""


def silent_trouble(incident: Incident, silence: Silence) -> Trouble:
    """That nothing was written for too long, of a job that is not known to be done."""
    nothing = f"nothing has been written for {format_duration(silence.lasted_ns)}"
    sentence = {
        "run": f"Hangs: {nothing}, and the processes that write the log still run",
        "gone": f"Ended early: {nothing}, and the processes that wrote the log are gone",
        "unknown": f"Ended or hangs: {nothing}",
    }[silence.writers]
    last = _progress(incident)
    if last.step is not None:
        sentence += f"; last: step {last.step:,}" + (f" of {last.of:,}" if last.of else "")
    return Trouble("watch", "QUIET", "", "critical", "hang", sentence)


@dataclass(frozen=True)
class _Progress:
    finished: bool = False
    step: int | None = None
    of: int | None = None


def _progress(incident: Incident) -> _Progress:
    """How far the job came by its log."""
    try:
        incident.require(["log_progress"])
    except (MissingEvidence, RelationFailed):
        return _Progress()
    rows = incident.con.execute(
        "SELECT bool_or(finished), max(last_iteration), max(of_iterations) FROM log_progress"
    ).fetchall()
    ((finished, step, of),) = rows
    return _Progress(bool(finished), step, of)
