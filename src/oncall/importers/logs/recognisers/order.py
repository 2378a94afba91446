"""All recognisers, in the order in which a line is offered to them; the first to read it counts."""

from __future__ import annotations

from oncall.importers.logs.line import Recogniser
from oncall.importers.logs.needles import Needles
from oncall.importers.logs.recognisers.agents import AGENTS
from oncall.importers.logs.recognisers.bandwidth import BANDWIDTH
from oncall.importers.logs.recognisers.calls import CALLS
from oncall.importers.logs.recognisers.disagreements import DISAGREEMENTS
from oncall.importers.logs.recognisers.failures import FAILURES
from oncall.importers.logs.recognisers.jax import JAX
from oncall.importers.logs.recognisers.kernel import KERNEL
from oncall.importers.logs.recognisers.kubernetes import KUBERNETES
from oncall.importers.logs.recognisers.launchers import LAUNCHERS
from oncall.importers.logs.recognisers.nccl import NCCL, NVLS, WARNINGS
from oncall.importers.logs.recognisers.progress import PROGRESS
from oncall.importers.logs.recognisers.schedulers import SCHEDULERS
from oncall.importers.logs.recognisers.serving import SERVING
from oncall.importers.logs.recognisers.stacks import STACKS
from oncall.importers.logs.recognisers.starting import STARTING
from oncall.importers.logs.recognisers.test_sessions import TEST_SESSIONS
from oncall.importers.logs.recognisers.transports import TRANSPORTS
from oncall.importers.logs.recognisers.watchdog import WATCHDOG

RECOGNISERS: tuple[Recogniser, ...] = (
    WATCHDOG,
    SERVING,
    DISAGREEMENTS,
    STACKS,
    KERNEL,
    AGENTS,
    LAUNCHERS,
    KUBERNETES,
    SCHEDULERS,
    TEST_SESSIONS,
    JAX,
    TRANSPORTS,
    STARTING,
    CALLS,
    NVLS,
    NCCL,
    FAILURES,
    BANDWIDTH,
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
