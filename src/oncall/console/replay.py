"""The session on any evidence: snapshots at the instants asked for, and queries about the last one.

source.at(instant)  ->  an incident of its own  ->  diagnose  ->  Snapshot
                        it stays open for questions until the next snapshot takes its place
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import duckdb

from oncall.archive.configuration import read_configuration
from oncall.archive.episodes import Episode
from oncall.archive.recall import TABLE, former_faults, recall
from oncall.archive.store import Archive
from oncall.console.cancellation import LANES, Cancellation, Lane, Task
from oncall.console.communicators import summaries_of
from oncall.console.ranks import ranks_of
from oncall.console.rulebook_store import RulebookStore
from oncall.console.session import Answer, Query
from oncall.console.shown import Shown
from oncall.console.snapshot import Snapshot
from oncall.console.source import Evidence, Source
from oncall.core.diagnosis import Diagnosis
from oncall.core.errors import OncallError, UsageError, short_reason
from oncall.core.training import Training
from oncall.diagnose import diagnose, judges, with_failures
from oncall.evidence.job_configuration import apply_training
from oncall.evidence.readable import readable
from oncall.rules.engine.engine import SoFar
from oncall.rules.site import Rulebooks
from oncall.views.words import found_so_far

UNANSWERABLE = "the evidence cannot answer that"


class Replay:
    """A session (oncall.console.session) on a source of evidence."""

    def __init__(
        self, source: Source, rulebooks: RulebookStore, training: Training | None = None
    ) -> None:
        """`training` is what the user states of the job's configuration."""
        self.title = source.title
        self.live = source.live
        self.source = source
        self.rulebooks = rulebooks
        self._training = training
        self._cancellations = {lane: Cancellation() for lane in LANES}
        self._shown: Shown | None = None
        self._changing = threading.Lock()
        self._version = 0
        self._judging = ""  # what rulebooks found so far, while they run
        self._archive_note = ""  # why the configured archive does not have its say

    def ask(self, query: Query[Answer]) -> Answer:
        return query.answer(self)

    def progress(self, lane: Lane = "snapshots") -> str:
        judging = self._judging if lane == "snapshots" else ""
        return judging or self.source.progress(lane)

    def cancel(self, lane: Lane | None = None) -> None:
        for name, cancellation in self._cancellations.items():
            if lane in (None, name):
                cancellation.cancel()

    def close(self) -> None:
        self.cancel()
        self._show(None)
        self.rulebooks.close()
        self.source.close()

    # ------------------------------------------------------ what queries ask of it

    @property
    def shown(self) -> Shown | None:
        return self._shown

    @contextlib.contextmanager
    def task(self, lane: Lane) -> Iterator[Task]:
        with self._cancellations[lane].task() as task:
            yield task

    @contextlib.contextmanager
    def question(self) -> Iterator[tuple[Shown, Task]]:
        with self._changing:
            shown = self._shown
            if shown is None:
                raise UsageError("there is no diagnosis yet")
            shown.hold()
        try:
            with self.task("questions") as task, readable(UNANSWERABLE):
                task.uses(shown.incident)
                yield shown, task
        except duckdb.InterruptException as error:
            raise OncallError(f"{UNANSWERABLE}: {short_reason(error)}") from error
        finally:
            shown.drop()

    def choose(self, job: str) -> None:
        self.source.choose(job)
        self._show(None)

    def show(self, at_ns: int | None) -> Snapshot:
        rulebooks = self.rulebooks.read()
        with self.task("snapshots") as task:
            evidence = self.source.at(at_ns, task)
            try:
                task.uses(evidence.incident)
                shown = self._judged(evidence, rulebooks)
                task.check()
            except BaseException:
                task.end()
                evidence.incident.close()
                raise
        self._show(shown)
        return shown.snapshot

    def _judged(self, evidence: Evidence, read: Rulebooks) -> Shown:
        incident = evidence.incident
        if self._training is not None:
            apply_training(incident, self._training, evidence.job)
        if incident.is_empty(TABLE):
            recall(incident, self._former_faults)
        timings: dict[str, float] = {}
        try:
            diagnosis = diagnose(
                incident,
                read.in_force,
                evidence.job,
                timings=timings,
                set_aside=read.skipped,
                scheduler=evidence.scheduler,
                progress=self._hear_of_rulebooks,
            )
        finally:
            self._judging = ""
        rulebooks = judges(read.in_force, diagnosis)
        ranks = ranks_of(incident, diagnosis)
        communicators = summaries_of(incident, diagnosis)
        coverage = with_failures(diagnosis.coverage, incident)
        self._version += 1
        snapshot = Snapshot(
            version=self._version,
            moment=evidence.moment,
            job=evidence.job,
            diagnosis=replace(diagnosis, coverage=coverage, notes=self._notes(diagnosis)),
            ranks=ranks,
            communicators=communicators,
            hosts=evidence.hosts,
            origin=evidence.origin,
            timings_s={book.name: timings[book.name] for book in rulebooks if book.name in timings},
        )
        return Shown(snapshot, incident, rulebooks)

    @cached_property
    def _former_faults(self) -> tuple[Episode, ...]:
        """What the configured archive has, read once a session; an archive that cannot be read
        costs no snapshot, and a note says so."""
        try:
            configured = read_configuration()
            if configured.place is None:
                return ()
            archive = Archive.at(configured.place)
            found = former_faults(archive, configured.cluster)
        except OncallError as error:
            self._archive_note = f"without the archive of former incidents: {error}"
            return ()
        if archive.damaged:
            one = archive.damaged[0]
            number = len(archive.damaged)
            self._archive_note = (
                f"{number} {'file' if number == 1 else 'files'} of the archive could not be read; "
                f"{one.path}: {one.why}"
            )
        return found

    def _notes(self, diagnosis: Diagnosis) -> tuple[str, ...]:
        return (*diagnosis.notes, *filter(None, [self._archive_note]))

    def _hear_of_rulebooks(self, so_far: SoFar) -> None:
        self._judging = found_so_far(so_far)

    def _show(self, shown: Shown | None) -> None:
        """Questions are about this from now on."""
        with self._changing:
            before, self._shown = self._shown, shown
        if before is not None:
            before.drop()
