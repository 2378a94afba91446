"""A real job on this machine that breaks while one looks: the finding arrives by itself."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from oncall.demo.cluster import Cluster
from oncall.demo.demonstration import PARAMETERS
from oncall.demo.faults import fault_named
from oncall.demo.layout import JOB, Layout
from oncall.demo.processes import Processes

from .test_end_to_end import _ONCALL, Tmux, children_of_oncall, folder, opened

__all__ = ["folder", "opened"]  # fixtures


@pytest.mark.slow
def test_a_finding_arrives_while_the_reader_is_elsewhere(
    folder: Path,
    opened: list[Tmux],
    standin_job: None,  # noqa: ARG001
) -> None:
    fault = fault_named("H1")
    params = [part for name, value in PARAMETERS.items() for part in ("--param", f"{name}={value}")]
    layout = Layout.simulated(folder, 8, 4)
    (folder / "logs").mkdir()
    with Processes(folder / "logs") as processes:
        cluster = Cluster(folder, layout, processes)
        cluster.start_collectors()
        cluster.start_ranks()
        cluster.wait_for_steps(5, 60)
        terminal = Tmux(folder, *_ONCALL, "--job", JOB, "--hosts", f"local:{folder}/node*", *params)
        opened.append(terminal)
        terminal.wait_for("8/8 ranks", "● live")
        assert "Not-entered" not in terminal.screen()

        terminal.type(":rank 3")
        terminal.press("Enter")
        terminal.wait_for("8 ranks by node", "rank 3")
        cluster.inject(fault)
        # The reader's card stays open, and the fleet shows who is blamed.
        terminal.wait_for("X 1 blamed", "rank 3", "8 ranks by node")
        terminal.press("1")
        terminal.wait_for("Not-entered hang", f"rank {fault.broken}", "8/8 ranks")

        # What is read stays under the cursor whatever the nodes bring.
        terminal.press("G")
        shown = _moment(terminal.wait_for("▌ ✔ Coverage"))
        deadline = time.monotonic() + 60
        while _moment(terminal.screen()) == shown:
            assert time.monotonic() < deadline, "no later snapshot came"
            time.sleep(0.2)
        terminal.wait_for("▌ ✔ Coverage", "Not-entered hang")

        terminal.press("C-q")
        assert terminal.wait() == 0
        assert not [one for one in children_of_oncall(folder) if "collect" not in one]


def _moment(screen: str) -> str | None:
    """The moment that is shown, at the lower right."""
    found = re.search(r"● live ([0-9:]+)", screen)
    return found[1] if found else None
