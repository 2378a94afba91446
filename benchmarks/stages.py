"""How long the analysis of pipeline stages takes, from 64 to 16,384 ranks (VenusTrace, Figure 9).

    python benchmarks/stages.py [--ranks 64,512,4096] [--shape 2x4] [--iterations 8]
    python benchmarks/stages.py --shape 8x16 --ranks 2048,16384

A simulated training of TP x PP and as many replicas as the ranks make, 8 micro-batches (16 of 16
stages), with one delay; its tasks are there as nodes tell them. `all` analyses every pipeline of
every iteration; `slowest` the eight pipelines that took longest in the slowest iteration, which is
all that is left to ask for when nodes have recorded how long each iteration took them. Each
measurement is a process of its own, with its highest memory.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from typing import Any

FAULT_FROM_END = 2
SLOWEST = 8  # pipelines


def measure(tp: int, pp: int, ranks: int, iterations: int, slowest: bool) -> dict[str, Any]:
    """Simulate, reduce if asked, and diagnose: seconds and MiB."""
    from oncall.rules.engine.engine import run
    from oncall.rules.language.load import load_rulebooks, shipped_folder
    from oncall_lab.pipeline import PipelineFault, PipelineScenario, simulate_pipeline

    rank = ranks // 2 + 1
    fault = PipelineFault("delay", rank, iterations - FAULT_FROM_END, "backward", 3, delay_ns=10**9)
    scenario = PipelineScenario(
        tp=tp, pp=pp, dp=ranks // (tp * pp), layers=pp, micro_batches=max(8, pp),
        iterations=iterations, recorder="tasks", faults=(fault,),
    )  # fmt: skip
    incident, _ = simulate_pipeline(scenario)
    books = [book for book in load_rulebooks([shipped_folder()]) if book.name == "stages"]
    with incident:
        incident.provide(["stage_layout"])
        if slowest:
            incident.con.execute(_KEEP_SLOWEST, {"slowest": SLOWEST})
        rows = incident.rows("stage_tasks")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        began = time.perf_counter()
        outcome = run(incident, books)
        took = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    right = any(b.where.get("rank") == rank for f in outcome.findings for b in f.blame)
    return {"rows": rows, "took_s": took, "before": before, "after": after, "right": right}


_KEEP_SLOWEST = """
    DELETE FROM stage_tasks WHERE (rank, iteration) NOT IN (
        WITH each AS (
            SELECT replica, iteration, max(ended_ns) - min(started_ns) AS took_ns
            FROM stage_tasks JOIN stage_layout USING (job, rank)
            WHERE task IN ('forward', 'backward') GROUP BY ALL),
        slow AS (
            SELECT iteration FROM each WHERE iteration >= 2  -- the first ones are slow anyway
            GROUP BY iteration ORDER BY max(took_ns) DESC LIMIT 1),
        pipelines AS (
            SELECT replica FROM each WHERE iteration IN (FROM slow)
            ORDER BY took_ns DESC LIMIT $slowest)
        SELECT l.rank, t.iteration FROM stage_layout l JOIN pipelines USING (replica)
        CROSS JOIN (SELECT DISTINCT iteration FROM stage_tasks) t)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="64,256,1024")
    parser.add_argument("--shape", default="2x4", help="tensor-parallel ranks x pipeline stages")
    parser.add_argument("--iterations", type=int, default=8)
    asked = parser.parse_args()
    tp, pp = (int(part) for part in asked.shape.split("x"))
    print(f"| ranks (TP{tp} PP{pp}) | tasks | all | a single iteration | slowest | memory |")
    print("|---|---|---|---|---|---|")
    for ranks in (int(part) for part in asked.ranks.split(",")):
        reported = []
        for slowest in (False, True):
            # Memory counts from the start of a process.
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                task = (tp, pp, ranks, asked.iterations, slowest)
                reported.append(pool.apply(measure, task))
        whole, part = reported
        wrong = "" if whole["right"] and part["right"] else " (rank not found)"
        print(
            f"| {ranks:,} | {whole['rows']:,} | {whole['took_s']:.2f} s | "
            f"{whole['took_s'] / asked.iterations:.2f} s | {part['took_s']:.2f} s | "
            f"{whole['after']:,.0f} MiB, {whole['after'] - whole['before']:,.0f} of them for the "
            f"analysis |{wrong}",
            flush=True,
        )


if __name__ == "__main__":
    main()
