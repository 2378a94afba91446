"""All recognisers, in the order in which a line is offered to them; the first to read it counts."""

from __future__ import annotations

from oncall.importers.logs.agents import AGENTS
from oncall.importers.logs.disagreements import DISAGREEMENTS
from oncall.importers.logs.failures import FAILURES
from oncall.importers.logs.jax import JAX
from oncall.importers.logs.kernel import KERNEL
from oncall.importers.logs.kubernetes import KUBERNETES
from oncall.importers.logs.launchers import LAUNCHERS
from oncall.importers.logs.line import Recogniser
from oncall.importers.logs.nccl import NCCL, NVLS, WARNINGS
from oncall.importers.logs.needles import Needles
from oncall.importers.logs.progress import PROGRESS
from oncall.importers.logs.schedulers import SCHEDULERS
from oncall.importers.logs.stacks import STACKS
from oncall.importers.logs.starting import STARTING
from oncall.importers.logs.test_sessions import TEST_SESSIONS
from oncall.importers.logs.watchdog import WATCHDOG

RECOGNISERS: tuple[Recogniser, ...] = (
    WATCHDOG,
    DISAGREEMENTS,
    STACKS,
    KERNEL,
    AGENTS,
    LAUNCHERS,
    KUBERNETES,
    SCHEDULERS,
    TEST_SESSIONS,
    JAX,
    STARTING,
    NVLS,
    NCCL,
    FAILURES,
    PROGRESS,
    WARNINGS,
)
# A line that also stands in every Python process's warnings is no sign of a job's log by itself.
NEEDLES = Needles(
    {
        word.encode(): sum(1 << n for n, one in enumerate(RECOGNISERS) if word in one.words)
        for recogniser in RECOGNISERS
        for word in recogniser.words
    }
)
