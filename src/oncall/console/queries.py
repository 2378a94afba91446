"""What a console asks of jobs and their nodes: snapshots, probes, commands, reports. What it asks
of the evidence behind a snapshot is in `evidence_queries.py`. What answers is imported when it is
first asked: the console's first frame is painted before DuckDB and numpy are there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from oncall.console.cancellation import Lane
from oncall.console.session import Answering, Query
from oncall.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncall.views.snapshot import HostTrouble, JobLine, Snapshot


@dataclass(frozen=True)
class ListJobs(Query["tuple[JobLine, ...]"]):
    """The jobs to choose from."""

    lane: ClassVar[Lane] = "snapshots"

    def answer(self, session: Answering) -> tuple[JobLine, ...]:
        with session.task(self.lane) as task:
            return session.source.jobs(task)


@dataclass(frozen=True)
class GlanceAtJob(Query["JobLine"]):
    """A job of several in a line, with its verdict. Raises UsageError where another is open."""

    job: str
    lane: ClassVar[Lane] = "snapshots"

    def answer(self, session: Answering) -> JobLine:
        return session.glance(self.job)


@dataclass(frozen=True)
class GetSnapshot(Query["Snapshot"]):
    """The snapshot at an instant, Unix ns; None: at the end, which of a running job is now.

    `first`: where all rulebooks take long, the ones that say why the job stopped; the others are
    `pending` in its diagnosis, and JudgeSnapshot runs them.
    """

    at_ns: int | None = None
    first: bool = False
    lane: ClassVar[Lane] = "snapshots"

    def answer(self, session: Answering) -> Snapshot:
        return session.show(self.at_ns, first=self.first)


@dataclass(frozen=True)
class JudgeSnapshot(Query["Snapshot"]):
    """The snapshot of that instant with all rulebooks; questions are answered meanwhile. If another
    moment is shown by then: that one, with what was found here as `earlier`."""

    at_ns: int | None = None
    lane: ClassVar[Lane] = "judgements"

    def answer(self, session: Answering) -> Snapshot:
        return session.judge(self.at_ns)


@dataclass(frozen=True)
class OpenJob(Query["Snapshot"]):
    """The newest snapshot of a job; all that follows is about this job."""

    job: str
    first: bool = False  # as of GetSnapshot
    lane: ClassVar[Lane] = "snapshots"

    def answer(self, session: Answering) -> Snapshot:
        session.choose(self.job)
        return session.show(None, first=self.first)


@dataclass(frozen=True)
class GetPulse(Query["Mapping[str, int]"]):
    """By host, how much the running job's ranks have recorded so far: it rises with every call."""

    lane: ClassVar[Lane] = "snapshots"

    def answer(self, session: Answering) -> Mapping[str, int]:
        return session.source.pulse()


@dataclass(frozen=True)
class GatherSnapshot(GetSnapshot):
    """The snapshot at an instant, gathered again if the job runs."""

    def answer(self, session: Answering) -> Snapshot:
        with session.task(self.lane) as task:
            session.source.refresh(task)
        return super().answer(session)


@dataclass(frozen=True)
class ListTroubles(Query["tuple[HostTrouble, ...]"]):
    """What is wrong with the hosts, by their last answers; no host is queried."""

    def answer(self, session: Answering) -> tuple[HostTrouble, ...]:
        return session.source.troubles()


@dataclass(frozen=True)
class ProbeNodes(Query[str]):
    """Have these nodes and some others ping one another now: the result as `oncall probe` prints
    it; the next snapshot includes it. Raises UsageError for a recording."""

    nodes: tuple[str, ...]
    lane: ClassVar[Lane] = "probes"

    def answer(self, session: Answering) -> str:
        with session.task(self.lane) as task:
            return session.source.probe(self.nodes, task)


@dataclass(frozen=True)
class GetWordsByHand(Query[tuple[str, ...]]):
    """The words that run a command on a node in the reader's own terminal; an empty one is a shell.
    Raises UsageError where nodes are not reached over SSH."""

    node: str
    command: str

    def answer(self, session: Answering) -> tuple[str, ...]:
        return session.source.by_hand(self.node, self.command)


@dataclass(frozen=True)
class RunCommand(Query[str]):
    """Run a suggested command that only reads on the node it names, or else on the one that is
    `blamed`: what it prints. Raises UsageError for any other, and for a recording."""

    command: str
    blamed: str = ""
    lane: ClassVar[Lane] = "probes"

    def answer(self, session: Answering) -> str:
        from oncall.fleet.read_only import read_only_command

        command = read_only_command(self.command, self.blamed)
        with session.task(self.lane) as task:
            return session.source.run(command, task)


@dataclass(frozen=True)
class SaveIncident(Query[None]):
    """Write the whole evidence to an incident file."""

    path: Path

    def answer(self, session: Answering) -> None:
        session.source.save(self.path)


@dataclass(frozen=True)
class GetReport(Query[str]):
    """The diagnosis as `text`, `markdown`, `json` or a `ticket` of a page, with the reader's
    notes."""

    style: str
    notes: str = ""

    def answer(self, session: Answering) -> str:
        from oncall.console.report import written

        if session.shown is None:
            raise UsageError("there is no diagnosis yet")
        snapshot = session.shown.snapshot
        return written(snapshot.diagnosis, self.style, self.notes, snapshot.moment.at_ns)
