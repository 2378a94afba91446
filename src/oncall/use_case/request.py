"""From a request to an answer: the evidence, read or asked for, and what it says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from oncall.core.diagnosis import Diagnosis
from oncall.core.errors import OncallError
from oncall.evidence.incident import Incident
from oncall.evidence.job_configuration import apply_training
from oncall.importers.so_far import ReadSoFar
from oncall.rules.language.rulebook import names_today
from oncall.use_case.diagnose import diagnose
from oncall.use_case.listener import SILENT, Listener
from oncall.use_case.recordings import narrow, read_evidence, shards_in

if TYPE_CHECKING:
    from oncall.core.scheduler import Scheduler
    from oncall.core.training import Training
    from oncall.rules.site import Rulebooks


@dataclass(frozen=True)
class Recorded:
    """Recordings, or folders of shards. `risk_the_job`: RAS is asked even where that may crash
    it."""

    paths: tuple[str, ...]
    memory_bytes: int | None = None
    risk_the_job: bool = False


@dataclass(frozen=True)
class OfNodes:
    """What running nodes hold."""

    hosts: str | None = None
    inventory: Path | None = None


@dataclass(frozen=True)
class Request:
    """What to diagnose: the `job` (None: the only one), of it the window `since`, `at` as typed.
    `archive`: where former faults lie, None for the configured place. `save`: where the whole
    evidence is written before."""

    evidence: Recorded | OfNodes
    rulebooks: Rulebooks
    job: str | None = None
    since: str | None = None
    at: str | None = None
    training: Training | None = None
    archive: str | None = None
    save: Path | None = None
    min_coverage: float = 0.9


@contextmanager
def answered(request: Request, listener: Listener = SILENT) -> Iterator[tuple[Incident, Diagnosis]]:
    """The evidence, until it is left, and its diagnosis. Raises OncallError."""
    incident, request, scheduler = _evidence(request, listener)
    with incident, listener.interruptible(incident.con):
        if request.training is not None:
            for misfit in apply_training(incident, request.training, request.job):
                listener.warns(f"--training: {misfit}")
        _recall(incident, request, listener)
        if request.save is not None:
            incident.save(request.save)
        narrow(incident, request.since, request.at)
        diagnosis = diagnose(
            incident,
            request.rulebooks.in_force,
            request.job,
            min_coverage=request.min_coverage,
            set_aside=request.rulebooks.skipped,
            scheduler=scheduler,
            progress=listener.finds,
        )
        yield incident, diagnosis


def _evidence(request: Request, listener: Listener) -> tuple[Incident, Request, Scheduler | None]:
    """The evidence; what is still to be done with it; and the scheduler that placed the job."""
    wanted, shards = request.evidence, {}
    if isinstance(wanted, Recorded):
        shards = shards_in(wanted.paths)
        if not shards:
            so_far = ReadSoFar()
            listener.reads(" ".join(wanted.paths), so_far)
            incident = read_evidence(
                wanted.paths, request.job, wanted.risk_the_job, wanted.memory_bytes, so_far
            )
            return incident, request, None
    from oncall.use_case.gathering import Wanted, gather_fleet, read_shards

    span, books = Wanted(request.job, request.since, request.at), request.rulebooks.in_force
    if isinstance(wanted, Recorded):
        gathered = read_shards(shards, span, books, listener)
    else:
        gathered = gather_fleet(span, wanted.hosts, wanted.inventory, books, listener)
    # The nodes sent the window alone, as far as it is known.
    rest = replace(request, job=gathered.job, since=None)
    return gathered.incident, rest, gathered.scheduler


def _recall(incident: Incident, request: Request, listener: Listener) -> None:
    """Add what the archive has, if one is given or configured, to the evidence. A saved incident
    keeps what it was saved with unless an archive is given. An archive that cannot be read is
    reported: it costs no diagnosis."""
    from oncall.archive.configuration import read_configuration

    where = request.archive
    try:
        known = not incident.is_empty("archived_findings")
        if where is None and (known or read_configuration().place is None):
            return
        from oncall.archive.history import former_faults, recall
        from oncall.archive.store import chosen_archive

        archive, cluster = chosen_archive(where)
        names = names_today(request.rulebooks.in_force)
        recall(incident, former_faults(archive, cluster, names))
    except OncallError as error:
        listener.warns(f"without the archive: {error}")
    else:
        for phrase in archive.damage_phrases():
            listener.warns(phrase)
