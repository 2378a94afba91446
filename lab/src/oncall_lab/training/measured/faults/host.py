"""The host: its memory, its CPUs, and the programs that keep a GPU waiting for its next kernel."""

from __future__ import annotations

from itertools import islice

import numpy as np

from oncall_lab.arrays import Ints
from oncall_lab.training.measured import quantities as q
from oncall_lab.training.measured.case import Case
from oncall_lab.training.measured.condition import StepDelay
from oncall_lab.training.measured.hosts import CPUS_A_PROCESS

EDAC_LINES_MOST = 20


def memory_subsystem(case: Case) -> None:
    """HOST_MEMORY: every transfer and program of a node suffers from its memory.

    Ways: `errors`: ECC corrects so many that their handling stops CPUs; `pressure`: something
    that is no part of the job took the memory; `bandwidth`: a channel is gone, no event is logged.
    """
    case.blame_device()
    case.change(q.PROXY_SPEED, case.about(0.8, 0.6, 0.35), case.on_node)
    case.change(q.HOST_SPEED, case.about(0.95, 0.88, 0.75), case.on_node)
    case.change(q.HOST_LATENCY, case.about(6e3, 15e3, 40e3), case.on_node)
    if case.fault.how == "errors":
        case.change(q.MEMORY_CORRECTED, case.about(2, 20, 200))
        for at in islice(case.moments(case.pick(20.0, 10.0, 5.0)), EDAC_LINES_MOST):
            case.log.edac(case.node, at, case.pick(40, 200, 1000), corrected=True)
        if case.fault.severity == 3:
            case.once(q.MEMORY_UNCORRECTED, case.begin_ns + 20e9, case.node)
            case.log.edac(case.node, case.begin_ns + 20e9, 1, corrected=False)
    elif case.fault.how == "pressure":
        case.change(q.MEMORY_TAKEN, case.pick(0.78, 0.82, 0.84))
        case.change(q.MEMORY_PRESSURE, case.about(0.06, 0.2, 0.5))
        case.change(q.CPU_BUSY, 0.04)  # the kernel looks for pages


def garbage_collection(case: Case) -> None:
    """GC: Python stops a rank every now and then to collect garbage; its GPU has nothing to do.

    Ways: `regular`: about every so many steps; `growing`: each takes longer than the last.
    """
    case.blame_device("rank")
    length_ns = case.about(0.25e9, 0.6e9, 1.5e9)
    for count, at in enumerate(case.moments(case.pick(6.0, 5.0, 4.0), spread=0.1)):
        longer = 1 + 0.03 * count if case.fault.how == "growing" else 1.0
        end = at + length_ns * longer * float(case.rng.uniform(0.85, 1.15))
        case.change(q.HOST_SPEED, 0.0, begin_ns=at, end_ns=end)


def starved(case: Case) -> None:
    """CPU_STARVED: a node's CPUs do not get to the training's programs in time.

    Ways: `hog`: other programs take them; `clock`: they run at a fraction of their clock.
    """
    case.blame_device()
    case.change(q.HOST_SPEED, case.about(0.85, 0.65, 0.4), case.on_node)
    case.change(q.PROXY_SPEED, case.about(0.8, 0.6, 0.35), case.on_node)
    if case.fault.how == "clock":
        case.change(q.CPU_CLOCK, case.about(0.45, 0.32, 0.22))
        case.change(q.CPU_BUSY, case.about(0.12, 0.2, 0.3))
        case.change(q.HOST_LATENCY, case.about(4e3, 8e3, 15e3), case.on_node)
        return
    case.change(q.CPU_BUSY, 0.95)
    case.change(q.CPU_PRESSURE, case.about(0.2, 0.45, 0.8))
    case.change(q.WAITING_FOR_CPU, case.about(0.12, 0.3, 0.55), case.on_node)
    case.change(q.CPU_SHARE, case.about(0.85, 0.65, 0.45), case.on_node)
    case.change(q.HOST_LATENCY, case.about(25e3, 80e3, 250e3), case.on_node)


def quota(case: Case) -> None:
    """CPU_QUOTA (VenusTrace 5.3: 8 CPUs instead of 192): a control group stops its processes.

    Ways: `node`: the job's container has the quota; `rank`: one process of it does.
    """
    if case.fault.how == "rank":
        case.blame_device("rank")
        limited(case, np.array([case.device]))
    else:
        case.blame_device()
        limited(case, case.on_node)


def limited(case: Case, ranks: Ints) -> None:
    """A control group with a CPU quota holds the processes of these ranks."""
    share = case.about(0.65, 0.4, 0.2)
    case.change(q.CPU_QUOTA, max(1.0, round(share * CPUS_A_PROCESS * len(ranks))), ranks)
    case.change(q.CPU_SHARE, share, ranks)
    case.change(q.QUOTA_THROTTLED, (1 - share) * len(ranks) ** 0.5, ranks)
    case.change(q.HOST_SPEED, min(1.0, 1.25 * share), ranks)
    case.change(q.PROXY_SPEED, min(1.0, 1.25 * share), ranks)
    case.change(q.CPU_PRESSURE, case.about(0.05, 0.15, 0.3) * len(ranks) / len(case.on_node))


def numa(case: Case) -> None:
    """NUMA: a rank runs on the CPUs of another NUMA node than its GPU and NIC (Pulse 8)."""
    case.blame_device("rank")
    case.change(q.FOREIGN_NUMA, 1)
    case.change(q.HOST_SPEED, case.about(0.92, 0.82, 0.68))
    case.change(q.PROXY_SPEED, case.about(0.85, 0.65, 0.45))


def data_loader(case: Case) -> None:
    """DATA_LOADER: a rank's batch comes late at the begin of each step.

    Ways: `storage`: its reads wait; `workers`: they cannot decode as fast; `silent`: unknown why.
    """
    case.blame_device("rank")
    late_ns = case.about(0.25e9, 0.6e9, 1.5e9)
    case.condition.delays.append(
        StepDelay((case.device,), case.begin_ns, case.end_ns, late_ns, spread=0.4)
    )
    if case.fault.how == "storage":
        case.change(q.IO_PRESSURE, case.about(0.15, 0.35, 0.6))
        case.change(q.READ_RATE, -15e6)
        for at in islice(case.moments(60.0), case.pick(0, 2, 4)):
            case.log.storage_stalled(case.node, at)
    elif case.fault.how == "workers":
        case.change(q.CPU_BUSY, 0.03)
        case.change(q.CPU_SHARE, case.about(1.5, 2.0, 3.0))


def slow_node(case: Case) -> None:
    """SLOW_NODE (TFD 3.3): nothing is broken, but three things or more are a little worse."""
    case.blame_device()
    worse = case.about(0.08, 0.14, 0.2)
    case.change(q.GPU_SPEED, 1 - worse, case.on_node)
    case.change(q.SM_CLOCK, 1 - worse, case.on_node)
    case.change(q.NIC_SPEED, 1 - 2 * worse, case.on_node)
    case.change(q.HOST_LATENCY, 45e3 * worse, case.on_node)
    case.change(q.NETWORK_LATENCY, 20e3 * worse, case.on_node)
    case.change(q.MARKS, 2e-3 * worse, case.on_node)
    case.change(q.CPU_PRESSURE, 0.6 * worse)
