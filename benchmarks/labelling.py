"""How fast a node labels its calls: operations a second on one core, of 8 ranks of a pipeline.

python benchmarks/labelling.py [--iterations 40]
"""

from __future__ import annotations

import argparse
import os
import time

import oncall.analysis
from oncall.simulate.pipeline.scenario import PipelineScenario
from oncall.simulate.pipeline.simulation import simulate_pipeline

assert oncall.analysis
NEEDED = ("members", "operations", "in_flight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=40)
    iterations = parser.parse_args().iterations
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
    print(f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
