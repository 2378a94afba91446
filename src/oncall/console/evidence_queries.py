"""What a console asks of the evidence behind the snapshot that it shows; `queries.py` has the
others. What answers is imported when it is first asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from oncall.console.session import Answering, EvidenceQuery, Query
from oncall.core.errors import UsageError

if TYPE_CHECKING:
    from oncall.console.cancellation import Task
    from oncall.console.source import Shown, Source
    from oncall.evidence.incident import Incident
    from oncall.views.network.collective import NetworkView, Opened, StepView
    from oncall.views.network.waiting import Collective, Step
    from oncall.views.night import LoggedLine, NightLine
    from oncall.views.ranks.communicators import CommunicatorView
    from oncall.views.ranks.rank_card import RankCard
    from oncall.views.ranks.ranks import RankValues
    from oncall.views.rates.buckets import Series
    from oncall.views.snapshot import StepRows, Table
    from oncall.views.stacks import FoldedStacks
    from oncall.views.stages.iteration import StagesView, TaskCard
    from oncall.views.stages.timeline import Box
    from oncall.views.traffic.operations import TrafficView


@dataclass(frozen=True)
class GetStepRows(EvidenceQuery["StepRows"]):
    """The rows behind a step of a finding's story, and the SQL that found them."""

    finding: str
    step: int
    limit: int = 200

    def read(self, shown: Shown) -> StepRows:
        from oncall.console.rulebook_runs import step_rows

        findings = {one.id: one for one in shown.snapshot.diagnosis.findings}
        found = findings.get(self.finding)
        if found is None or not 0 <= self.step < len(found.story):
            raise UsageError(f"the diagnosis no longer has step {self.step + 1} of {self.finding}")
        return step_rows(shown.incident, shown.rulebooks, found, self.step, self.limit)


@dataclass(frozen=True)
class GetRankCard(EvidenceQuery["RankCard"]):
    """One rank in full."""

    rank: int

    def read(self, shown: Shown) -> RankCard:
        from oncall.views.ranks.rank_card import card_of

        return card_of(shown.incident, shown.snapshot, self.rank)


@dataclass(frozen=True)
class GetRankValues(EvidenceQuery["RankValues"]):
    """Lag, rate, temperature, power or NIC of each rank, as last measured. Raises UsageError where
    that was recorded for none."""

    measure: str

    def read(self, shown: Shown) -> RankValues:
        from oncall.views.ranks.ranks import rank_values

        return rank_values(shown.incident, shown.snapshot, self.measure)


@dataclass(frozen=True)
class GetStacks(EvidenceQuery["FoldedStacks"]):
    """The stacks of all processes, equal ones together. Raises OncallError without stacks."""

    def read(self, shown: Shown) -> FoldedStacks:
        from oncall.views.stacks import folded

        return folded(shown.incident)


@dataclass(frozen=True)
class GetLogLines(EvidenceQuery["tuple[LoggedLine, ...]"]):
    """The lines of logs nearest to an instant, Unix ns; None: to the first problem."""

    at_ns: int | None = None
    most: int = 200

    def read(self, shown: Shown) -> tuple[LoggedLine, ...]:
        from oncall.views.night import log_lines

        return log_lines(shown.incident, self.at_ns, self.most)


@dataclass(frozen=True)
class GetNight(EvidenceQuery["tuple[NightLine, ...]"]):
    """What happened when, as the evidence tells it."""

    def read(self, shown: Shown) -> tuple[NightLine, ...]:
        from oncall.views.night import night_lines

        snapshot, moment = shown.snapshot, shown.snapshot.moment
        first_ns, at_ns = moment.first_ns, moment.at_ns
        return night_lines(shown.incident, snapshot.diagnosis, first_ns, at_ns, snapshot.ended)


@dataclass(frozen=True)
class GetCommunicator(EvidenceQuery["CommunicatorView"]):
    """Members against the last `rounds` operations of a communicator."""

    comm: int
    rounds: int = 60

    def read(self, shown: Shown) -> CommunicatorView:
        from oncall.views.ranks.communicators import view_of

        summaries = {one.comm: one for one in shown.snapshot.communicators}
        if self.comm not in summaries:
            raise UsageError(f"no communicator {self.comm:#x} in this evidence")
        diagnosis = shown.snapshot.diagnosis
        return view_of(shown.incident, diagnosis, summaries[self.comm], self.rounds)


@dataclass(frozen=True)
class GetPicture(EvidenceQuery["CommunicatorView | tuple[str, ...]"]):
    """What is drawn with a finding: members against the last operations of a communicator where it
    is about one, else the lines of its report; empty if there are none."""

    finding: str
    rounds: int = 60

    def read(self, shown: Shown) -> CommunicatorView | tuple[str, ...]:
        from oncall.render.text.drawings import drawings_of
        from oncall.views.ranks.ranks import finding_operation

        diagnosis = shown.snapshot.diagnosis
        found = next((one for one in diagnosis.findings if one.id == self.finding), None)
        if found is None:
            raise UsageError(f"no finding {self.finding} in this evidence")
        if found.picture is None and (operation := finding_operation(found)) is not None:
            return GetCommunicator(operation[0], self.rounds).read(shown)
        alone = replace(diagnosis, findings=(replace(found, explained_by=None),))
        drawn = drawings_of(shown.incident, alone)
        return tuple(drawn.get(self.finding, ()))


