"""What processes that are not recorded say of it: the notes of the hooks in the rings' folder.

A note is a link that leads nowhere, `<pid>-<started_ns>.<kind>.unrecorded`, whose text is the
reason (hooks/ring_unrecorded.h). It is read, and never followed.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from oncall.core.units import NS_PER_S, format_bytes

SUFFIX = ".unrecorded"
_NAME = re.compile(r"(\d{1,10})-(\d{1,19})\.(ring|verbs)\.unrecorded")
_MOST_READ = 1024  # notes; anybody who may record may leave some
_MOST_NAMED = 4  # processes in a line
_UNSEEN_KEPT_S = 3600  # a process in a container cannot be seen to end: its note holds an hour
_STARTED_SLACK_NS = NS_PER_S  # of a process's start in /proc, which counts ticks from boot


@dataclass(frozen=True)
class Unrecorded:
    """A process that is not recorded, or was not, and why."""

    path: Path
    pid: int
    kind: str  # ring or verbs
    reason: str
    is_current: bool  # its process lives, or may live where it cannot be seen


def unrecorded(folder: Path) -> list[Unrecorded]:
    """The notes in `folder`; none where it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            links = (entry for entry in entries if entry.name.endswith(SUFFIX))
            found = [_read(folder / entry.name) for entry in islice(links, _MOST_READ)]
    except OSError:
        return []
    return sorted((note for note in found if note), key=lambda note: note.path)


def remove_outdated(notes: Sequence[Unrecorded]) -> None:
    """Remove the notes of processes that are gone."""
    for note in notes:
        if not note.is_current:
            with suppress(OSError):
                note.path.unlink()


def in_words(notes: Sequence[Unrecorded]) -> Iterator[str]:
    """A line for each reason: which processes are not recorded for it."""
    by_reason: dict[tuple[str, str], list[int]] = defaultdict(list)
    for note in notes:
        if note.is_current:
            by_reason[note.kind, note.reason].append(note.pid)
    for (kind, reason), pids in by_reason.items():
        what = "not recorded" if kind == "ring" else "not recorded at its RDMA NICs"
        named = ", ".join(map(str, pids[:_MOST_NAMED]))
        more = f" and {len(pids) - _MOST_NAMED} more" if len(pids) > _MOST_NAMED else ""
        who = f"process {named} is" if len(pids) == 1 else f"processes {named}{more} are"
        yield f"{who} {what}: {reason}"


def _read(path: Path) -> Unrecorded | None:
    name = _NAME.fullmatch(path.name)
    try:
        reason = os.readlink(path)  # noqa: PTH115 (a Path would tidy up the text)
        left_s = path.lstat().st_mtime
    except OSError:
        return None  # no link, or gone
    if name is None:
        return None
    pid, started_ns = int(name[1]), int(name[2])
    lives = _started_before(pid, started_ns)
    if lives is None:
        lives = time.time() - left_s < _UNSEEN_KEPT_S
    return Unrecorded(path, pid, name[3], reason, lives)


def _started_before(pid: int, left_ns: int) -> bool | None:
    """Whether a process of that number is the one that left a note then; None: there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        since_boot_ns = int(fields[19]) * NS_PER_S // os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return None
    boot_ns = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return boot_ns + since_boot_ns <= left_ns + _STARTED_SLACK_NS


# Whether another process, of any user, could make its ring: said before a job is missed.

RING_BYTES = (
    5_246_976  # hooks/ring_file.c with its default of 65,536 records; reserved when it is made
)


def why_no_ring(folder: Path) -> str | None:
    """What keeps new processes from recording, or None: the folder is missing, read-only or full.

    Those that record already go on: the room of their rings is reserved.
    """
    try:
        state = os.statvfs(folder)
    except OSError as error:
        return f"{folder}: {error.strerror}; no training process can be recorded"
    if state.f_flag & os.ST_RDONLY:
        return f"{folder}: read-only; no further process can be recorded"
    if state.f_bavail * state.f_frsize < RING_BYTES:
        return (
            f"{folder}: full, less than the {format_bytes(RING_BYTES)} of a ring are free; "
            "no further process can be recorded"
        )
    return None


OPEN_TO_ALL = 0o1777  # everybody may make a ring; nobody but its owner may take it away


def open_to_all(folder: Path) -> bool:
    """Let processes of every user record in `folder`, as the first job of a node may have made it
    for its own user alone. Whether something was changed. Raises OSError if it cannot be."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        state = os.fstat(descriptor)
        is_ours = state.st_uid == os.geteuid()
        if is_ours and stat.S_IMODE(state.st_mode) == OPEN_TO_ALL:
            return False
        if not is_ours:  # whoever owns a folder may replace what others leave in it
            os.fchown(descriptor, os.geteuid(), -1)
        os.fchmod(descriptor, OPEN_TO_ALL)
        return True
    finally:
        os.close(descriptor)


def who_is_not_recorded(folder: Path) -> str | None:
    """Which users' processes cannot make a ring in `folder`, and what to do; None if all can, or
    if it is this user's own, who collects for nobody else."""
    try:
        state = folder.stat()
    except OSError:
        return None  # `why_no_ring` says so
    mode = stat.S_IMODE(state.st_mode)
    if mode & OPEN_TO_ALL == OPEN_TO_ALL or state.st_uid == os.geteuid() != 0:
        return None
    return (
        f"{folder}: of user {state.st_uid} with mode {mode:04o}: jobs of other users are not "
        f"recorded, or not safe from one another; chmod 1777 {folder}, or restart the collector "
        "as root, which does that"
    )
