"""A session without files, nodes or DuckDB: worlds made by hand, at once and always the same.

session = FakeSession(hang_world())
session.replace(other)          # what the next `world()` shows, as a refresh would bring
session.gate.clear()            # from now on every call blocks until gate.set()
session.fails["rank_card"] = UsageError("...")
session.asked                   # [("world", None), ("rank_card", 5), ...]
"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from oncall.console.session import Lane
from oncall.console.world import (
    CommunicatorView,
    DryRun,
    HostTrouble,
    JobLine,
    Problem,
    RankCard,
    RankState,
    RuleLine,
    Series,
    StepRows,
    World,
)
from oncall.core.errors import OncallError, UsageError
from oncall.views.network.collective import NetworkView, Opened, StepView
from oncall.views.network.waiting import Collective, Step
from oncall.views.stages.iteration import StagesView, TaskCard
from oncall.views.stages.timeline import Box
from oncall.views.table import Table
from oncall.views.traffic.operation import TrafficView

from .iterations import LAST, stages_view, task_card
from .networks import network_rows, network_view, step_view
from .worlds import FAULT_NS, FIRST_NS, JOB, LAST_NS, hang_world, healthy_world

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
        world: World | None = None,
        title: str = "incident.oncall",
        jobs: tuple[str, ...] = (JOB,),
    ) -> None:
        self.title = title
        self.live = world.moment.live if world is not None else False
        self.gate = threading.Event()
        self.gate.set()
        self.gates: dict[str, threading.Event] = {}  # of single methods
        self.fails: dict[str, OncallError] = {}
        self.asked: list[tuple[str, Any]] = []
        self.closed = False
        self.so_far = ""
        self.last = LAST  # iteration
        self.hosts_troubles: tuple[HostTrouble, ...] = ()
        self.saved: dict[str, str] = {}
        self._jobs = jobs
        self._now = world or hang_world()
        self._version = 0

    def _ask(self, method: str, what: Any = None) -> None:
        self.asked.append((method, what))
        self.gates.get(method, self.gate).wait()
        if method in self.fails:
            raise self.fails[method]

    def replace(self, world: World) -> None:
        """What is now; the next world shows it."""
        self._now = world

    # ------------------------------------------------------------------ worlds

    def progress(self, lane: Lane = "worlds") -> str:  # noqa: ARG002
        return self.so_far

    def jobs(self) -> tuple[JobLine, ...]:
        self._ask("jobs")
        return tuple(JobLine(job, 2, 16, LAST_NS, "running") for job in self._jobs)

    def troubles(self) -> tuple[HostTrouble, ...]:
        self._ask("troubles")
        return self.hosts_troubles

    def choose(self, job: str) -> None:
        self._ask("choose", job)
        if job not in self._jobs:
            raise UsageError(f"no job `{job}` here")

    def world(self, at_ns: int | None = None) -> World:
        """Before the fault of a world with findings, all is well."""
        self._ask("world", at_ns)
        self._version += 1
        world = self._now
        if at_ns is not None:
            if at_ns < FAULT_NS and len(world.ranks) == 16:
                world = healthy_world()
            world = replace(world, moment=replace(world.moment, at_ns=at_ns, live=False))
        return replace(world, version=self._version)

    def refresh(self) -> None:
        self._ask("refresh")

    # ----------------------------------------------------------------- details

    def step_rows(self, finding: str, step: int, limit: int = 200) -> StepRows:
        self._ask("step_rows", (finding, step, limit))
        found = next((one for one in self._now.diagnosis.findings if one.id == finding), None)
        if found is None or not 0 <= step < len(found.story):
            raise UsageError(f"no step {step} of {finding} in this world")
        told = found.story[step]
        rows = [(rank, f"gpu{17 + rank // 8:03d}", 13 + (rank != 5)) for rank in range(told.rows)]
        table = Table(("rank", "node", "seq"), tuple(rows[:limit]), told.rows)
        return StepRows(finding, step, told.fact, told.sql, told.params, table)

    def rank_card(self, rank: int) -> RankCard:
        self._ask("rank_card", rank)
        ranks = self._now.ranks
        if not 0 <= rank < len(ranks):
            raise UsageError(f"no rank {rank} here")
        facts = (
            ("node", ranks.node[rank]),
            ("GPU", str(ranks.gpu[rank])),
            ("NIC", ranks.nic[rank]),
            ("process", f"pid {4100 + rank}, started 2025-10-09 08:50:00"),
            ("state", RankState(int(ranks.state[rank])).name.lower()),
        )
        rows = tuple((14 - back, "AllReduce", "dp", 2**30, "0.41 s") for back in range(10))
        operations = Table(("seq", "op", "communicator", "bytes", "took"), rows, 812)
        return RankCard(rank, facts, operations, ("wait at loader.py:88",) if rank == 5 else ())

    def communicator(self, comm: int, rounds: int = 60) -> CommunicatorView:
        self._ask("communicator", (comm, rounds))
        summary = next((one for one in self._now.communicators if one.comm == comm), None)
        if summary is None:
            raise UsageError(f"no communicator {comm:#x} here")
        last = summary.entered
        seqs = np.arange(max(0, last - rounds + 1), last + 1, dtype=np.int64)
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
            told=last if summary.waiting else None,
            waits=("ranks 0-4,6-15 wait in AllReduce 14 of dp for rank 5",) * bool(summary.waiting),
        )

    def traffic(self, comm: int, seq: int | None = None) -> TrafficView:
        self._ask("traffic", (comm, seq))
        raise UsageError("nothing was measured here")

    def rates(self, kind: str = "suspects") -> tuple[Series, ...]:
        self._ask("rates", kind)
        at_ns = np.linspace(FIRST_NS, LAST_NS, 240).astype(np.int64)
        wave = 1 + 0.05 * np.sin(np.arange(240) / 7)
        if kind == "nics":
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
            series.append(
                Series(f"rank {rank} of dp", "ops/s", at_ns, value, (18.5, 21.5), rank == 5, "dp")
            )
        return tuple(series)

    def stages(
        self, iteration: int | None = None, pipeline: int | None = None, every_rank: bool = False
    ) -> StagesView:
        self._ask("stages", (iteration, pipeline, every_rank))
        if iteration is not None and not 0 <= iteration <= self.last:
            raise UsageError(f"there is no iteration {iteration}; they are 0 to {self.last}")
        return stages_view(iteration, pipeline, every_rank)

    def stage_task(self, rank: int, iteration: int, box: Box) -> TaskCard:
        self._ask("stage_task", (rank, iteration, box))
        return task_card(rank, iteration, box)

    def network(self, key: tuple[int, int] | None = None) -> NetworkView:
        self._ask("network", key)
        return network_view(key)

    def network_step(self, collective: Collective, step: Step) -> StepView:
        self._ask("network_step", (collective, step))
        return step_view(step)

    def network_rows(self, opened: Opened) -> Table:
        self._ask("network_rows", opened)
        return network_rows(opened)

    def probe(self, nodes: tuple[str, ...]) -> str:
        self._ask("probe", nodes)
        pairs = "\n".join(
            f"{nodes[0]} → peer{number:03d}  {90 - number} µs" for number in range(40)
        )
        return f"41 nodes · 800 pings, 0 lost\n\nworst pairs\n{pairs}\n"

    # ------------------------------------------------------------------- rules

    def rules(self) -> tuple[RuleLine, ...]:
        self._ask("rules")
        shipped = "/usr/lib/oncall/rulebooks"
        return (
            RuleLine("hang", "Which rank hangs this job, and why", "stable",
                     f"{shipped}/hang.yaml", True, True, "1 finding", 0.061),
            RuleLine("slow", "Which rank slows this job down", "stable",
                     f"{shipped}/slow.yaml", True, True, "nothing", 0.043),
            RuleLine("waits", "What the transfers inside an operation wait for", "test",
                     f"{shipped}/waits.yaml", True, True, "skipped: no transfers", None),
            RuleLine("loader", "Whose data loader is late", "experimental",
                     "/home/op/.config/oncall/rules/loader.yaml", False, False, "off", None),
        )  # fmt: skip

    def rule_text(self, name: str) -> str:
        self._ask("rule_text", name)
        return self.saved.get(name, RULE.replace("rulebook: hang", f"rulebook: {name}"))

    def check(self, text: str) -> tuple[Problem, ...]:
        """A text that says `wrong` is wrong there."""
        self._ask("check", text)
        return tuple(
            Problem(number, line.index("wrong") + 1, "no column `wrong`; did you mean `rank`?")
            for number, line in enumerate(text.splitlines(), 1)
            if "wrong" in line
        )

    def dry_run(self, name: str, text: str) -> DryRun:
        self._ask("dry_run", (name, text))
        if problems := self.check(text):
            return DryRun(problems)
        if text == self.rule_text(name):
            return DryRun(kept=("H1 rank 5 on gpu017",))
        return DryRun(gained=("H1 rank 4 on gpu017",), lost=("H1 rank 5 on gpu017",))

    def run_fact(self, name: str, text: str, fact: str) -> Table:
        self._ask("run_fact", (name, text, fact))
        return Table(("rank", "node"), ((5, "gpu017"),), 1)

    def save_rule(self, name: str, text: str) -> Path:
        self._ask("save_rule", (name, text))
        self.saved[name] = text
        return Path(f"/home/op/.config/oncall/rules/{name}.yaml")

    def new_rule(self, name: str) -> str:
        self._ask("new_rule", name)
        return RULE.replace("rulebook: hang", f"rulebook: {name}")

    def test_rules(self, name: str, text: str) -> Table:
        self._ask("test_rules", (name, text))
        rows = (("rank 5 is absent", "pass", ""), ("all is well", "FAIL", "got H1 blaming [3]"))
        return Table(("test", "result", "difference"), rows, 2)

    # -------------------------------------------------------------- everything

    def save(self, path: Path) -> None:
        self._ask("save", path)
        path.write_bytes(b"incident")

    def report(self, style: str, notes: str = "") -> str:
        self._ask("report", style)
        return f"# {self._now.job}: rank 5 never entered AllReduce 14\n\n{notes}\n"

    def cancel(self, lane: Lane | None = None) -> None:
        """Lets blocked calls go on."""
        self.asked.append(("cancel", lane))
        for gate in (self.gate, *self.gates.values()):
            gate.set()

    def close(self) -> None:
        self.closed = True
