"""PyTorch profiler traces (Kineto, Chrome JSON, plain or gzipped): one file a rank and window.

The CPU side (`record_param_comms`) records the call, its group and time; the NCCL kernel linked to
it records when the device ran it. A trace covers only some steps.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncall.evidence.incident import Incident

KIND = "kineto"
IDENTITY = "oncall.importers.kineto.identity"

# Kineto opens with schemaVersion; what lies between it and the events may be of any length. Tools
# that edit traces leave the events alone.
_OPENING = re.compile(rb'\s*\{\s*"schemaVersion"\s*:')
_EVENTS = re.compile(rb'\s*(?:\{(?s:.*)"traceEvents"\s*:\s*)?\[')
_OF_PROFILER = re.compile(
    rb'"(?:deviceProperties|baseTimeNanoseconds|distributedInfo|record_shapes|with_stack)"\s*:'
    rb'|"cat"\s*:\s*"(?:cpu_op|cuda_runtime|user_annotation)"'
)


def recognises(path: Path, head: bytes) -> bool:  # noqa: ARG001 - content alone decides
    """Whether the first bytes of a file are those of a profiler trace."""
    opening = _OPENING.match(head) or _EVENTS.match(head)
    return bool(opening and _OF_PROFILER.search(head))


def read(paths: Sequence[Path], incident: Incident, job: str) -> None:
    """Add the traces of one job as evidence.

    Fills jobs, ranks, comms, ops, profiled_work, stage_tasks (where annotations name tasks) and
    recordings. A torn file counts for what was read, with its problem. Raises BadInput if traces
    contradict each other about the job.
    """
    from oncall.importers.kineto.importer import import_traces

    import_traces(paths, incident, job)
