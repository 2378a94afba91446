"""What every rank really transmits between nodes, microsecond by microsecond (Pulse).

scenario, fault    what is asked for; drawn/: the experiments of Pulse 8.1
conditions         what a fault does to links, proxy threads and GPUs
ring, tree         slices over channels, held back by data that is missing and buffers that are full
exchange           Send and Recv in groups, sharing links
play               iteration after iteration; workload: which operations those are
epochs             slices as a NIC or a shim measures them
record, simulation evidence rows, and the answer
"""

from __future__ import annotations

from oncall_lab.traffic.fault import TrafficFault
from oncall_lab.traffic.scenario import TrafficScenario
from oncall_lab.traffic.simulation import simulate_traffic

__all__ = ["TrafficFault", "TrafficScenario", "simulate_traffic"]
