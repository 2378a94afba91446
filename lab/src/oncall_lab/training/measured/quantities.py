"""The quantities of devices and nodes that faults change. Units are in the comments."""

from __future__ import annotations

from oncall_lab.training.measured.condition import Combine, Quantity

# What slows training down; 1 is healthy, 0 stands still.
GPU_SPEED = Quantity("gpu_speed", 1.0, Combine.TIMES)  # of kernels
HOST_SPEED = Quantity("host_speed", 1.0, Combine.TIMES)  # share of time the host feeds the GPU
NVLINK_SPEED = Quantity("nvlink_speed", 1.0, Combine.TIMES)
WIRE_SPEED = Quantity("wire_speed", 1.0, Combine.TIMES)  # of the line: what data gets of it
NIC_SPEED = Quantity("nic_speed", 1.0, Combine.TIMES)  # of the adapter itself
PROXY_SPEED = Quantity("proxy_speed", 1.0, Combine.TIMES)  # of NCCL's proxy thread

# The NIC and its links.
LINE_RATE = Quantity("line_rate", 1.0, Combine.TIMES)  # negotiated rate, of the nominal one
LINK_UP = Quantity("link_up", 1.0, Combine.SET)
LINK_DOWNS = Quantity("link_downs", 0.0, Combine.PLUS)  # a second
LINK_ERRORS = Quantity("link_errors", 0.0, Combine.PLUS)  # a second
CORRECTED_BITS = Quantity("corrected_bits", 0.0, Combine.PLUS)  # a second
LOSS = Quantity("loss", 0.0, Combine.PLUS)  # share of packets lost on the NIC's link
TIMEOUTS = Quantity("timeouts", 0.0, Combine.PLUS)  # a second, of senders to this NIC
MARKS = Quantity("marks", 0.0, Combine.PLUS)  # share of packets to this NIC that get ECN marks
NIC_WIDTH = Quantity("nic_width", 16, Combine.SET)  # lanes
NIC_GEN_LOSS = Quantity("nic_gen_loss", 0, Combine.PLUS)  # generations below the possible one
NIC_PCIE_ERRORS = Quantity("nic_pcie_errors", 0.0, Combine.PLUS)  # a second
PCIE_GOODPUT = Quantity("pcie_goodput", 1.0, Combine.TIMES)  # share left after replays
STALLED = Quantity("stalled", 0.0, Combine.PLUS)  # share of time the NIC cannot take data in
RX_LOSS = Quantity("rx_loss", 0.0, Combine.PLUS)  # share of packets that the NIC itself drops
PAUSE_STORMS = Quantity("pause_storms", 0.0, Combine.PLUS)  # a second
PAUSED = Quantity("paused", 0.0, Combine.PLUS)  # share of time that the network pauses the NIC
STORAGE_TRAFFIC = Quantity("storage_traffic", 0.0, Combine.PLUS)  # bytes a second, each way
IN_ORDINARY = Quantity("in_ordinary", 0.0, Combine.SET)  # 1: training in the ordinary priority
BY_SOCKETS = Quantity("by_sockets", 0.0, Combine.SET)  # 1: training over TCP
OTHER_TRAFFIC = Quantity("other_traffic", 0.0, Combine.PLUS)  # bytes a second, each direction

# The GPU.
SM_CLOCK = Quantity("sm_clock", 1.0, Combine.TIMES)  # of the clock it would have
POWER_LIMIT = Quantity("power_limit", 1.0, Combine.TIMES)
POWER = Quantity("power", 1.0, Combine.TIMES)  # of the power it would draw above idle
HEAT = Quantity("heat", 0.0, Combine.PLUS)  # K
GPU_WIDTH = Quantity("gpu_width", 16, Combine.SET)  # lanes
GPU_GEN_LOSS = Quantity("gpu_gen_loss", 0, Combine.PLUS)
GPU_REPLAYS = Quantity("gpu_replays", 0.0, Combine.PLUS)  # a second
THROTTLED_POWER = Quantity("throttled_power", 0.0, Combine.SET)  # 1: the reason is reported
THROTTLED_HEAT = Quantity("throttled_heat", 0.0, Combine.SET)
THROTTLED_HARD_HEAT = Quantity("throttled_hard_heat", 0.0, Combine.SET)
THROTTLED_HARDWARE = Quantity("throttled_hardware", 0.0, Combine.SET)  # no reason beside it
THROTTLED_BRAKE = Quantity("throttled_brake", 0.0, Combine.SET)

