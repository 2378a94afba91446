"""Pipelines of training iterations, task by task, with slack that is real (VenusTrace).

scenario, fault    what is asked for; drawn/: the experiments of VenusTrace 5.1
schedule           the order of tasks on each stage: 1F1B, interleaved, GPipe
layout, calls      who is in which group; what a task calls
pace               how long ranks compute
ranks, passing     who waits for whom in a pass; play: iteration after iteration
log                the calls and tasks that come of it
record, simulation evidence rows, and the answer
"""

from __future__ import annotations

from oncall_lab.pipeline.fault import PipelineFault
from oncall_lab.pipeline.scenario import PipelineScenario
from oncall_lab.pipeline.simulation import simulate_pipeline

__all__ = ["PipelineFault", "PipelineScenario", "simulate_pipeline"]
