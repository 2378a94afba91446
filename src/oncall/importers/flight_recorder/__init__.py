"""PyTorch Flight Recorder dumps: pickle and JSON, formats 2.4 to 2.10, NCCL and gloo.

The file name of a dump gives the rank. A dump does not say when it was written: `ops.observed_ns`
is set where an operation began or ended so shortly before that only the dump discovered it. A rank
without a dump is known only as a member of groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oncall.importers.flight_recorder.file import looks_like_dump

if TYPE_CHECKING:
    from oncall.evidence.incident import Incident

KIND = "flight_recorder"
IDENTITY = "oncall.importers.flight_recorder.identity"


def recognises(path: Path, head: bytes) -> bool:  # noqa: ARG001 - a dump's name says nothing
    """Whether the first bytes of a file are those of a Flight Recorder dump."""
    return looks_like_dump(head)


def read(paths: Sequence[Path], incident: Incident, job: str) -> None:
    """Add the dumps of one job, one file a rank, to the incident.

    Fills jobs, ranks, comms, ops, launches, stacks and recordings. A damaged file becomes a
    recording with its problem. Raises BadInput if two files are of one rank, or if files
    contradict each other about the job.
    """
    # Reading processes import this package too, and need no database.
    from oncall.importers.flight_recorder.importer import import_dumps

    import_dumps(paths, incident, job)
