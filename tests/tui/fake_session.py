"""A session without files, nodes or DuckDB: snapshots made by hand, at once and always the same.

session = FakeSession(hang_snapshot())
session.replace(other)          # what the next snapshot shows, as a gather would bring
session.gate.clear()            # from now on every call blocks until gate.set()
session.fails[GetRankCard] = UsageError("...")
session.answers[GetRates] = lambda query: ...
session.asked                   # [GetSnapshot(at_ns=None), GetRankCard(rank=5), ...]
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from oncall.console.cancellation import Lane
from oncall.console.evidence_queries import (
    ArchiveSolved,
    GetCommunicator,
    GetLogLines,
    GetNetwork,
    GetNetworkRows,
    GetNetworkStep,
    GetNight,
    GetPicture,
    GetRankCard,
    GetRankValues,
    GetRates,
    GetStacks,
    GetStages,
    GetStageTask,
    GetStepRows,
    GetTraffic,
)
from oncall.console.queries import (
    GatherSnapshot,
    GetPulse,
    GetReport,
    GetSnapshot,
    GlanceAtJob,
    ListJobs,
    ListTroubles,
    OpenJob,
    ProbeNodes,
    RunCommand,
    SaveIncident,
)
from oncall.console.rulebook_queries import (
    CheckRulebook,
    DryRunRulebook,
    GetRulebookText,
    ListRulebooks,
    NewRulebook,
    RunFact,
    RunTests,
    SaveRulebook,
)
from oncall.console.session import Answer, Query
from oncall.core.diagnosis import Stack
from oncall.core.errors import OncallError, UsageError
from oncall.views.network.collective import NetworkView, StepView
from oncall.views.night import LoggedLine, NightLine
from oncall.views.ranks.communicators import CommunicatorView
from oncall.views.ranks.rank_card import RankCard
from oncall.views.ranks.ranks import RankValues
from oncall.views.rates.buckets import Series
from oncall.views.snapshot import (
    DryRun,
    HostTrouble,
    JobLine,
    Problem,
    RankState,
    RuleLine,
    Snapshot,
    StepRows,
    Table,
)
from oncall.views.stacks import FoldedStacks
from oncall.views.stages.iteration import StagesView, TaskCard
from oncall.views.traffic.operations import TrafficView

from .iterations import LAST, stages_view, task_card
from .networks import network_rows, network_view, step_view
from .snapshots import DP, FAULT_NS, FIRST_NS, JOB, LAST_NS, hang_snapshot, healthy_snapshot

AQuery = TypeVar("AQuery", bound=Query[Any])

RULE = """\
# What a site changed, and why.
rulebook: hang
format: 1
title: Which rank hangs this job, and why
facts:
  stuck: SELECT * FROM hang_members WHERE waited_ns > $hang_after
