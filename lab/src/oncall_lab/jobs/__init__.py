"""Jobs as people run them, recorded by PyTorch's Flight Recorder.

scenario, fault    what is asked for; layout: process groups
program            what a host enqueues: kernels, collectives, send/recv, waits
training, pipelines, serving    the programs, step by step
play               host and device of every rank, and who waits for whom
record             one dump a rank; simulation: the answer, as a judge reads it
"""

from __future__ import annotations

from oncall_lab.jobs.fault import JobFault
from oncall_lab.jobs.scenario import JobScenario
from oncall_lab.jobs.simulation import simulate_job

__all__ = ["JobFault", "JobScenario", "simulate_job"]
