"""Whether another training process, of any user, could make its ring in a folder: said before a job
is missed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from oncall.core.units import format_bytes

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