"""


class FakeSession:
    """Implements oncall.console.session.Session."""

    def __init__(
        self,
        snapshot: Snapshot | None = None,
        title: str = "incident.oncall",
        jobs: tuple[str, ...] = (JOB,),
    ) -> None:
        self.title = title
        self.live = snapshot.moment.live if snapshot is not None else False
        self.gate = threading.Event()
        self.gate.set()
        self.gates: dict[type[Query[Any]], threading.Event] = {}  # of single queries
        self.fails: dict[type[Query[Any]], OncallError] = {}
        self.asked: list[Query[Any]] = []
        self.cancelled: list[Lane | None] = []
        self.closed = False
        self.so_far = ""
        self.last = LAST  # iteration
        self.hosts_troubles: tuple[HostTrouble, ...] = ()
        self.saved: dict[str, str] = {}
        self._jobs = jobs
        self._now = snapshot or hang_snapshot()
        self._version = 0
        self.answers: dict[type[Query[Any]], Callable[[Any], Any]] = {
            ListJobs: self.list_jobs,
            GlanceAtJob: lambda query: JobLine(query.job, 2, 16, LAST_NS),
            GetPulse: lambda _: {},
            ListTroubles: self.troubles,
            OpenJob: self.open_job,
            GatherSnapshot: self.gather,
            GetSnapshot: self.snapshot,
            GetStepRows: self.step_rows,
            GetRankCard: self.rank_card,
            GetCommunicator: self.communicator,
            GetPicture: lambda query: self.communicator(GetCommunicator(DP, query.rounds)),
            GetTraffic: self.traffic,
            GetRates: self.rates,
            GetLogLines: self.log_lines,
            GetNight: self.night,
            GetStacks: self.stacks,
            GetRankValues: self.rank_values,
            RunCommand: self.run,
            GetStages: self.stages,
            GetStageTask: self.stage_task,
            GetNetwork: self.network,
            GetNetworkStep: self.network_step,
            GetNetworkRows: self.network_rows,
            ProbeNodes: self.probe,
            ListRulebooks: self.rules,
            GetRulebookText: self.rule_text,
            CheckRulebook: self.check,
            DryRunRulebook: self.dry_run,
            RunFact: self.run_fact,
            SaveRulebook: self.save_rule,
            NewRulebook: self.new_rule,
            RunTests: self.test_rules,
            SaveIncident: self.save,
            ArchiveSolved: lambda _: None,
            GetReport: self.report,
        }

    def ask(self, query: Query[Answer]) -> Answer:
        self.asked.append(query)
        self.gates.get(type(query), self.gate).wait()
        if type(query) in self.fails:
            raise self.fails[type(query)]
        answer: Answer = self.answers[type(query)](query)
        return answer

    def asked_for(self, kind: type[AQuery]) -> list[AQuery]:
        """The queries of a kind so far."""
        return [one for one in self.asked if isinstance(one, kind)]

    def replace(self, snapshot: Snapshot) -> None:
        """What is now; the next snapshot shows it."""
        self._now = snapshot

    # ------------------------------------------------------------------ snapshots

    def progress(self, lane: Lane = "snapshots") -> str:  # noqa: ARG002
        return self.so_far

    def list_jobs(self, query: ListJobs) -> tuple[JobLine, ...]:  # noqa: ARG002
        return tuple(JobLine(job, 2, 16, LAST_NS, "running") for job in self._jobs)

    def troubles(self, query: ListTroubles) -> tuple[HostTrouble, ...]:  # noqa: ARG002
        return self.hosts_troubles

    def open_job(self, query: OpenJob) -> Snapshot:
        if query.job not in self._jobs:
            raise UsageError(f"no job `{query.job}` here")
        return self.ask(GetSnapshot())

    def gather(self, query: GatherSnapshot) -> Snapshot:
        return self.ask(GetSnapshot(query.at_ns))

    def snapshot(self, query: GetSnapshot) -> Snapshot:
        """Before the fault of a snapshot with findings, all is well."""
        self._version += 1
        snapshot, at_ns = self._now, query.at_ns
        if at_ns is not None:
            if at_ns < FAULT_NS and len(snapshot.ranks) == 16:
                snapshot = healthy_snapshot()
            snapshot = replace(snapshot, moment=replace(snapshot.moment, at_ns=at_ns, live=False))
        return replace(snapshot, version=self._version)

    # ----------------------------------------------------------------- details

    def step_rows(self, query: GetStepRows) -> StepRows:
        found = next((one for one in self._now.diagnosis.findings if one.id == query.finding), None)
        if found is None or not 0 <= query.step < len(found.story):
            raise UsageError(f"no step {query.step} of {query.finding} in this snapshot")
        reported = found.story[query.step]
        rows = [
            (rank, f"gpu{17 + rank // 8:03d}", 13 + (rank != 5)) for rank in range(reported.rows)
        ]
        table = Table(("rank", "node", "seq"), tuple(rows[: query.limit]), reported.rows)
        return StepRows(
            query.finding, query.step, reported.fact, reported.sql, reported.params, table
        )

    def rank_card(self, query: GetRankCard) -> RankCard:
        ranks = self._now.ranks
        if not 0 <= query.rank < len(ranks):
            raise UsageError(f"no rank {query.rank} here")
        facts = (
            ("node", ranks.node[query.rank]),
            ("GPU", str(ranks.gpu[query.rank])),
            ("NIC", ranks.nic[query.rank]),
            ("process", f"pid {4100 + query.rank}, started 2025-10-09 08:50:00"),
            ("state", RankState(int(ranks.state[query.rank])).name.lower()),
        )
        rows = tuple((14 - back, "AllReduce", "dp", 2**30, "0.41 s") for back in range(10))
        operations = Table(("seq", "op", "communicator", "bytes", "took"), rows, 812)
        stack = Stack(5, "in data loader", ("wait at loader.py:88",)) if query.rank == 5 else None
        return RankCard(query.rank, facts, operations, stack)

    def communicator(self, query: GetCommunicator) -> CommunicatorView:
        summary = next((one for one in self._now.communicators if one.comm == query.comm), None)
        if summary is None:
            raise UsageError(f"no communicator {query.comm:#x} here")
        last = summary.entered
        seqs = np.arange(max(0, last - query.rounds + 1), last + 1, dtype=np.int64)
        ranks = np.arange(summary.size, dtype=np.int64)
        state = np.full((len(ranks), len(seqs)), 2, dtype=np.int8)
        duration_ns = np.full(state.shape, 410_000_000, dtype=np.int64)
        if summary.waiting:
            state[:, -1], duration_ns[:, -1] = 1, -1
            state[min(5, len(ranks) - 1), -1] = 0
        return CommunicatorView(
            summary=summary,
            ranks=ranks,
            seqs=seqs,
            ops=("AllReduce",) * len(seqs),
            state=state,
            duration_ns=duration_ns,
            finding_seq=last if summary.waiting else None,
            waits=("ranks 0-4,6-15 wait in AllReduce 14 of dp for rank 5",) * bool(summary.waiting),
        )

    def traffic(self, query: GetTraffic) -> TrafficView:  # noqa: ARG002
        raise UsageError("nothing was measured here")

    def rates(self, query: GetRates) -> tuple[Series, ...]:
        at_ns = np.linspace(FIRST_NS, LAST_NS, 240).astype(np.int64)
        wave = 1 + 0.05 * np.sin(np.arange(240) / 7)
        if query.kind == "job":
            value = np.where(at_ns > FAULT_NS, 0.0, 320.0 * wave)
            took = np.where(at_ns > FAULT_NS, (at_ns - FAULT_NS) / 1e9, 2.1 * wave)
            return (
                Series("completed operations", "ops/s", at_ns, value, (300.0, 340.0)),
                Series("iteration time", "s", at_ns, took, (1.9, 2.3)),
            )
        if query.kind == "nics":
            return tuple(
                Series(f"gpu017 mlx5_{nic} tx", "B/s", at_ns, 38e9 * wave, (36e9, 40e9), group="tx")
                for nic in range(4)
            )
        series = []
        for rank in (5, *(rank for rank in range(8) if rank != 5)):
            value = 20.0 * wave
            value[at_ns > FAULT_NS] = 0.0
            if rank == 3:
                value[100:120] = np.nan  # its collector was away
            band, name = (18.5, 21.5), f"rank {rank}"
            if query.kind == "ranks":
                series.append(Series(name, "B/s", at_ns, value, band, rank == 5, subject=name))
            else:
                series.append(Series(f"{name} of dp", "ops/s", at_ns, value, band, rank == 5, "dp"))
        return tuple(series)

    def rank_values(self, query: GetRankValues) -> RankValues:
        """Each rank a degree hotter than the one before; of one nothing is known."""
        if query.measure not in ("lag", "temperature"):
            raise UsageError(f"{query.measure} was recorded for no rank")
        count = len(self._now.ranks)
        value = 40.0 + np.arange(count)
        value[min(3, count - 1)] = np.nan
        return RankValues(query.measure, "°C" if query.measure == "temperature" else "ops", value)

    def stacks(self, query: GetStacks) -> FoldedStacks:  # noqa: ARG002
        raise UsageError("no stacks were recorded")

    def run(self, query: RunCommand) -> str:
        return f"{query.command}: done"

    def night(self, query: GetNight) -> tuple[NightLine, ...]:  # noqa: ARG002
        return (
            NightLine(FIRST_NS, "the evidence begins: 8/8 ranks"),
            NightLine(LAST_NS, "✖ Not-entered hang: rank 5", "critical"),
            NightLine(LAST_NS, "▲ Slow rank: rank 7", "warning"),
        )

    def log_lines(self, query: GetLogLines) -> tuple[LoggedLine, ...]:  # noqa: ARG002
        return (
            LoggedLine(FAULT_NS - 20 * 10**9, "rank 0", "iteration 41: 2.1 s"),
            LoggedLine(FAULT_NS + 10**9, "gpu017", "NVRM: Xid 31, pid=4105", True),
            LoggedLine(FAULT_NS + 600 * 10**9, "rank 3", "Watchdog: timeout", True),
        )

    def stages(self, query: GetStages) -> StagesView:
        if query.iteration is not None and not 0 <= query.iteration <= self.last:
            raise UsageError(f"there is no iteration {query.iteration}; they are 0 to {self.last}")
        return stages_view(query.iteration, query.pipeline, query.every_rank)

    def stage_task(self, query: GetStageTask) -> TaskCard:
        return task_card(query.rank, query.iteration, query.box)

    def network(self, query: GetNetwork) -> NetworkView:
        return network_view(query.key)

    def network_step(self, query: GetNetworkStep) -> StepView:
        return step_view(query.step)

    def network_rows(self, query: GetNetworkRows) -> Table:
        return network_rows(query.opened)

    def probe(self, query: ProbeNodes) -> str:
        pairs = "\n".join(
            f"{query.nodes[0]} → peer{number:03d}  {90 - number} µs" for number in range(40)
        )
        return f"41 nodes · 800 pings, 0 lost\n\nworst pairs\n{pairs}\n"

    # ------------------------------------------------------------------- rules

    def rules(self, query: ListRulebooks) -> tuple[RuleLine, ...]:  # noqa: ARG002
        shipped = "/usr/lib/oncall/rulebooks"
        return (
            RuleLine("hang", "Which rank hangs this job, and why", "stable",
                     f"{shipped}/hang.yaml", True, True, "1 finding", 0.061,
                     verdicts=("H1", "H2", "H3"), worst="critical"),
            RuleLine("slow", "Which rank slows this job down", "stable",
                     f"{shipped}/slow.yaml", True, True, "nothing", 0.043),
            RuleLine("waits", "What the transfers inside an operation wait for", "test",
                     f"{shipped}/waits.yaml", True, True, "no data", None,
                     verdicts=("W1",),
                     why_skipped="not recorded: NCCL transfers"),
            RuleLine("loader", "Whose data loader is late", "experimental",
                     "/home/op/.config/oncall/rules/loader.yaml", False, False, "off", None),
        )  # fmt: skip

    def rule_text(self, query: GetRulebookText) -> str:
        return self.saved.get(query.name, RULE.replace("rulebook: hang", f"rulebook: {query.name}"))

    def check(self, query: CheckRulebook) -> tuple[Problem, ...]:
        """A text that says `wrong` is wrong there."""
        return tuple(
            Problem(number, line.index("wrong") + 1, "no column `wrong`; did you mean `rank`?")
            for number, line in enumerate(query.text.splitlines(), 1)
            if "wrong" in line
        )

    def dry_run(self, query: DryRunRulebook) -> DryRun:
        if problems := self.ask(CheckRulebook(query.name, query.text)):
            return DryRun(problems)
        if query.text == self.ask(GetRulebookText(query.name)):
            return DryRun(kept=("H1 rank 5 on gpu017",))
        return DryRun(gained=("H1 rank 4 on gpu017",), lost=("H1 rank 5 on gpu017",))

    def run_fact(self, query: RunFact) -> Table:  # noqa: ARG002
        return Table(("rank", "node"), ((5, "gpu017"),), 1)

    def save_rule(self, query: SaveRulebook) -> Path:
        self.saved[query.name] = query.text
        return Path(f"/home/op/.config/oncall/rules/{query.name}.yaml")

    def new_rule(self, query: NewRulebook) -> str:
        return RULE.replace("rulebook: hang", f"rulebook: {query.name}")

    def test_rules(self, query: RunTests) -> Table:  # noqa: ARG002
        rows = (("rank 5 is absent", "pass", ""), ("all is well", "FAIL", "got H1 blaming [3]"))
        return Table(("test", "result", "difference"), rows, 2)

    # -------------------------------------------------------------- everything

    def save(self, query: SaveIncident) -> None:
        query.path.write_bytes(b"incident")

    def report(self, query: GetReport) -> str:
        return f"# {self._now.job}: rank 5 never entered AllReduce 14\n\n{query.notes}\n"

    def cancel(self, lane: Lane | None = None) -> None:
        """Lets blocked calls go on."""
        self.cancelled.append(lane)
        for gate in (self.gate, *self.gates.values()):
            gate.set()

    def close(self) -> None:
        self.closed = True
