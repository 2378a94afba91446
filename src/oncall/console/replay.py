"""The session on any evidence: worlds at the instants asked for, and questions about the last one.

source.at(instant)  ->  an incident of its own  ->  diagnose  ->  World
                        it stays open for questions until the next world takes its place
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import duckdb

from oncall.console.cancellation import Cancellation, Task
from oncall.console.card import card_of
from oncall.console.communicators import summaries_of, view_of
from oncall.console.questions import dry_run, fact_rows, step_rows
from oncall.console.ranks import ranks_of
from oncall.console.rates import series_of
from oncall.console.session import Lane
from oncall.console.shared import Shared
from oncall.console.shelf import Shelf
from oncall.console.world import (
    CommunicatorView,
    DryRun,
    HostAnswer,
    HostTrouble,
    JobLine,
    Moment,
    Problem,
    RankCard,
    RuleLine,
    Series,
    StepRows,
    World,
)
from oncall.core.errors import OncallError, UsageError, short_reason
from oncall.core.training import Training
from oncall.diagnose import diagnose, judges, with_failures
from oncall.evidence.incident import Incident
from oncall.evidence.job_configuration import apply_training
from oncall.evidence.readable import readable
from oncall.rules.language.rulebook import Rulebook
from oncall.rules.site import Rulebooks
from oncall.views.network.collective import (
    NetworkView,
    Opened,
    StepView,
    network_rows,
    network_view,
    step_view,
)
from oncall.views.network.waiting import Collective, Step
from oncall.views.stages.iteration import StagesView, TaskCard, stages_of, task_of
from oncall.views.stages.timeline import Box
from oncall.views.table import Table
from oncall.views.traffic.operation import TrafficView, traffic_of

UNANSWERABLE = "the evidence cannot answer that"


@dataclass(frozen=True)
class Evidence:
    """A job's evidence as it stood at an instant. Whoever asked for it closes the incident."""

    incident: Incident
    job: str
    moment: Moment
    hosts: tuple[HostAnswer, ...] = ()
    origin: str = ""


@dataclass(frozen=True)
class Finer:
    """What is asked of one node: all operations of communicators, or tables alone."""

    comms: tuple[int, ...] = ()
    tables: tuple[str, ...] = ()


class Source(Protocol):
    """Where evidence comes from. Methods may block; they raise OncallError."""

    title: str
    live: bool

    def jobs(self, task: Task) -> tuple[JobLine, ...]:
        """The jobs there are."""

    def troubles(self) -> tuple[HostTrouble, ...]:
        """What is wrong with hosts, by what they said last."""

    def progress(self, lane: Lane) -> str:
        """How far a gather is, or a probe; never blocks."""

    def choose(self, job: str) -> None:
        """What follows is about this job. Raises UsageError if it is not there."""

    def at(self, at_ns: int | None, task: Task) -> Evidence:
        """The evidence as it stood then; None: all of it."""

    def refresh(self, task: Task) -> None:
        """Gather again, where there is anything to gather from."""

    def finer(self, node: str, wanted: Finer, at_ns: int, task: Task) -> Incident | None:
        """All that the node holds of it, where a world of that instant shows a selection; else
        None. Whoever asked for it closes it."""

    def probe(self, nodes: tuple[str, ...], task: Task) -> str:
        """Probe nodes, keep what they measure for later worlds, and tell it. Raises UsageError."""

    def save(self, path: Path) -> None:
        """Write the whole evidence to an incident file."""

    def close(self) -> None:
        """Let go of files, nodes and memory."""


@dataclass(frozen=True)
class _Present:
    """The world last returned, the evidence it shows, and the rulebooks that have judged it."""

    world: World
    evidence: Shared
    rulebooks: Sequence[Rulebook]
    timings_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def incident(self) -> Incident:
        return self.evidence.incident


