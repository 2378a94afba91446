"""What a front end asks: one job's world, and what lies behind it.

Every method may block (DuckDB, files, SSH), so a front end calls them in worker threads: `jobs`,
`choose`, `world` and `refresh` one at a time in the lane of worlds, `probe` in one of its own, all
others one at a time in the lane of questions, so that a question never waits for a gather.
`cancel` may come from any thread. They raise OncallError with a message to show. Questions about
details are about the world last returned.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

from oncall.console.world import (
    CommunicatorView,
    DryRun,
    HostTrouble,
    JobLine,
    Problem,
    RankCard,
    RuleLine,
    Series,
    StepRows,
    World,
)
from oncall.views.network.collective import NetworkView, Opened, StepView
from oncall.views.network.waiting import Collective, Step
from oncall.views.stages.iteration import StagesView, TaskCard
from oncall.views.stages.timeline import Box
from oncall.views.table import Table
from oncall.views.traffic.operation import TrafficView

Lane = Literal["worlds", "questions", "probes"]


class Session(Protocol):
    """One open recording, or a running job."""

    title: str
    live: bool

    def jobs(self) -> tuple[JobLine, ...]:
        """The jobs there are to choose from."""

    def troubles(self) -> tuple[HostTrouble, ...]:
        """What is wrong with the hosts, by what they said last; nothing is asked for it."""

    def progress(self, lane: Lane = "worlds") -> str:
        """How far a gather is, or a probe: `17 of 512 hosts answered`. From any thread; never
        blocks."""

    def choose(self, job: str) -> None:
        """All that follows is about this job."""

    def world(self, at_ns: int | None = None) -> World:
        """The world at an instant, Unix ns; None: at the end, which of a running job is now."""

    def refresh(self) -> None:
        """Gather again, if the job runs; the next world shows what came."""

    def step_rows(self, finding: str, step: int, limit: int = 200) -> StepRows:
        """The rows behind a step of a finding's story, and the SQL that found them."""

    def rank_card(self, rank: int) -> RankCard:
        """One rank in full."""

    def communicator(self, comm: int, rounds: int = 60) -> CommunicatorView:
        """Members against the last `rounds` operations of a communicator."""

    def traffic(self, comm: int, seq: int | None = None) -> TrafficView:
        """What each member transmitted in an operation, in microseconds, and to whom. Raises
        UsageError where it was not measured."""

    def stages(
        self, iteration: int | None = None, pipeline: int | None = None, every_rank: bool = False
    ) -> StagesView:
        """One iteration of the training (None: the worst) as a timeline of a pipeline (None: the
        one that others wait for), a lane a stage or a rank. Raises UsageError where none is known,
        or that one is not there."""

    def stage_task(self, rank: int, iteration: int, box: Box) -> TaskCard:
        """A task of a timeline in full: what it waits for, its group, its calls."""

    def network(self, key: tuple[int, int] | None = None) -> NetworkView:
        """A collective (comm, seq) in the network; None: the one that lost most: who waited for
        whose step, who contributed, what latencies hosts have. Raises UsageError where no steps
        are known."""

    def network_step(self, collective: Collective, step: Step) -> StepView:
        """The way of a late step through the network, to where its waiting begins."""

    def network_rows(self, opened: Opened) -> Table:
        """The rows behind a step, a flow, or a node's latencies."""

    def rates(self, kind: str = "suspects") -> tuple[Series, ...]:
        """Rates over time: of `suspects` first, of `ranks`, of `nics`; or of one thing as finely as
        it was recorded, fetched from its node if the job runs: `rank 137`, `nic gpu017 mlx5_0`."""

    def probe(self, nodes: tuple[str, ...]) -> str:
        """Have these nodes and some others ping one another now, and return the result as
        `oncall probe` prints it; the next world includes it. Raises UsageError of a recording."""

    def rules(self) -> tuple[RuleLine, ...]:
        """The rulebooks in force, with what came of them."""

    def rule_text(self, name: str) -> str:
        """A rulebook's YAML."""

    def check(self, text: str) -> tuple[Problem, ...]:
        """What is wrong with a rulebook's text; nothing: it can run."""

    def dry_run(self, name: str, text: str) -> DryRun:
        """Which verdicts on the present world would change if `text` took the rulebook's place."""

    def run_fact(self, name: str, text: str, fact: str) -> Table:
        """The rows of one fact of a rulebook being edited."""

    def save_rule(self, name: str, text: str) -> Path:
        """Write to the site's folder of rulebooks, never to the shipped one; returns the file."""

    def new_rule(self, name: str) -> str:
        """The text of a new rulebook, to fill in."""

    def test_rules(self, name: str, text: str) -> Table:
        """The rulebook's own tests on a text of it: name, result, and what differs."""

    def save(self, path: Path) -> None:
        """Write the whole evidence to an incident file."""

    def report(self, style: str, notes: str = "") -> str:
        """The diagnosis as `text`, `markdown` or `json`, with the reader's notes."""

    def cancel(self, lane: Lane | None = None) -> None:
        """Stop what a lane (None: each) computes or gathers; it raises Interrupted."""

    def close(self) -> None:
        """Let go of everything: no child, file or connection stays."""