@dataclass(frozen=True)
class GetTraffic(EvidenceQuery["TrafficView"]):
    """What each member transmitted in an operation, in microseconds, and to whom. Raises
    UsageError where it was not measured."""

    comm: int
    seq: int | None = None

    def read(self, shown: Shown) -> TrafficView:
        from oncall.views.traffic.operations import traffic_of

        return traffic_of(shown.incident, shown.snapshot.diagnosis, self.comm, self.seq)


@dataclass(frozen=True)
class GetStages(EvidenceQuery["StagesView"]):
    """One iteration of the training (None: the culprit's) as a timeline of a pipeline (None: the
    one that others wait for), a lane a stage or a rank. Raises UsageError where it is not known."""

    iteration: int | None = None
    pipeline: int | None = None
    every_rank: bool = False

    def read(self, shown: Shown) -> StagesView:
        from oncall.views.ranks.ranks import blamed_ranks
        from oncall.views.stages.iteration import stages_of
        from oncall.views.words import blaming, roots

        diagnosis = shown.snapshot.diagnosis
        causes = roots(diagnosis)
        hung_ns = causes[0].at_ns if causes and causes[0].fault_class == "hang" else None
        blamed = {rank for cause in blaming(diagnosis) for rank in blamed_ranks(cause)}
        shape = (self.iteration, self.pipeline, self.every_rank)
        return stages_of(shown.incident, *shape, hung_ns, blamed)


@dataclass(frozen=True)
class ArchiveSolved(EvidenceQuery["str | None"]):
    """Add the diagnosis shown to the configured archive, with what fixed it: the incident's name
    there, empty if nothing shown is at fault, None without an archive."""

    fixed_by: str
    written_ns: int

    def read(self, shown: Shown) -> str | None:
        from oncall.console.report import keep_solved

        return keep_solved(shown.incident, shown.snapshot.diagnosis, self.fixed_by, self.written_ns)


@dataclass(frozen=True)
class GetStageTask(EvidenceQuery["TaskCard"]):
    """A task of a timeline in full: what it waits for, its group, its calls."""

    rank: int
    iteration: int
    box: Box

    def read(self, shown: Shown) -> TaskCard:
        from oncall.views.stages.iteration import task_of

        return task_of(shown.incident, self.rank, self.iteration, self.box)


@dataclass(frozen=True)
class GetNetwork(EvidenceQuery["NetworkView"]):
    """A collective (comm, seq) in the network; None: the one that lost most: which steps waited
    for which, the flows and ports that contributed, the latencies of hosts. Raises UsageError
    where no steps are known."""

    key: tuple[int, int] | None = None

    def read(self, shown: Shown) -> NetworkView:
        from oncall.views.network.collective import network_view

        return network_view(shown.incident, self.key)


@dataclass(frozen=True)
class GetNetworkStep(EvidenceQuery["StepView"]):
    """The path of a late step through the network, to where its wait begins."""

    collective: Collective
    step: Step

    def read(self, shown: Shown) -> StepView:
        from oncall.views.network.collective import step_view

        return step_view(shown.incident, self.collective, self.step)


@dataclass(frozen=True)
class GetNetworkRows(EvidenceQuery["Table"]):
    """The rows behind a step, a flow, or a node's latencies."""

    opened: Opened

    def read(self, shown: Shown) -> Table:
        from oncall.views.network.collective import network_rows

        return network_rows(shown.incident, self.opened)


@dataclass(frozen=True)
class GetRates(Query["tuple[Series, ...]"]):
    """Rates over time: of `suspects` first, of the `job`, of `ranks`, of `nics`; or of one thing as
    finely as it was recorded, fetched from its node if the job runs: `rank 137`, `nic gpu017
    mlx5_0`."""

    kind: str = "suspects"

    def answer(self, session: Answering) -> tuple[Series, ...]:
        from oncall.views.rates.rates import series_of

        with session.question() as (shown, task):
            snapshot, rulebooks = shown.snapshot, shown.rulebooks
            finer = self._finer(shown, session.source, task)
            if finer is not None:
                with finer:
                    task.uses(finer)
                    found = series_of(finer, snapshot, self.kind, rulebooks)
                task.uses(shown.incident)
                if found:
                    return found
            return series_of(shown.incident, snapshot, self.kind, rulebooks)

    def _finer(self, shown: Shown, source: Source, task: Task) -> Incident | None:
        """All that its node recorded of a rank or a NIC, where that is more than is shown. Whoever
        asked for it closes it."""
        from oncall.console.source import Finer
        from oncall.views.rates.rates import recorded_of

        at_ns = shown.snapshot.moment.at_ns
        match self.kind.split():
            case ["nic", node, _] if at_ns is not None:
                return source.finer(node, Finer(tables=("nics",)), at_ns, task)
            case ["rank", rank] if at_ns is not None and rank.isdecimal():
                if (recorded := recorded_of(shown.incident, int(rank))) is not None:
                    return source.finer(recorded[0], Finer(recorded[1]), at_ns, task)
        return None
