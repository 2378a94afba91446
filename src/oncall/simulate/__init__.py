"""A simulated training cluster that writes evidence, with faults and ground truth.

scenario, fault     what is asked for; draw: a random one
cluster, schedule   ranks and groups; the operations of a training step (1F1B)
training, meeting   who waits for whom, step after step
effects             what a fault does; disturbance: what healthy training does
algorithm           how far data gets in a ring or tree when somebody stands still
operations          meetings as rows; recorder: what was seen of them
truth, simulation   the answer; all of it together
traffic             another kind of scenario: what ranks transmit, microsecond by microsecond
network             a third: a collective among other flows on switches, with queues and pauses
pipeline            a fourth: the tasks of pipeline stages, which have slack or have none
load                a scenario file of any kind
"""

from __future__ import annotations

from oncall.simulate.fault import Fault
from oncall.simulate.scenario import Scenario
from oncall.simulate.simulation import simulate, write
from oncall.simulate.truth import FaultTruth, Truth

__all__ = ["Fault", "FaultTruth", "Scenario", "Truth", "simulate", "write"]
