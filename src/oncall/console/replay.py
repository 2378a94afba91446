"""The session on any evidence: snapshots at the instants asked for, and queries about the last one.

source.at(instant)  ->  an incident of its own  ->  diagnose  ->  Snapshot
                        it stays open for questions until the next snapshot takes its place

Where all rulebooks take long, the first snapshot of an instant says only why the job stopped, if it
did; `judge` runs all of them on an incident of its own meanwhile, and takes its place.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial

import duckdb

from oncall.archive.configuration import read_configuration
from oncall.archive.episodes import Episode
from oncall.archive.history import TABLE, former_faults, recall
from oncall.archive.store import Archive
from oncall.console.cancellation import LANES, Cancellation, Lane, Task
from oncall.console.ended import Past
from oncall.console.rulebook_store import RulebookStore
from oncall.console.session import Answer, Query
from oncall.console.source import Evidence, Shown, Source
from oncall.core.errors import OncallError, UsageError, short_reason
from oncall.core.training import Training
from oncall.evidence.incident import Incident
from oncall.evidence.job_configuration import apply_training
from oncall.evidence.readable import readable
from oncall.rules.engine.engine import FEW_ROWS, SoFar
from oncall.rules.language.rulebook import names_today
from oncall.rules.site import Rulebooks
from oncall.use_case.diagnose import about_stops, diagnose, diagnose_stops, judges, with_failures
from oncall.views.night import first_completion_ns
from oncall.views.ranks.communicators import summaries_of
from oncall.views.ranks.ranks import judged, ranks_of
from oncall.views.snapshot import Earlier, JobLine, Snapshot, job_line
from oncall.views.words import found_so_far, roots

_LONG_S = 1.0  # a step of the time cursor should not take longer
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
        self.shown: Shown | None = None
        self._changing = threading.Lock()
        self._version = 0
        self._judging: dict[Lane, str] = {}  # what rulebooks found so far, while they run
        self._whole: Snapshot | None = None  # the last on which all rulebooks ran
        self._rest_s: float | None = None  # what rulebooks other than `about_stops` took for it
        self._past = Past()
        self._archive_note = ""  # why the configured archive does not have its say

    def ask(self, query: Query[Answer]) -> Answer:
        return query.answer(self)

    def progress(self, lane: Lane = "snapshots") -> str:
        return self._judging.get(lane, "") or self.source.progress(lane)

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

    def task(self, lane: Lane) -> AbstractContextManager[Task]:
        return self._cancellations[lane].task()

    @contextlib.contextmanager
    def question(self) -> Iterator[tuple[Shown, Task]]:
        with self._changing:
            shown = self.shown
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
        self._whole = self._rest_s = None
        self._past = Past()
        self._show(None)

    def glance(self, job: str) -> JobLine:
        rulebooks = self.rulebooks.read()
        with self.task("snapshots") as task:
            evidence = self.source.look(job, task)
            with evidence.incident as incident:
                task.uses(incident)
                try:
                    diagnosis = diagnose(
                        incident,
                        rulebooks.in_force,
                        evidence.job,
                        set_aside=rulebooks.skipped,
                        scheduler=evidence.scheduler,
                    )
                    line = job_line(incident, evidence.job)
                    ranks = ranks_of(incident, diagnosis)
                finally:
                    task.end()
        return judged(line, diagnosis, ranks, evidence.moment.at_ns)

    def show(self, at_ns: int | None, *, first: bool = False) -> Snapshot:
        rulebooks = self.rulebooks.read()
        with self.task("snapshots") as task:
            evidence = self.source.at(at_ns, task)
            first = first and self.source.repeats(at_ns) and self._takes_long(evidence.incident)
            shown = self._judged(evidence, rulebooks, task, "snapshots", stops_only=first)
        if first and (kept := self._kept(shown)) is not None:
            shown.drop()
            return kept
        self._show(shown)
        return shown.snapshot

    def _kept(self, newer: Shown) -> Snapshot | None:
        """What is shown of a running job, if newer evidence tells the same of why it stopped: it
        stays until all rulebooks have run on that, or a slow job's verdict would come and go."""
        with self._changing:
            shown = self.shown
            if shown is None or shown.snapshot.diagnosis.pending:
                return None
            before, now = shown.snapshot, newer.snapshot
            same = _stops(before, now) == _stops(now, now)
            if not (same and before.moment.live and now.moment.live):
                return None
            self._version += 1
            shown.snapshot = replace(
                before,
                version=self._version,
                hosts=now.hosts,
                lost_gateways=now.lost_gateways,
                due=True,
            )
            return shown.snapshot

    def judge(self, at_ns: int | None) -> Snapshot:
        rulebooks = self.rulebooks.read()
        with self.task("judgements") as task:
            evidence = self.source.again(at_ns, task)
            judged = self._judged(evidence, rulebooks, task, "judgements")
        with self._changing:
            shown = self.shown
            if shown is None or _at_ns(shown) == _at_ns(judged) or evidence.moment.live:
                self.shown, out = judged, shown
            else:  # the reader has moved on: what was found there is dated
                self._version += 1
                moved = replace(shown.snapshot, version=self._version)
                shown.snapshot = self._with_earlier(moved)
                out = judged
            snapshot = self.shown.snapshot if self.shown is not None else judged.snapshot
        if out is not None:
            out.drop()
        return snapshot

    def _takes_long(self, incident: Incident) -> bool:
        """Whether rulebooks take so long that who waits should see first why the job stopped."""
        if self._rest_s is None:
            return incident.rows("ops") >= FEW_ROWS
        return self._rest_s > _LONG_S

    def _judged(
        self,
        evidence: Evidence,
        read: Rulebooks,
        task: Task,
        lane: Lane,
        *,
        stops_only: bool = False,
    ) -> Shown:
        """The evidence with its snapshot; where that fails it is closed."""
        with task.computing(evidence.incident):
            shown = self._diagnosed(evidence, read, lane, stops_only)
            task.check()
            return shown

    def _diagnosed(
        self, evidence: Evidence, read: Rulebooks, lane: Lane, stops_only: bool
    ) -> Shown:
        incident = evidence.incident
        if self._training is not None:
            apply_training(incident, self._training, evidence.job)
        if incident.is_empty(TABLE):
            recall(incident, self._former_faults)
        timings: dict[str, float] = {}

        def hear(so_far: SoFar) -> None:
            self._judging[lane] = found_so_far(so_far)

        try:
            if stops_only:
                diagnosis = diagnose_stops(
                    incident,
                    read.in_force,
                    evidence.job,
                    timings=timings,
                    stages=self._known_stages(),
                    scheduler=evidence.scheduler,
                    progress=hear,
                )
            else:
                diagnosis = diagnose(
                    incident,
                    read.in_force,
                    evidence.job,
                    timings=timings,
                    set_aside=read.skipped,
                    scheduler=evidence.scheduler,
                    progress=hear,
                )
        finally:
            self._judging[lane] = ""
        rulebooks = judges(read.in_force, diagnosis)
        at_ns = evidence.moment.at_ns
        if evidence.moment.live and at_ns is not None:
            if not stops_only:
                resumed = partial(first_completion_ns, incident)
                self._past = self._past.after(diagnosis, at_ns, resumed)
            diagnosis = self._past.present(diagnosis)
        ranks = ranks_of(incident, diagnosis)
        communicators = summaries_of(incident, diagnosis)
        coverage = with_failures(diagnosis.coverage, incident)
        notes = (*diagnosis.notes, *filter(None, [self._archive_note]))
        with self._changing:
            self._version += 1
            version = self._version
        snapshot = Snapshot(
            version=version,
            moment=evidence.moment,
            job=evidence.job,
            diagnosis=replace(diagnosis, coverage=coverage, notes=notes),
            ranks=ranks,
            communicators=communicators,
            hosts=evidence.hosts,
            lost_gateways=evidence.lost_gateways,
            origin=evidence.origin,
            timings_s={book.name: timings[book.name] for book in rulebooks if book.name in timings},
            ended=self._past.before(at_ns),
        )
        if stops_only:
            return Shown(self._with_earlier(snapshot), incident, rulebooks)
        first = {book.name for book in about_stops(rulebooks)}
        took = snapshot.timings_s.items()
        self._rest_s = sum(seconds for name, seconds in took if name not in first)
        self._whole = snapshot
        return Shown(snapshot, incident, rulebooks)

    def _with_earlier(self, snapshot: Snapshot) -> Snapshot:
        """With what the rulebooks that are still pending found last."""
        whole, pending = self._whole, snapshot.diagnosis.pending
        if whole is None or not pending:
            return snapshot
        faults = (one for one in roots(whole.diagnosis) if one.severity != "info")
        found = tuple(one for one in faults if one.rulebook in pending)
        return replace(snapshot, earlier=Earlier(whole.moment.at_ns, found))

    def _known_stages(self) -> dict[int, int]:
        """Of ranks that were blamed before: they do not move to another stage."""
        found = self._whole.diagnosis.findings if self._whole is not None else ()
        places = [one.where for finding in found for one in finding.blame]
        return {
            where["rank"]: where["stage"]
            for where in places
            if where.get("rank") is not None and where.get("stage") is not None
        }

    @cached_property
    def _former_faults(self) -> tuple[Episode, ...]:
        """What the configured archive has, read once a session; an archive that cannot be read
        costs no snapshot, and a note says so."""
        try:
            configured = read_configuration()
            if configured.place is None:
                return ()
            archive = Archive.at(configured.place)
            names = names_today(self.rulebooks.read().in_force)
            found = former_faults(archive, configured.cluster, names)
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

    def _show(self, shown: Shown | None) -> None:
        """Questions are about this from now on."""
        with self._changing:
            before, self.shown = self.shown, shown
        if before is not None:
            before.drop()


def _at_ns(shown: Shown) -> int | None:
    return shown.snapshot.moment.at_ns


def _stops(snapshot: Snapshot, first: Snapshot) -> set[tuple[object, ...]]:
    """What a snapshot says of why the job stopped: verdicts and blame of the rulebooks that have
    run on `first`. A rank's stage is known only once all have."""
    return {
        (one.rulebook, one.verdict, blame.kind, blame.where.get("rank"), blame.where.get("node"))
        for one in snapshot.diagnosis.findings
        if one.rulebook not in first.diagnosis.pending
        for blame in one.blame
    }
