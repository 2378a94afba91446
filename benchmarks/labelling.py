"""How fast a node labels its calls, and how right the labels are.

    python benchmarks/labelling.py [--iterations 40]
    python benchmarks/labelling.py right [--jobs-each 4] [--first 20000] [--schedules GPipe]

Fast: operations a second on one core, of 8 ranks of a pipeline. Right: jobs as
`oncall_lab.drawn.pipeline` draws them, so many of each schedule, each recorded in several ways.
A label is right if the simulator's own task that its rank ran at that time has the same name
(iteration, stage, chunk, micro-batch, forward or backward); iterations may be counted from any
first one. What hooks record is labelled on each node by itself, and all at once; calls alone are
logs, which come together.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from oncall.evidence.incident import Incident
from oncall_lab.drawn.pipeline import experiment
from oncall_lab.pipeline.play import play
from oncall_lab.pipeline.record import record
from oncall_lab.pipeline.scenario import PipelineScenario
from oncall_lab.pipeline.schedule import SCHEDULES
from oncall_lab.pipeline.simulation import simulate_pipeline

NEEDED = ("members", "operations", "in_flight")
SOUND: dict[str, Any] = {"holes": 0.0, "starts_in": 0.0, "evaluate_every": 0, "iterations": 10}
RECORDERS = ("hooks of a node", "hooks", "calls")
RECORDINGS: dict[str, dict[str, Any]] = {
    "whole": {},
    "holes": {"holes": 0.002},
    "evaluations": {"evaluate_every": 5},
    "begins within": {"starts_in": 0.4},
}
TRUE_COLUMNS = "job, rank, iteration, task, stage, chunk, micro_batch, started_ns, ended_ns, whole"

# Tasks there were while calls were recorded, labels, and of these the right and the placeless.
_COMPARED = """
    WITH labels AS (
        SELECT rank, iteration, task, stage, chunk, micro_batch,
            (coalesce(started_ns, first_call_ns, ended_ns)
                + coalesce(ended_ns, last_call_ns, started_ns)) // 2 AS at_ns
        FROM labelled_tasks WHERE task IN ('forward', 'backward')),
    truth AS (
        FROM stage_tasks WHERE task IN ('forward', 'backward', 'evaluation') AND peer IS NULL
            AND rank IN (SELECT rank FROM operations)
            AND ended_ns > (SELECT min(called_ns) FROM operations)),
    met AS (
        SELECT t.iteration - l.iteration AS ahead,
            l.task = t.task AND l.chunk = t.chunk AND l.micro_batch = t.micro_batch
                AND l.stage IS NOT DISTINCT FROM t.stage AS same,
            l.stage IS NULL AS placeless
        FROM labels l ASOF LEFT JOIN truth t ON l.rank = t.rank AND l.at_ns >= t.started_ns)
    SELECT (SELECT count(*) FROM truth WHERE task <> 'evaluation'), count(*),
        count(*) FILTER (same AND ahead = (SELECT mode(ahead) FROM met)),
        count(*) FILTER (placeless)
    FROM met
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("fast", "right"), default="fast")
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--jobs-each", type=int, default=4)
    parser.add_argument("--first", type=int, default=20_000)
    parser.add_argument("--schedules", default=",".join(SCHEDULES))
    parser.add_argument("--verbose", action="store_true")
    asked = parser.parse_args()
    if asked.what == "fast":
        speed(asked.iterations)
    else:
        accuracy(asked.schedules.split(","), asked.jobs_each, asked.first, asked.verbose)
    print(f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")


# ------------------------------------------------------------------------ fast


def speed(iterations: int) -> None:
    """Print operations a second."""
    for name, change in (
        ("TP 2, PP 4, 1F1B", {"tp": 2, "pp": 4}),
        ("TP 1, PP 8, 1F1B", {"tp": 1, "pp": 8}),
        ("TP 2, PP 4, interleaved", {"tp": 2, "pp": 4, "schedule": "interleaved", "chunks": 2}),
    ):
        scenario = PipelineScenario(iterations=iterations, dp=1, layers=48, **change)
        incident, _ = simulate_pipeline(scenario)
        with incident:
            incident.con.execute("SET threads = 1")
            incident.require(NEEDED)
            operations = incident.rows("ops")
            began, before = time.perf_counter(), time.process_time()
            incident.require(["labelled_tasks"])
            took_s, cpu_s = time.perf_counter() - began, time.process_time() - before
            tasks = incident.rows("labelled_tasks")
        print(
            f"{name:26} {operations:9,} operations {tasks:7,} tasks {took_s:6.2f} s "
            f"{cpu_s:6.2f} s of CPU {operations / cpu_s:11,.0f} operations/s"
        )


# ------------------------------------------------------------------------ right


@dataclass(frozen=True)
class Score:
    """Tasks there were, labels, of these the right ones and those without a stage."""

    tasks: int = 0
    labels: int = 0
    right: int = 0
    placeless: int = 0

    def __add__(self, other: Score) -> Score:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Score(*(a + b for a, b in pairs))

    def __str__(self) -> str:
        of_labels, of_tasks = (
            100 * self.right / max(1, whole) for whole in (self.labels, self.tasks)
        )
        return f"{of_labels:.1f} / {of_tasks:.1f} %"


def accuracy(schedules: Sequence[str], each: int, first: int, verbose: bool) -> None:
    """Print, by schedule, what is stated and recorder: how many of the labels are right, and how
    many of the tasks have a right one."""
    print(f"| labels / tasks that are right | {' | '.join(RECORDINGS)} |")
    print("|---" * (1 + len(RECORDINGS)) + "|")
    for schedule in schedules:
        scores: dict[tuple[Any, ...], Score] = {}
        for seed, job in jobs(schedule, each, first):
            for key, score in recorded(job):
                scores[key] = scores.get(key, Score()) + score
                if verbose and score.right < score.labels:
                    print(f"seed {seed}: {key} {score}", flush=True)
        for reported, recorder in product((True, False), RECORDERS):
            cells = [str(scores[reported, recorder, name]) for name in RECORDINGS]
            name = f"{schedule}, {'stated' if reported else 'not stated'}, {recorder}"
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


def jobs(schedule: str, count: int, first: int) -> Iterator[tuple[int, PipelineScenario]]:
    """So many drawn jobs of a schedule: seed and scenario."""
    seed = first
    while count:
        drawn = experiment("healthy", seed)
        if drawn.schedule == schedule:
            yield seed, replace(drawn, **SOUND)
            count -= 1
        seed += 1


def recorded(job: PipelineScenario) -> Iterator[tuple[tuple[Any, ...], Score]]:
    """A job recorded in every way: what is stated, the recorder, the recording, and its score."""
    for name, change in RECORDINGS.items():
        scenario = replace(job, **change, recorder="hooks")
        played, changed = play(scenario), replace(scenario, recorder="tasks", starts_in=0.0)
        with record(changed, play(changed)) as trainer:
            truth = trainer.con.execute(f"SELECT {TRUE_COLUMNS} FROM stage_tasks").fetchnumpy()
        for is_reported, recorder in product((True, False), RECORDERS):
            how = replace(scenario, configuration_stated=is_reported, recorder=recorder.split()[0])
            nodes = range(how.nodes if recorder == "hooks of a node" else 1)
            silent = [tuple(set(nodes) - {node}) for node in nodes]
            shares = (compare(record(replace(how, missing_nodes=s), played), truth) for s in silent)
            yield (is_reported, recorder, name), sum(shares, Score())


def compare(incident: Incident, truth: dict[str, Any]) -> Score:
    """The labels of a recording against what the trainer says of its tasks."""
    with incident:
        incident.require(["labelled_tasks"])
        incident.append("stage_tasks", truth)
        (row,) = incident.con.execute(_COMPARED).fetchall()
    return Score(*row)


if __name__ == "__main__":
    main()