ECC_CORRECTED = Quantity("ecc_corrected", 0.0, Combine.PLUS)  # a second
ECC_UNCORRECTED = Quantity("ecc_uncorrected", 0.0, Combine.PLUS)  # a second
REMAPPED_ROWS = Quantity("remapped_rows", 0.0, Combine.PLUS)
REMAP_FAILED = Quantity("remap_failed", 0.0, Combine.SET)
NVLINK_ERRORS = Quantity("nvlink_errors", 0.0, Combine.PLUS)  # a second
NVLINKS_DOWN = Quantity("nvlinks_down", 0.0, Combine.PLUS)
OTHER_PROCESSES = Quantity("other_processes", 0.0, Combine.PLUS)
MEMORY_FILL = Quantity("memory_fill", 0.0, Combine.PLUS)  # share of GPU memory beyond normal use

# Latency, of probes.
NETWORK_LATENCY = Quantity("network_latency", 0.0, Combine.PLUS)  # ns, at this NIC's port
HOST_LATENCY = Quantity("host_latency", 0.0, Combine.PLUS)  # ns, within this NIC's host
PROBE_LOSS = Quantity("probe_loss", 0.0, Combine.PLUS)  # share of probes
RDMA_PROBE_LOSS = Quantity("rdma_probe_loss", 0.0, Combine.PLUS)  # of those end to end

# The host.
CPU_BUSY = Quantity("cpu_busy", 0.0, Combine.PLUS, of_nodes=True)  # share
CPU_PRESSURE = Quantity("cpu_pressure", 0.0, Combine.PLUS, of_nodes=True)
IO_PRESSURE = Quantity("io_pressure", 0.0, Combine.PLUS, of_nodes=True)
MEMORY_PRESSURE = Quantity("memory_pressure", 0.0, Combine.PLUS, of_nodes=True)
CPU_CLOCK = Quantity("cpu_clock", 1.0, Combine.TIMES, of_nodes=True)
MEMORY_TAKEN = Quantity("memory_taken", 0.0, Combine.PLUS, of_nodes=True)  # share
MEMORY_CORRECTED = Quantity("memory_corrected", 0.0, Combine.PLUS, of_nodes=True)  # a second
MEMORY_UNCORRECTED = Quantity("memory_uncorrected", 0.0, Combine.PLUS, of_nodes=True)  # a second
SWAPPED = Quantity("swapped", 0.0, Combine.PLUS, of_nodes=True)  # bytes

# A training process on its host.
CPU_QUOTA = Quantity("cpu_quota", 0.0, Combine.SET)  # CPUs of its control group; 0: no quota
CPU_SHARE = Quantity("cpu_share", 1.0, Combine.TIMES)  # of the CPU time it wants
QUOTA_THROTTLED = Quantity("quota_throttled", 0.0, Combine.PLUS)  # share of time
WAITING_FOR_CPU = Quantity("waiting_for_cpu", 0.0, Combine.PLUS)  # share of time
CPUS_ALLOWED = Quantity("cpus_allowed", 0.0, Combine.SET)  # 0: those of its NUMA node
UNBOUND = Quantity("unbound", 0.0, Combine.SET)  # 1: it may use every CPU of its host
FOREIGN_NUMA = Quantity("foreign_numa", 0.0, Combine.SET)  # 1: bound to another NUMA node
MAJOR_FAULTS = Quantity("major_faults", 0.0, Combine.PLUS)  # a second
READ_RATE = Quantity("read_rate", 0.0, Combine.PLUS)  # bytes a second beyond normal use
SWAPPED_PROCESS = Quantity("swapped_process", 0.0, Combine.PLUS)  # bytes
