"""`oncall demo --console`: keys break a rank, and a stopwatch runs until the headline names it."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from oncall.console.queries import GetSnapshot
from oncall.demo.orders import Controls
from oncall.tui.demonstration import INVITATION, DemonstrationApp
from oncall.views.snapshot import Snapshot

from .console import console, piloted
from .fake_session import FakeSession
from .snapshots import JOB, hang, hang_snapshot, healthy_snapshot
from .test_end_to_end import _ONCALL, Tmux, children_of_oncall, folder, opened
from .until import until

__all__ = ["folder", "opened"]  # fixtures


def live(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, moment=replace(snapshot.moment, live=True))


def naming(rank: int) -> Snapshot:
    """A hang that is blamed on that rank."""
    (blame,) = hang().blame
    snapshot = hang_snapshot()
    found = replace(hang(), blame=(replace(blame, where={**blame.where, "rank": rank}),))
    return live(replace(snapshot, diagnosis=replace(snapshot.diagnosis, findings=(found,))))


@piloted
async def test_the_stopwatch_runs_from_the_key_to_the_headline_that_names_the_rank() -> None:
    reading, writing = os.pipe()
    session = FakeSession(live(healthy_snapshot()))
    kind = partial(DemonstrationApp, Controls(8, writing))
    async with console(session, (80, 24), kind) as running:
        assert INVITATION in running.line(-2)
        await running.press("d")
        assert "s stop" in running.text() and "f freeze" in running.text()
        await running.press("s")
        assert "Stop rank  0 " in running.text()
        await running.press("5")
        assert os.read(reading, 100) == b"stop 5\n"
        assert "rank 5 is stopped: 0 s" in running.line(-2)

        session.replace(naming(3))
        await running.pass_s(6)
        assert "rank 5 is stopped: 6 s" in running.line(-2)
        session.replace(naming(5))
        await running.pass_s(6)
        assert "rank 5 is stopped: named in 12.0 s, after rank 3" in running.line(-2)
        await running.pass_s(60)
        assert "named in 12.0 s" in running.line(-2)

        await running.press("d", "u")
        assert os.read(reading, 100) == b"mend\n"
        assert f"undone; {INVITATION}" in running.line(-2)


@piloted
async def test_a_headline_of_before_does_not_stop_the_watch() -> None:
    reading, writing = os.pipe()
    session = FakeSession(naming(5))
    kind = partial(DemonstrationApp, Controls(8, writing))
    async with console(session, kind=kind) as running:
        await running.press("d", "k", "5")
        session.replace(naming(5))
        await running.pass_s(7)
        assert "rank 5 is killed: 7 s" in running.line(-2)
        os.close(reading)
        await running.press("d", "u")
        assert "the demonstration has ended" in running.line(-2)


@piloted
async def test_a_question_stays_in_sight_while_the_job_is_read() -> None:
    reading, writing = os.pipe()
    session = FakeSession(live(healthy_snapshot()), jobs=(JOB, "gpt-9"))
    read = session.gates[GetSnapshot] = threading.Event()
    kind = partial(DemonstrationApp, Controls(8, writing))
    async with console(session, kind=kind) as running:
        await running.pilot.press("enter")
        await running.pilot.press("d")
        read.set()
        await running.settle()
        assert running.app.state.snapshot is not None
        assert "Break a rank" in running.text()
        await running.press("s", "5")
        assert os.read(reading, 100) == b"stop 5\n"
        await until(running, lambda: running.app.current_mode == "incident")


@pytest.mark.slow
@pytest.mark.alone
def test_a_rank_is_stopped_and_named_in_a_terminal(
    folder: Path,
    opened: list[Tmux],
    standin_job: None,  # noqa: ARG001
) -> None:
    terminal = Tmux(folder, *_ONCALL, "demo", "--console")
    opened.append(terminal)
    terminal.wait_for(INVITATION, "8/8 ranks")
    terminal.press("d")
    terminal.wait_for("s stop")
    terminal.press("s")
    terminal.wait_for("Stop rank")
    terminal.press("5")
    terminal.wait_for("rank 5 is stopped: named in", "rank 5 on node2")
    terminal.press("C-q")
    assert terminal.wait() == 0
    assert not children_of_oncall(folder)


def test_without_a_terminal_nothing_is_started(capfd: pytest.CaptureFixture[str]) -> None:
    command = " ".join([*_ONCALL, "demo", "--console"])
    assert os.system(f"{command} </dev/null >/dev/null") >> 8 == 2
    assert "the console needs a terminal" in capfd.readouterr().err
