"""How often the analysis of pipeline stages is right: VenusTrace's experiments over fresh seeds.

    python benchmarks/accuracy_stages.py [--seeds 10] [--first 9000] [--kinds hang,delay] [--jobs 2]
    python benchmarks/accuracy_stages.py --set configuration_stated=false --set recorder=calls
    python benchmarks/accuracy_stages.py thresholds [--seeds 10] [--first 9000]

Each experiment is a simulated pipeline (`oncall_lab.drawn.pipeline`), most of them recorded as
the hooks record it, diagnosed with all rulebooks as they are shipped. Whether a delay costs
anything is known from the same training without it (VenusTrace 5.1): from a tenth of an iteration
on it is to be found, below 3 % nothing may be, and in between either is right. A finding is right
if it names the rank, of a transmission one of its two ends, and nobody else; the right stage is
the one the fault was put into. `thresholds` repeats the delays over the threshold at which a task
is slow (Figure 14).
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

COSTS, FREE = 1.10, 1.03
# VenusTrace 5.2, Figure 8: F1 in percent.
PAPER = {"hang": "100", "delay": "95"}


@dataclass(frozen=True)
class Claim:
    """One finding: who is blamed, and where in the pipeline."""

    verdict: str
    ranks: frozenset[int]
    machines: frozenset[str]
    stages: frozenset[int]
    root: bool  # not the consequence of another, and more than information or a pause


@dataclass(frozen=True)
class Experiment:
    """One simulated job. `ends`: the ranks that are right to name; `slowdown`: of its longest
    iteration, infinity for a hang."""

    kind: str
    name: str
    ends: frozenset[int]
    stages: frozenset[int]
    slowdown: float
    claims: tuple[Claim, ...]
    simulation_s: float
    diagnosis_s: float

    @property
    def is_to_be_found(self) -> bool:
        return self.slowdown >= COSTS

    @property
    def right(self) -> tuple[Claim, ...]:
        return tuple(c for c in self._accusing if c.ranks and c.ranks <= self.ends)

    @property
    def wrong(self) -> tuple[Claim, ...]:
        """Findings that accuse somebody else, or anybody where nothing was lost."""
        quiet = self.slowdown < FREE
        return tuple(c for c in self._accusing if quiet or not (c.ranks and c.ranks <= self.ends))

    @property
    def right_stage(self) -> bool:
        return any(c.stages and c.stages <= self.stages for c in self.claims)

    @property
    def _accusing(self) -> tuple[Claim, ...]:
        return tuple(c for c in self.claims if c.root and (c.ranks or c.machines))


Pairs: TypeAlias = tuple[tuple[str, str], ...]


def run_one(task: tuple[str, int, Pairs, Pairs]) -> Experiment:
    """Simulate and diagnose one experiment: (kind, seed, rules' parameters, scenario's keys)."""
    from ruamel.yaml import YAML

    from oncall.rules.language.load import load_rulebooks, shipped_folder
    from oncall.use_case.diagnose import diagnose
    from oncall_lab.drawn.pipeline import experiment
    from oncall_lab.pipeline import simulate_pipeline
    from oncall_lab.pipeline.scenario import PipelineScenario
    from oncall_lab.scenario import read_fields

    kind, seed, overrides, keys = task
    scenario = experiment(kind, seed)
    changed = {key: YAML(typ="safe").load(value) for key, value in keys}
    scenario = replace(scenario, **read_fields(PipelineScenario, changed, place="--set"))
    began = time.perf_counter()
    incident, truth = simulate_pipeline(scenario)
    simulated = time.perf_counter()
    with incident:
        found = diagnose(incident, load_rulebooks([shipped_folder()]), overrides=dict(overrides))
    claims = tuple(map(_claim, found.findings))
    ends, stages, slowdown, what = _truth(scenario, truth)
    name = (
        f"{kind} seed {seed}: {scenario.schedule} TP{scenario.tp} PP{scenario.pp} DP{scenario.dp} "
        f"CP{scenario.cp} EP{scenario.ep} {scenario.recorder} "
        f"{'stated' if scenario.configuration_stated else 'not stated'}{what}"
    )
    ended = time.perf_counter()
    return Experiment(
        kind, name, ends, stages, slowdown, claims, simulated - began, ended - simulated
    )


def _claim(finding: Any) -> Claim:
    where = [blamed.where for blamed in finding.blame]

    def named(*keys: str) -> frozenset[Any]:
        return frozenset(w[key] for w in where for key in keys if w.get(key) is not None)

    return Claim(
        finding.verdict,
        named("rank", "peer"),
        named("node", "peer_node"),
        named("stage", "from_stage"),
        finding.explained_by is None and finding.severity != "info",
    )


def _truth(scenario: Any, truth: Any) -> tuple[frozenset[int], frozenset[int], float, str]:
    if not truth.faults:
        return frozenset(), frozenset(), 1.0, ""
    (fault,) = truth.faults
    ends = {*fault.ranks, *fault.peers}
    stages = {rank // (scenario.tp * scenario.lanes) for rank in ends}
    slowdown = float("inf") if fault.kind == "hang" else fault.slowdown
    cost = "" if fault.kind == "hang" else f", {fault.slowdown:.2f} times as long"
    place = f" {fault.how} of {fault.micro_batch}" if fault.how else ""
    what = (
        f", {fault.kind}{place} on rank {fault.ranks[0]}, stage {fault.stage}, "
        f"iteration {fault.iteration}{cost}"
    )
    return frozenset(ends), frozenset(stages), slowdown, what


# ------------------------------------------------------------------------ scores


def scores(experiments: Sequence[Experiment], kinds: Iterable[str]) -> Iterator[str]:
    """A line a kind of experiment."""
    yield "| experiments | to be found | F1 | precision | recall | right stage | VenusTrace F1 |"
    yield "|---|---|---|---|---|---|---|"
    for kind in kinds:
        mine = [e for e in experiments if e.kind == kind]
        faults = [e for e in mine if e.is_to_be_found]
        if not faults:
            continue
        precision, recall, f1 = rates(mine)
        found = [e for e in faults if e.right]
        staged = sum(e.right_stage for e in found) / max(1, len(found))
        yield (
            f"| {kind}: {len(mine)} | {len(faults)} | {100 * f1:.1f} % | {100 * precision:.1f} % | "
            f"{100 * recall:.1f} % | {100 * staged:.1f} % | {PAPER.get(kind, '')} |"
        )
    yield ""
    for what, quiet in (
        ("delays that cost less than 3 %", [e for e in experiments if len(e.ends) and
                                            e.slowdown < FREE]),
        ("healthy jobs", [e for e in experiments if e.kind == "healthy"]),
        ("jobs imbalanced by design", [e for e in experiments if e.kind == "design"]),
    ):  # fmt: skip
        blamed = sum(bool(e.wrong) for e in quiet)
        yield f"- {what}: {len(quiet)}, of which {blamed} with somebody blamed"


def rates(experiments: Iterable[Experiment]) -> tuple[float, float, float]:
    """Precision, recall and F1 (VenusTrace 5.1)."""
    experiments = list(experiments)
    true = sum(bool(e.right) for e in experiments if e.is_to_be_found)
    missed = sum(not e.right for e in experiments if e.is_to_be_found)
    false = sum(bool(e.wrong) for e in experiments)
    precision = true / (true + false) if true + false else float("nan")
    recall = true / (true + missed) if true + missed else float("nan")
    return precision, recall, 2 * true / max(1, 2 * true + false + missed)


def thresholds(
    pool: Any, seeds: Iterable[int], parameter: str, values: Sequence[str], keys: Pairs
) -> None:
    """Precision and recall of delays over one parameter (Figure 14)."""
    seeds = list(seeds)
    print(f"| {parameter} | precision | recall | F1 |\n|---|---|---|---|")
    for value in values:
        tasks = [("delay", seed, ((parameter, value),), keys) for seed in seeds]
        found = pool.map(run_one, tasks)
        precision, recall, f1 = rates(found)
        print(f"| {value} | {100 * precision:.1f} % | {100 * recall:.1f} % | {100 * f1:.1f} % |")


def main() -> None:
    from oncall_lab.drawn.pipeline import EXPERIMENTS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("experiments", "thresholds"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=9000)
    parser.add_argument("--kinds", default=",".join(EXPERIMENTS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--parameter", default="stages.slow_iteration")
    parser.add_argument("--values", default="5 %,10 %,25 %,50 %,75 %,100 %,200 %")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    asked = parser.parse_args()
    keys = tuple((pair.partition("=")[0], pair.partition("=")[2]) for pair in asked.set)
    kinds, seeds = asked.kinds.split(","), range(asked.first, asked.first + asked.seeds)
    experiments = []
    with multiprocessing.get_context("spawn").Pool(asked.jobs, maxtasksperchild=16) as pool:
        if asked.what == "thresholds":
            thresholds(pool, seeds, asked.parameter, asked.values.split(","), keys)
            return
        tasks: list[tuple[str, int, Pairs, Pairs]] = [
            (k, seed, (), keys) for k in kinds for seed in seeds
        ]
        for e in pool.imap_unordered(run_one, tasks):
            experiments.append(e)
            good = not e.wrong and (not e.is_to_be_found or (e.right and e.right_stage))
            if asked.verbose or not good:
                reported = [
                    (c.verdict, sorted(c.ranks), sorted(c.stages)) for c in e.claims if c.root
                ]
                print(f"{'right' if good else 'WRONG'} {e.name}: {reported}", flush=True)
    print("\n".join(scores(experiments, kinds)))
    took = sorted(e.diagnosis_s for e in experiments)
    print(f"\ndiagnosis: median {took[len(took) // 2]:.1f} s, longest {took[-1]:.1f} s")


if __name__ == "__main__":
    main()
