"""Allocation, memory and scheduling of a job: the machines are sound and used badly."""

from __future__ import annotations

import numpy as np

from oncall_lab.training.measured import quantities as q
from oncall_lab.training.measured.case import Case
from oncall_lab.training.measured.condition import StepDelay
from oncall_lab.training.measured.faults import host
from oncall_lab.training.measured.faults.network import goodput
from oncall_lab.training.measured.machine import GIB

BURST_S = 4.0  # of storage traffic: a checkpoint shard, a cache that refills


def resources(case: Case) -> None:
    """RESOURCES: the job was given less than it needs.

    Ways: `shared`: another process computes on its GPU; `affinity`: it may use a few CPUs only;
    `quota`, `numa`: as CPU_QUOTA and NUMA, which are their precise names.
    """
    if case.fault.how == "quota":
        case.blame_device()
        host.limited(case, case.on_node)
    elif case.fault.how == "numa":
        host.numa(case)
    elif case.fault.how == "shared":
        case.blame_device("gpu", "rank")
        case.change(q.OTHER_PROCESSES, case.pick(1, 1, 2))
        case.change(q.GPU_SPEED, case.about(0.75, 0.55, 0.35))  # kernels take turns
        case.change(q.MEMORY_FILL, case.about(0.04, 0.08, 0.1))
    else:
        case.blame_device("rank")
        case.change(q.CPUS_ALLOWED, case.pick(2, 1, 1))
        case.change(q.CPU_SHARE, case.about(0.65, 0.33, 0.3))
        case.change(q.WAITING_FOR_CPU, case.about(0.2, 0.45, 0.6))
        case.change(q.HOST_SPEED, case.about(0.8, 0.55, 0.35))
        case.change(q.PROXY_SPEED, case.about(0.8, 0.55, 0.35))


def memory(case: Case) -> None:
    """MEMORY: a rank's memory is short. Ways: `gpu`: the allocator frees and asks again, which
    waits for all kernels; `swap`: the host reads its pages back from disk.
    """
    case.blame_device("gpu", "rank")
    if case.fault.how == "gpu":
        case.change(q.MEMORY_FILL, 0.4)
        length_ns = case.about(0.1e9, 0.25e9, 0.6e9)
        for at in case.moments(case.pick(2.0, 1.5, 1.2), spread=0.3):
            end = at + length_ns * float(case.rng.uniform(0.6, 1.4))
            case.change(q.HOST_SPEED, 0.0, begin_ns=at, end_ns=end)
        return
    swapped = case.about(4, 12, 30) * GIB
    case.change(q.SWAPPED, swapped)
    case.change(q.SWAPPED_PROCESS, min(swapped, 12 * GIB))
    case.change(q.MAJOR_FAULTS, case.about(80, 400, 2000))
    case.change(q.MEMORY_PRESSURE, case.about(0.05, 0.15, 0.4))
    case.change(q.IO_PRESSURE, case.about(0.05, 0.15, 0.3))
    case.change(q.MEMORY_TAKEN, 0.83)
    case.change(q.HOST_SPEED, case.about(0.85, 0.65, 0.4))


def scheduling(case: Case) -> None:
    """SCHEDULING: traffic that does not belong together shares a priority.

    Ways: `storage`: storage traffic comes in bursts on the training's priority (TFD 4.2);
    `priority`: the training runs in the ordinary class, which loses packets.
    """
    case.blame_communicators("dp")
    if case.fault.how == "priority":
        case.change(q.IN_ORDINARY, 1, case.everywhere)
        loss = case.pick(4e-4, 1.2e-3, 3e-3)
        case.change(q.LOSS, loss / 2, case.everywhere)  # each packet passes two NICs
        case.change(q.WIRE_SPEED, goodput(loss), case.everywhere)
        case.change(q.NETWORK_LATENCY, case.about(1.5e3, 3e3, 6e3), case.everywhere)
        return
    taken = case.about(0.3, 0.5, 0.7)
    rate = taken * case.fleet.machine.line_bytes_per_s
    for at in case.moments(BURST_S * case.pick(3.0, 2.0, 1.4)):
        end = at + BURST_S * float(case.rng.uniform(0.6, 1.4)) * 1e9
        moment = {"begin_ns": at, "end_ns": end}
        case.change(q.STORAGE_TRAFFIC, rate, case.everywhere, **moment)
        case.change(q.WIRE_SPEED, 1 - taken, case.everywhere, **moment)
        case.change(q.MARKS, 4e-3 * taken, case.everywhere, **moment)
        case.change(q.PAUSED, 0.06 * taken, case.everywhere, **moment)
        case.change(q.NETWORK_LATENCY, 15e3 * taken, case.everywhere, **moment)


def pattern(case: Case) -> None:
    """PATTERN: who talks to whom over what does not fit the machines; so from the job's begin.

    Ways: `spread`: tensor-parallel groups lie across nodes (TFD 4.2; `cluster` lays them out);
    `rails`: ranks use another GPU's NIC; `sockets`: RDMA is not used at all.
    """
    if case.fault.how == "spread":
        for family in case.cluster.families.values():
            if family.role == "tp":
                spread = family.comms[family.network]
                case.blame += [{"comm": f"0x{int(comm):016x}", "role": "tp"} for comm in spread]
    elif case.fault.how == "rails":
        case.blame_communicators("dp")
        crossed = np.flatnonzero(case.fleet.nic_of != case.everywhere)
        # From GPU to NIC through the CPUs' root complexes instead of one PCIe switch.
        case.change(q.PROXY_SPEED, case.about(0.75, 0.6, 0.45), crossed, begin_ns=0.0)
        case.change(q.MARKS, 3e-4, crossed, begin_ns=0.0)  # and over the spine
    else:
        case.blame_communicators("dp")
        case.change(q.BY_SOCKETS, 1, case.everywhere, begin_ns=0.0)
        speed = case.about(0.35, 0.22, 0.12)  # copies through the kernel
        case.change(q.PROXY_SPEED, speed, case.everywhere, begin_ns=0.0)
        case.change(q.CPU_BUSY, 0.15, range(case.fleet.nodes), begin_ns=0.0)


def settings(case: Case) -> None:
    """SETTINGS: NCCL is configured to use less than the machines offer, from a restart on.

    Ways: `channels`: one or two, which fill no link; `protocol`: LL for large messages, which
    carries a flag with every word. `schedule` gives operations these settings, and slows them.
    """
    case.blame_communicators("dp")
    if case.begin_ns > 0:
        restart_ns = float(case.rng.uniform(20, 40)) * 1e9
        everybody = tuple(range(case.fleet.world_size))
        restart = StepDelay(everybody, case.begin_ns, case.end_ns, restart_ns, once=True)
        case.condition.delays.append(restart)
