"""Orders of a console: what the owner of the job does about each, and how both end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from oncall.demo.cluster import Cluster
from oncall.demo.faults import BREAKS, Break, Fault, fault_named
from oncall.demo.layout import Layout
from oncall.demo.orders import Controls, carry_out, with_console
from oncall.demo.processes import Processes


class FakeCluster(Cluster):
    """Notes what is injected."""

    def __init__(self) -> None:
        self.layout = Layout.simulated(Path("/nowhere"), 8, 4)
        self.done: list[Fault | str] = []

    def inject(self, fault: Fault) -> None:
        self.done.append(fault)

    def mend(self) -> None:
        self.done.append("mended")


def test_each_order_breaks_the_rank_that_it_names() -> None:
    cluster = FakeCluster()
    for how in BREAKS:
        carry_out(cluster, f"{how.word} 3\n")
    carry_out(cluster, "mend\n")
    assert cluster.done == [*(fault_named(how.fault).on(3) for how in BREAKS), "mended"]
    assert all(fault.ranks[0] == 3 for fault in cluster.done if isinstance(fault, Fault))
    assert len({how.key for how in BREAKS}) == len(BREAKS)


def test_the_console_is_obeyed_until_it_ends_and_its_exit_code_returned() -> None:
    cluster = FakeCluster()

    def show(controls: Controls) -> int:
        assert controls.ranks == 8
        controls.strike(BREAKS[0], 7)
        controls.mend()
        return 5

    assert with_console(cluster, show) == 5
    assert cluster.done == [fault_named(BREAKS[0].fault).on(7), "mended"]


def test_an_interrupt_ends_the_console_too() -> None:
    script = """
import os, time
from test_orders import FakeCluster
from oncall.demo.orders import with_console
from oncall.demo.processes import interrupted_by_signals
def show(controls):
    print(os.getpid(), flush=True)
    time.sleep(600)
with interrupted_by_signals():
    with_console(FakeCluster(), show)
"""
    here = Path(__file__).parent
    owner = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(here), *sys.path])},
    )
    assert owner.stdout is not None
    with owner:
        child = int(owner.stdout.readline())
        owner.send_signal(signal.SIGTERM)
        owner.wait(20)
    assert not Path(f"/proc/{child}").exists()


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("how", BREAKS, ids=lambda how: how.word)
def test_what_was_broken_is_undone(how: Break, standin_job: None) -> None:  # noqa: ARG001
    fault = fault_named(how.fault).on(6)
    with TemporaryDirectory() as name, Processes(Path(name)) as processes:
        cluster = Cluster(Path(name), Layout.simulated(Path(name), 8, 2), processes)
        cluster.start_ranks()
        before_s = cluster.wait_for_steps(10, 60)
        cluster.inject(fault)
        if fault.hangs:
            cluster.wait_for_standstill(1.5, 30)
        else:
            assert cluster.wait_for_steps(10, 60) > 1.1 * before_s
        cluster.mend()
        cluster.wait_for_steps(10, 60)
