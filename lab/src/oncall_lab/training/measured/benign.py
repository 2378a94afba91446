"""What healthy machines show, too: rare corrected errors, short throttling, other tenants' traffic.

None of it slows training by more than its ordinary jitter.
"""

from __future__ import annotations

import numpy as np

from oncall_lab.arrays import Floats
from oncall_lab.training.measured import quantities as q
from oncall_lab.training.measured.condition import FOREVER_NS, Change, Condition, Quantity
from oncall_lab.training.measured.log_lines import KernelLog
from oncall_lab.training.measured.machine import Fleet
from oncall_lab.training.scenario import TrainingScenario

CORRECTED_BITS_PER_S = 2e3  # PAM4 links correct all the time (IEEE 802.3ck: 1e-8 before FEC)
AER_A_NODE_AND_HOUR = 0.5
WARM_UP_THROTTLE = 0.3  # share of runs in which a GPU meets its power limit as the job begins
OTHERS_BYTES_PER_S = 3e6  # monitoring, other jobs' control traffic
MARKED_SPELLS = 0.5  # share of runs in which a rail is busy for a moment
COSMIC_ECC_A_NODE_AND_HOUR = 0.3
UNBOUND = 0.2  # share of sites that leave processes to the scheduler of their hosts


def befall(
    condition: Condition, fleet: Fleet, scenario: TrainingScenario, rng: np.random.Generator
) -> None:
    """Add the ordinary events of a run."""
    until = float(scenario.duration_ns)
    hours = until / 3.6e12

    def change(quantity: Quantity, where: int, value: float, begin: float, end: float) -> None:
        at = np.array([where])
        condition.changes.append(Change(quantity, at, value, begin, end))

    def once(quantity: Quantity, where: int, at: float) -> None:
        change(quantity, where, 1e3, at, at + 1e6)

    spread: Floats = np.exp(0.8 * rng.standard_normal(fleet.world_size))
    for device in range(fleet.world_size):
        change(q.CORRECTED_BITS, device, CORRECTED_BITS_PER_S * spread[device], 0.0, FOREVER_NS)
        change(q.OTHER_TRAFFIC, device, OTHERS_BYTES_PER_S * spread[device], 0.0, FOREVER_NS)
    for node in range(fleet.nodes):
        devices = fleet.on_node(node)
        for _ in range(rng.poisson(AER_A_NODE_AND_HOUR * hours)):
            device, at = int(rng.choice(devices)), float(rng.uniform(0, until))
            once(q.NIC_PCIE_ERRORS, device, at)
            KernelLog(fleet, condition.events).aer_corrected(device, at)
        for _ in range(rng.poisson(COSMIC_ECC_A_NODE_AND_HOUR * hours)):
            once(q.ECC_CORRECTED, int(rng.choice(devices)), float(rng.uniform(0, until)))
    if rng.random() < UNBOUND:
        for device in range(fleet.world_size):
            change(q.UNBOUND, device, 1, 0.0, FOREVER_NS)
    if rng.random() < WARM_UP_THROTTLE:
        device = int(rng.integers(fleet.world_size))
        end = float(rng.uniform(2, 12)) * 1e9
        change(q.THROTTLED_POWER, device, 1, 0.0, end)
        change(q.SM_CLOCK, device, 0.96, 0.0, end)
    if rng.random() < MARKED_SPELLS:
        rail = int(rng.integers(fleet.devices_a_node))
        begin = float(rng.uniform(0, until))
        for device in fleet.on_rail(rail).tolist():
            change(q.MARKS, device, 2e-4, begin, begin + float(rng.uniform(1, 6)) * 1e9)
