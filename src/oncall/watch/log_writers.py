"""Whether the processes that write a log still run, where they are on this machine."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

from oncall.core.json_text import json_of

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
