"""How long drawing an iteration takes, once its trace graph is known.

    python benchmarks/stage_pictures.py [--world TP,PP,DP ...]

Reading one pipeline's timeline from the incident, its text and its SVG, what the console asks
for, and the tracks of all iterations and ranks for Perfetto.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

from oncall.core.units import format_duration
from oncall.render.svg.stages import timeline_svg
from oncall.render.text.stages import timeline_lines
from oncall.views import incident_tracks
from oncall.views.stages import iterations as evidence
from oncall.views.stages.iteration import stages_of
from oncall_lab.pipeline import PipelineFault, PipelineScenario, simulate_pipeline

WORLDS = ("2,4,8", "8,16,8", "8,16,32")
MICRO_BATCHES, ITERATIONS, SLOW = 16, 3, 2


def took(call: Callable[[], Any]) -> str:
    """The best of three, as text."""
    best = float("inf")
    for _ in range(3):
        begun = time.perf_counter_ns()
        call()
        best = min(best, time.perf_counter_ns() - begun)
    return format_duration(best)


def row(world: str) -> str:
    tp, pp, dp = map(int, world.split(","))
    fault = PipelineFault("delay", rank=tp * dp, iteration=SLOW)
    scenario = PipelineScenario(
        recorder="tasks", tp=tp, pp=pp, dp=dp, layers=pp, micro_batches=MICRO_BATCHES,
        iterations=ITERATIONS, faults=(fault,),
    )  # fmt: skip
    incident, _ = simulate_pipeline(scenario)
    with incident:
        evidence.has_stages(incident)
        incident_tracks.prepare(incident)
        drawn = evidence.timeline(incident, SLOW)
        cells = [
            f"{scenario.world_size:,}",
            f"{incident.rows('stage_work'):,}",
            took(lambda: evidence.timeline(incident, SLOW)),
            took(lambda: timeline_lines(drawn)),
            took(lambda: timeline_svg(drawn)),
            took(lambda: stages_of(incident, SLOW, None, every_rank=False)),
            took(lambda: sum(1 for _ in incident_tracks.events(incident))),
            f"{os.getloadavg()[0]:.1f}",
        ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", action="append", metavar="TP,PP,DP")
    worlds = parser.parse_args().world or WORLDS
    print("| ranks | tasks | read a pipeline | text | SVG | console | tracks of all ranks | load |")
    print("|---|---|---|---|---|---|---|---|")
    for world in worlds:
        print(row(world), flush=True)


if __name__ == "__main__":
    main()
