"""The papers' algorithms as relations, one idea a file; importing this registers them all."""

# ruff: noqa: I001, F401 - imported for what they register, each after what it reads
from oncall.analysis import operations
from oncall.analysis import peers
from oncall.analysis import unheard
from oncall.analysis import progress
from oncall.analysis import halted
from oncall.analysis import waits
from oncall.analysis import roots
from oncall.analysis import hang
from oncall.analysis import transfers
from oncall.analysis import longest_wait
from oncall.analysis import arrivals
from oncall.analysis import rounds
from oncall.analysis import own_time
from oncall.analysis import event_meanings
from oncall.analysis import nic_rates
from oncall.analysis import gpu_states
from oncall.analysis import host_states
from oncall.analysis import node_events
from oncall.analysis import latency_split
from oncall.analysis import ring_neighbours
from oncall.analysis import algorithm_bandwidth
from oncall.analysis import bandwidth_periods
from oncall.analysis import collective_alignment
from oncall.analysis import nic_use
from oncall.analysis import latency_shares
from oncall.analysis import node_metrics
from oncall.analysis import nic_signs
from oncall.analysis import late_ranks
from oncall.analysis import host_signs
from oncall.analysis import job_traffic
from oncall.analysis import queue_pairs
from oncall.analysis import flows
from oncall.analysis import active_peers
from oncall.analysis import expected_traffic
from oncall.analysis import traffic
