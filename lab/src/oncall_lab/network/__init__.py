"""A network on which a collective meets others: queues, pauses, ways (Vedrfolnir IV-A).

scenario           what is asked for; drawn/: the paper's cases from a seed
topology, routing  a fat tree, and the ways through it
collective         messages that wait for messages
flow, faults       what others send, and what a fault brings; plan: all of it, definite
queues, congestion bytes as a fluid, priority flow control, senders that give way
measure, play      what switches count; the run
record, asked      evidence rows: all reports, or those that late senders asked for
host_counters, host_traffic  what hosts alone count, where switches are silent
simulation         the answer: what would be without the fault
"""

from __future__ import annotations

from oncall_lab.network.scenario import NetworkFault, NetworkScenario
from oncall_lab.network.simulation import simulate_network

__all__ = ["NetworkFault", "NetworkScenario", "simulate_network"]
