"""The lab: simulated jobs that leave evidence as real ones do, with faults that are known.

scenario, truth     what every simulation is asked for, and its answer; simulation: all kinds
training/           ranks that meet in NCCL operations; measured/: NICs, GPUs and hosts around them
jobs/               jobs as people run them, by host and device, as Flight Recorder dumps
pipeline/           the tasks of pipeline stages, which have slack or have none
traffic/            what ranks transmit, microsecond by microsecond
network/            a collective among other flows on switches, with queues and pauses
recording, shards   rows on nodes' clocks; a data folder a node. files: an incident on disk
drawn/              random scenarios, for benchmarks and laws; nothing else here knows them

No analysis is imported: where both need the same physics, each has its own, so that they can
disagree.
"""

from __future__ import annotations

from oncall_lab.files import write
from oncall_lab.simulation import simulate
from oncall_lab.training.fault import TrainingFault
from oncall_lab.training.scenario import TrainingScenario
from oncall_lab.truth import FaultTruth, Truth

__all__ = ["FaultTruth", "TrainingFault", "TrainingScenario", "Truth", "simulate", "write"]
