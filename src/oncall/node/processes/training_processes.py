"""Which processes of this node are ranks of which job: by their rings, else by what their launcher
set in their environment.

Only variables that configure evidence, and those of launchers, are read (`SETTINGS`); all others,
where secrets lie, are passed over.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from oncall.node.common.source import Instant
from oncall.node.rings.living_files import LivingRanks
from oncall.node.store.places import rings_dir

# Variables that say what a process records, and where.
SETTINGS = re.compile(
    r"TORCH_(?:FR|NCCL|CPP|DISTRIBUTED|SHOW|INCLUDE|WORKER_SERVER)\w*|TORCHELASTIC_ERROR_FILE"
    r"|NCCL_(?:DEBUG\w*|RAS_\w+|PROFILER\w*|INSPECTOR\w*|IBVERBS_LIB|VERSION)"
    r"|ONCALL_\w+|LD_PRELOAD|PYTHONFAULTHANDLER"
)
_JOB = ("ONCALL_JOB", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID")  # as the hooks name a job
_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_LAUNCHER = {*_JOB, *_RANK, "LOCAL_RANK"}
_PYTHON = re.compile(r"python[\d.]*|pypy\d?")
_MOST_BYTES = 1 << 20  # of an environment
_MOST_VALUE = 4_096
_MOST_PROCESSES = 1_024  # ranks of a node


@dataclass(frozen=True)
class TrainingProcess:
    """A rank's process, and those of its environment's variables that configure evidence; None: the
    environment may not be read from here."""

    pid: int
    job: str
    rank: int | None
    settings: Mapping[str, str] | None = None


@dataclass(frozen=True)
class _Candidate:
    pid: int
    parent: int
    environment: Mapping[str, str]

    @property
    def job(self) -> str:
        if slurm := self.environment.get("SLURM_JOB_ID"):
            slurm = f"slurm-{slurm}"
        named = self.environment.get("ONCALL_JOB") or slurm
        return named or self.environment.get("TORCHELASTIC_RUN_ID") or "unnamed"

    @property
    def rank(self) -> int | None:
        stated = (self.environment.get(name, "") for name in _RANK)
        return next((int(one) for one in stated if one.isdecimal() and len(one) < 8), None)


def training_processes(run: Path | None, proc: Path = Path("/proc")) -> list[TrainingProcess]:
    """The ranks' processes that live on this node and may be seen from here, by rank. `run`: the
    folder of the rings."""
    found = {one.pid: one for one in _by_environment(proc)}
    for recorded in _by_rings(run):
        known = found.get(recorded.pid)
        settings = known.settings if known else _settings(proc / str(recorded.pid))
        found[recorded.pid] = TrainingProcess(recorded.pid, recorded.job, recorded.rank, settings)
    ordered = sorted(found.values(), key=lambda one: (one.job, one.rank or 0, one.pid))
    return ordered[:_MOST_PROCESSES]


def one_process(pid: int, proc: Path = Path("/proc")) -> TrainingProcess | None:
    """The process with that number; None if there is none."""
    if not (proc / str(pid)).is_dir():
        return None
    candidate = _Candidate(pid, 0, _environment(proc / str(pid)) or {})
    return TrainingProcess(pid, candidate.job, candidate.rank, _settings(proc / str(pid)))


def settings_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Those of the variables that configure evidence."""
    return {
        name: value[:_MOST_VALUE] for name, value in environment.items() if SETTINGS.fullmatch(name)
    }


def _settings(folder: Path) -> dict[str, str] | None:
    environment = _environment(folder)
    return None if environment is None else settings_of(environment)


def _by_rings(run: Path | None) -> list[TrainingProcess]:
    if run is None or not rings_dir(run).is_dir():
        return []
    ranks = LivingRanks(rings_dir(run))
    try:
        now = Instant(time.time_ns(), time.monotonic_ns())
        return [TrainingProcess(one.pid, one.job, one.rank) for one in ranks.now(now)]
    finally:
        ranks.close()


def _by_environment(proc: Path) -> Iterator[TrainingProcess]:
    """The outermost Python process of each rank. A launcher has a rank's variables as well, but
    its children have a local rank."""
    candidates = {one.pid: one for one in _candidates(proc)}
    launchers = {
        above.pid
        for one in candidates.values()
        if "LOCAL_RANK" in one.environment
        for above in _above(one, candidates)
        if "LOCAL_RANK" not in above.environment
    }
    for one in candidates.values():
        is_child = any(
            (above.rank, above.job) == (one.rank, one.job) and above.pid not in launchers
            for above in _above(one, candidates)
        )
        if one.pid not in launchers and not is_child:
            yield TrainingProcess(one.pid, one.job, one.rank, settings_of(one.environment))


def _above(one: _Candidate, candidates: Mapping[int, _Candidate]) -> Iterator[_Candidate]:
    """Its parents, as far as they are candidates."""
    seen = {one.pid}
    while (above := candidates.get(one.parent)) is not None and above.pid not in seen:
        seen.add(above.pid)
        yield above
        one = above


def _candidates(proc: Path) -> Iterator[_Candidate]:
    """Python processes that have a rank."""
    for folder in proc.iterdir():
        if folder.name.isdecimal() and _is_python(folder):
            one = _Candidate(int(folder.name), _parent(folder), _environment(folder) or {})
            if one.rank is not None:
                yield one


def _is_python(folder: Path) -> bool:
    names: Sequence[str] = ()
    with suppress(OSError):
        arguments = (folder / "cmdline").read_bytes()[:_MOST_VALUE].split(b"\0")
        names = [arguments[0].decode(errors="replace")]
        names = [*names, os.readlink(folder / "exe")]  # noqa: PTH115 (may be `... (deleted)`)
    return any(_PYTHON.match(name.rpartition("/")[2]) for name in names)


def _parent(folder: Path) -> int:
    try:
        return int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def _environment(folder: Path) -> dict[str, str] | None:
    """What a launcher set for a process that concerns us; None where it may not be read."""
    try:
        content = (folder / "environ").read_bytes()[:_MOST_BYTES]
    except OSError:
        return None
    pairs = (
        one.partition("=") for one in content.decode(errors="replace").split("\0") if "=" in one
    )
    return {
        name: value for name, _, value in pairs if name in _LAUNCHER or SETTINGS.fullmatch(name)
    }
