"""One collector or watch per folder: a second one is refused, and the error names the first."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from oncall.core.errors import UsageError

LOCK_NAME = "collector.lock"


class FolderLock:
    """Held from its creation until `release`, or until the process ends in any way."""

    def __init__(self, folder: Path, name: str = LOCK_NAME, who: str = "collector") -> None:
        """Lock a folder. Raises UsageError if another one has it, or it cannot be used."""
        path = folder / name
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(self._descriptor, 64).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise UsageError(
                f"{folder}: another {who} is running here: {holder or 'PID unknown'}"
            ) from error
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"PID {os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the folder."""
        os.close(self._descriptor)
