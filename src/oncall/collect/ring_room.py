"""Whether another training process could make its ring in a folder: said before a job is missed."""

from __future__ import annotations

import os
from pathlib import Path

from oncall.units import format_bytes

RING_BYTES = 5_246_976  # hooks/ring_file.c with its usual 65,536 records; reserved when it is made


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
