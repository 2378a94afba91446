"""Have PyTorch's Flight Recorder write what it holds, while the job lives: by each rank's pipe.

A process with TORCH_NCCL_DEBUG_INFO_PIPE_FILE=PREFIX listens at `PREFIX<rank>.pipe`; whatever is
written there makes it dump to `FILE<rank>` within a second or so (ProcessGroupNCCL.cpp, PyTorch
2.4). Nothing is written but to a pipe that the process's own user made and that somebody reads.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oncall.node.processes.training_processes import TrainingProcess

PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_LISTENS_NOT = "nobody reads its pipe: the process has no NCCL process group, or is ending"


@dataclass(frozen=True)
class DumpAsked:
    """A process that was asked to dump: where to, if its environment names it; or why not."""

    rank: int | None
    files: str = ""  # the path without the rank
    problem: str = ""


def ask_for_dumps(processes: Sequence[TrainingProcess]) -> list[DumpAsked]:
    """Write to the pipe of each process; returns at once, and never raises."""
    return list(map(_ask, processes))


def _ask(process: TrainingProcess) -> DumpAsked:
    settings = process.settings
    if settings is None:
        return DumpAsked(process.rank, problem="its environment may not be read from here")
    prefix = settings.get(PIPE)
    if not prefix or not prefix.startswith("/") or process.rank is None:
        return DumpAsked(process.rank, problem=f"{PIPE} is not set (oncall env prints it)")
    files = next((settings[name] for name in FILES if settings.get(name)), "")
    # As the process sees it: it may live in a container.
    seen = Path("/proc", str(process.pid))
    path = seen / "root" / f"{prefix}{process.rank}.pipe".lstrip("/")
    try:
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        why = _LISTENS_NOT if error.errno == errno.ENXIO else f"its pipe: {error.strerror}"
        return DumpAsked(process.rank, problem=why)
    try:
        found = os.fstat(pipe)
        if not stat.S_ISFIFO(found.st_mode) or found.st_uid != seen.stat().st_uid:
            return DumpAsked(process.rank, problem="what lies at its pipe is not its own")
        os.write(pipe, b"1\n")
    except OSError as error:
        return DumpAsked(process.rank, problem=f"its pipe: {error.strerror}")
    finally:
        os.close(pipe)
    return DumpAsked(process.rank, files)
