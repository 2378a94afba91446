"""How senders give way: marks of full queues lower a flow's rate, time raises it (DCQCN).

A fluid form of Zhu et al. (SIGCOMM 2015): in every window a flow that passed a queue above the
marking threshold cuts its rate by half of `alpha`; a window without a mark halves the way back to
the rate before the cut, then adds a little to it. Flows start at line rate, as RDMA does.
"""

from __future__ import annotations

import numpy as np

from oncall_lab.arrays import Bools

GAIN = 1 / 16  # of alpha
ADDED = 0.03  # of line rate, a window
LEAST = 0.01  # of line rate
RECOVERY_WINDOWS = 4  # windows of marking to one of recovery


class Rates:
    """The rate of each flow as a share of line rate; those not `controlled` keep to line rate."""

    def __init__(self, controlled: Bools) -> None:
        self.controlled = controlled
        self.share = np.ones(len(controlled))
        self.target = np.ones(len(controlled))
        self.alpha = np.ones(len(controlled))
        self._windows = 0

    def restart(self, flow: int) -> None:
        """A new flow begins at line rate."""
        self.share[flow] = self.target[flow] = self.alpha[flow] = 1.0

    def adapt(self, marked: Bools) -> None:
        """One window: `marked` (flows,) says whose packets met a queue above the threshold."""
        self._windows += 1
        cut = marked & self.controlled
        self.target = np.where(cut, self.share, self.target)
        self.share = np.where(cut, self.share * (1 - self.alpha / 2), self.share)
        self.alpha = (1 - GAIN) * self.alpha + GAIN * cut
        if self._windows % RECOVERY_WINDOWS == 0:
            rising = ~cut
            self.target = np.where(rising, np.minimum(1.0, self.target + ADDED), self.target)
            self.share = np.where(rising, (self.share + self.target) / 2, self.share)
        self.share = np.maximum(self.share, LEAST)
