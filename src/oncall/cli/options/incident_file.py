"""Files of saved incidents: where one may be written."""

from __future__ import annotations

import os
from pathlib import Path

from oncall.core.errors import UsageError
from oncall.use_case.recordings import is_incident


def check_target(option: str, save: Path) -> None:
    """Raise UsageError for a path that cannot be written, before anything is read."""
    if save.suffix != ".oncall":
        raise UsageError(f"{option} {save}: the file name must end in .oncall")
    if not save.parent.is_dir():
        raise UsageError(f"{option} {save}: no such folder: {save.parent}")
    if not os.access(save.parent, os.W_OK):
        raise UsageError(f"{option} {save}: no permission to write in {save.parent}")
    if save.is_dir():
        raise UsageError(f"{option} {save}: is a folder; give a file in it")
    if save.exists() and not is_incident(save):
        raise UsageError(f"{option} {save}: exists and is not an incident file; not overwritten")
