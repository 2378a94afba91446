"""The table of importers: every kind of recording that oncall reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from oncall.evidence.incident import Incident

# Module, and what it reads in an engineer's words. Content decides, in this order: a profiler's
# trace, too, lists process groups as a Flight Recorder dump does.
_TABLE = {
    "oncall.importers.kineto": "PyTorch profiler traces (Kineto, JSON)",
    "oncall.importers.flight_recorder": "PyTorch Flight Recorder dumps (pickle or JSON)",
    "oncall.importers.ras.importer": "NCCL RAS output (text or JSON, or ras://HOST:PORT)",
    "oncall.importers.ras.diagnostics": "reports of NCCL's diagnostics (NCCL DIAG)",
    "oncall.importers.xpu_timer": "metrics of DLRover's xpu_timer",
    "oncall.importers.clog": "logs of torchcomms' clog",
    "oncall.importers.nccl_inspector": "NCCL Inspector JSON lines, or OTLP",
    "oncall.importers.megatrace.importer": "Megatrace logs",
    "oncall.importers.straggler.importer": "straggler-analysis traces (CSV or Parquet)",
    "oncall.importers.switches.simulation": "files of the Vedrfolnir network simulator",
    "oncall.importers.switches.tables": "switch tables (CSV or Parquet)",
    "oncall.importers.switches.port_counters": "counters of ports (SONiC, ethtool)",
    "oncall.importers.host_text.importer": "text of hosts (dmesg, nvidia-smi, ibstat, ...)",
    "oncall.importers.stacks.importer": "stacks (py-spy, faulthandler, gdb, pystack)",
    "oncall.importers.logs.importer": "job logs (PyTorch, NCCL, Slurm, ... as text)",
}
# These take `risk_the_job`, too: whether a live job is asked even where asking may end it.
ASKING_LIVE_JOBS = ("nccl_ras",)
READABLE = ", ".join(_TABLE.values())


def reads(importer: Importer) -> str:
    """What it reads, in an engineer's words."""
    return next(words for name, words in _TABLE.items() if _importer(name) is importer)


class Importer(Protocol):
    """A module that turns one kind of recording into evidence.

    `OF_ONE_JOB`: recordings of several folders are parts of one job. Else `IDENTITY` may name a
    module with `identify(paths)` and `relate(one, other)`: are they, or copies of each other?
    """

    KIND: str

    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether a file whose content starts with `head` is of this kind."""

    def read(self, paths: Sequence[Path], incident: Incident, job: str, **options: bool) -> None:
        """Add the evidence in `paths`, recordings of one job."""


def importers() -> Iterator[Importer]:
    """All importers in order, each imported when it is its turn: the first to recognise a file
    spares the others, which take as long as reading a small recording."""
    return map(_importer, _TABLE)


@cache
def _importer(name: str) -> Importer:
    return cast(Importer, import_module(name))
