"""Run a job, inject a fault, and report each action."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from oncall.demo.cluster import Cluster
from oncall.demo.faults import Fault
from oncall.demo.layout import Layout
from oncall.demo.processes import Processes

_STANDSTILL_S = 4
# Shorter thresholds than on a cluster; and a higher one for slowness, as eight ranks on one or two
# cores disturb each other.
PARAMETERS = {
    "hang.hang_after": "3 s",
    "waits.stuck_after": "3 s",
    "slow_rounds.noticeable": "10 ms",
    "slow_transfers.cost_share": "5 %",
}
_HEALTHY_STEPS = 25
_BROKEN_STEPS = 25
_PATIENCE_S = 60.0

Tell = Callable[[str, str], None]


@contextmanager
def running_cluster(layout: Layout, folder: Path, tell: Tell) -> Iterator[Cluster]:
    """The job once it trains; everything ends on leaving.

    `folder` receives logs and orders; `tell` is called with each action and its details. Raises
    NotBuilt if the C parts are missing, DemoFailed if a process ends.
    """
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    with Processes(logs) as processes:
        cluster = Cluster(folder, layout, processes)
        cluster.start_collectors()
        names = ", ".join(node.name for node in layout.nodes)
        tell("collectors", f"`oncall collect` on {names}")
        cluster.start_ranks()
        tell("job", f"{layout.world_size} ranks under the hooks: {layout.configuration}")
        _tell_speed(cluster, "trains", _HEALTHY_STEPS, tell)
        yield cluster


@contextmanager
def broken_cluster(fault: Fault, layout: Layout, folder: Path, tell: Tell) -> Iterator[Cluster]:
    """The running job once the fault shows; as `running_cluster`. Raises DemoFailed also if the
    fault has no effect."""
    with running_cluster(layout, folder, tell) as cluster:
        cluster.inject(fault)
        _tell_fault(fault, layout, tell)
        if fault.hangs:
            cluster.wait_for_standstill(_STANDSTILL_S, _PATIENCE_S)
            tell("hangs", f"at step {cluster.steps()}, for {_STANDSTILL_S} s now")
        else:
            _tell_speed(cluster, "goes on", _BROKEN_STEPS, tell)
        yield cluster


def _tell_fault(fault: Fault, layout: Layout, tell: Tell) -> None:
    if not fault.ranks:
        tell("fault", f"none: {fault.truth}")
        return
    node = layout.node_of(fault.broken)
    tell("fault", f"{fault.name}, rank {fault.broken} on {node.name}: {fault.truth}")


def _tell_speed(cluster: Cluster, what: str, steps: int, tell: Tell) -> None:
    length_s = cluster.wait_for_steps(steps, _PATIENCE_S)
    tell(what, f"{steps} steps of {length_s * 1000:.0f} ms")