class Replay:
    """A session (oncall.console.session) on a source of evidence."""

    def __init__(
        self,
        source: Source,
        shelf: Shelf,
        min_coverage: float = 0.9,
        training: Training | None = None,
    ) -> None:
        """`training` is what the user tells of the job's configuration."""
        self.title = source.title
        self.live = source.live
        self._source = source
        self._shelf = shelf
        self._min_coverage = min_coverage
        self._training = training
        self._cancellations: dict[Lane, Cancellation] = {
            "worlds": Cancellation(),
            "questions": Cancellation(),
            "probes": Cancellation(),
        }
        self._present: _Present | None = None
        self._changing = threading.Lock()
        self._version = 0

    # ------------------------------------------------------------------ worlds

    def jobs(self) -> tuple[JobLine, ...]:
        with self._task() as task:
            return self._source.jobs(task)

    def troubles(self) -> tuple[HostTrouble, ...]:
        return self._source.troubles()

    def progress(self, lane: Lane = "worlds") -> str:
        return self._source.progress(lane)

    def choose(self, job: str) -> None:
        self._source.choose(job)
        self._show(None)

    def refresh(self) -> None:
        with self._task() as task:
            self._source.refresh(task)

    def world(self, at_ns: int | None = None) -> World:
        rulebooks = self._shelf.read()
        with self._task() as task:
            evidence = self._source.at(at_ns, task)
            try:
                task.uses(evidence.incident)
                present = self._judged(evidence, rulebooks)
                task.check()
            except BaseException:
                task.end()
                evidence.incident.close()
                raise
        self._show(present)
        return present.world

    def _judged(self, evidence: Evidence, read: Rulebooks) -> _Present:
        incident = evidence.incident
        if self._training is not None:
            apply_training(incident, self._training, evidence.job)
        timings: dict[str, float] = {}
        diagnosis = diagnose(
            incident,
            read.in_force,
            evidence.job,
            min_coverage=self._min_coverage,
            timings=timings,
            set_aside=read.skipped,
        )
        rulebooks = judges(read.in_force, diagnosis)
        ranks = ranks_of(incident, diagnosis)
        communicators = summaries_of(incident, diagnosis)
        coverage = with_failures(diagnosis.coverage, incident)
        self._version += 1
        world = World(
            version=self._version,
            moment=evidence.moment,
            job=evidence.job,
            diagnosis=replace(diagnosis, coverage=coverage),
            ranks=ranks,
            communicators=communicators,
            hosts=evidence.hosts,
            origin=evidence.origin,
            timings_s={book.name: timings[book.name] for book in rulebooks if book.name in timings},
        )
        return _Present(world, Shared(incident), rulebooks, timings)

    # --------------------------------------------------------------- questions

    def step_rows(self, finding: str, step: int, limit: int = 200) -> StepRows:
        with self._question() as (present, _):
            found = {one.id: one for one in present.world.diagnosis.findings}.get(finding)
            if found is None or not 0 <= step < len(found.story):
                raise UsageError(f"the diagnosis no longer has step {step + 1} of {finding}")
            return step_rows(present.incident, present.rulebooks, found, step, limit)

    def rank_card(self, rank: int) -> RankCard:
        with self._question() as (present, _):
            return card_of(present.incident, present.world, rank)

    def communicator(self, comm: int, rounds: int = 60) -> CommunicatorView:
        with self._question() as (present, _):
            summary = {one.comm: one for one in present.world.communicators}.get(comm)
            if summary is None:
                raise UsageError(f"no communicator {comm:#x} in this evidence")
            return view_of(present.incident, present.world.diagnosis, summary, rounds)

    def traffic(self, comm: int, seq: int | None = None) -> TrafficView:
        with self._question() as (present, _):
            return traffic_of(present.incident, present.world.diagnosis, comm, seq)

    def stages(
        self, iteration: int | None = None, pipeline: int | None = None, every_rank: bool = False
    ) -> StagesView:
        with self._question() as (present, _):
            return stages_of(present.incident, iteration, pipeline, every_rank)

    def stage_task(self, rank: int, iteration: int, box: Box) -> TaskCard:
        with self._question() as (present, _):
            return task_of(present.incident, rank, iteration, box)

    def network(self, key: tuple[int, int] | None = None) -> NetworkView:
        with self._question() as (present, _):
            return network_view(present.incident, key)

    def network_step(self, collective: Collective, step: Step) -> StepView:
        with self._question() as (present, _):
            return step_view(present.incident, collective, step)

    def network_rows(self, opened: Opened) -> Table:
        with self._question() as (present, _):
            return network_rows(present.incident, opened)

    def rates(self, kind: str = "suspects") -> tuple[Series, ...]:
        with self._question() as (present, task):
            finer = self._finer(present, kind, task)
            if finer is not None:
                with finer:
                    task.uses(finer)
                    found = series_of(finer, present.world, kind, present.rulebooks)
                task.uses(present.incident)
                if found:
                    return found
            return series_of(present.incident, present.world, kind, present.rulebooks)

    def _finer(self, present: _Present, kind: str, task: Task) -> Incident | None:
        """All that the node of a rank or a NIC holds of it, where more than is here."""
        at_ns = present.world.moment.at_ns
        if at_ns is None:
            return None
        match kind.split():
            case ["nic", node, _]:
                return self._source.finer(node, Finer(tables=("nics",)), at_ns, task)
            case ["rank", rank] if rank.isdecimal():
                rows = present.incident.con.execute(
                    "SELECT r.node, list(DISTINCT o.comm) FROM ranks r "
                    "JOIN ops o USING (job, rank) WHERE rank = ? "
                    "AND r.node IS NOT NULL AND o.comm IS NOT NULL GROUP BY r.node LIMIT 1",
                    [int(rank)],
                ).fetchall()
                for node, comms in rows:
                    return self._source.finer(node, Finer(tuple(comms)), at_ns, task)
        return None

    def probe(self, nodes: tuple[str, ...]) -> str:
        with self._cancellations["probes"].task() as task:
            return self._source.probe(nodes, task)

    # ------------------------------------------------------------------- rules

    def rules(self) -> tuple[RuleLine, ...]:
        present = self._present
        return self._shelf.lines(None if present is None else present.world)

    def rule_text(self, name: str) -> str:
        return self._shelf.text(name)

    def check(self, text: str) -> tuple[Problem, ...]:
        return self._shelf.check(text)

    def dry_run(self, name: str, text: str) -> DryRun:
        if problems := self._shelf.check(text):
            return DryRun(problems)
        changed = self._shelf.changed(name, text)
        with self._question() as (present, _):
            before = present.world.diagnosis.findings
            return dry_run(present.incident, present.rulebooks, changed, before)

    def run_fact(self, name: str, text: str, fact: str) -> Table:
        changed = self._shelf.tried(name, text)
        with self._question() as (present, _):
            return fact_rows(present.incident, changed, fact)

    def save_rule(self, name: str, text: str) -> Path:
        return self._shelf.save(name, text)

    def new_rule(self, name: str) -> str:
        return self._shelf.new(name)

    def test_rules(self, name: str, text: str) -> Table:
        return self._shelf.test(name, text)

    # -------------------------------------------------------------------- life

    def save(self, path: Path) -> None:
        self._source.save(path)

    def report(self, style: str, notes: str = "") -> str:
        from oncall.console.report import written

        if self._present is None:
            raise UsageError("there is no diagnosis yet")
        return written(self._present.world.diagnosis, style, notes)

    def cancel(self, lane: Lane | None = None) -> None:
        for name, cancellation in self._cancellations.items():
            if lane in (None, name):
                cancellation.cancel()

    def close(self) -> None:
        self.cancel()
        self._show(None)
        self._shelf.close()
        self._source.close()

    @contextlib.contextmanager
    def _task(self) -> Iterator[Task]:
        with self._cancellations["worlds"].task() as task:
            yield task

    @contextlib.contextmanager
    def _question(self) -> Iterator[tuple[_Present, Task]]:
        """The present world, while something is asked of its evidence: what is asked about stays
        until it is answered, whatever is shown by then."""
        with self._changing:
            present = self._present
            if present is None:
                raise UsageError("there is no diagnosis yet")
            present.evidence.take()
        try:
            with self._cancellations["questions"].task() as task, readable(UNANSWERABLE):
                task.uses(present.incident)
                yield present, task
        except duckdb.InterruptException as error:
            raise OncallError(f"{UNANSWERABLE}: {short_reason(error)}") from error
        finally:
            present.evidence.drop()

    def _show(self, present: _Present | None) -> None:
        """Questions are about this one from now on."""
        with self._changing:
            before, self._present = self._present, present
        if before is not None:
            before.evidence.drop()
