"""Leaving, going to what is not there, completion, choosing among jobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import Input

from oncall.console.queries import ListJobs, OpenJob
from oncall.core.errors import UsageError
from oncall.tui.shell.goto import Target, why_not_there
from oncall.views.snapshot import JobLine, Snapshot

from .console import Running, console, piloted
from .fake_session import FakeSession
from .snapshots import JOB, LAST_NS, hang_snapshot

NARROW = (80, 24)


def live() -> Snapshot:
    snapshot = hang_snapshot()
    return replace(snapshot, moment=replace(snapshot.moment, live=True))


def ended(running: Running) -> bool:
    return running.app._exit


@piloted
@pytest.mark.parametrize("keys", [["q"], ["ctrl+c"], ["colon", "q", "enter"], ["ctrl+q"]])
async def test_a_recording_is_left_at_once(keys: list[str]) -> None:
    async with console(size=NARROW) as running:
        await running.pilot.press(*keys)
        await running.pilot.pause(0.1)
        assert ended(running)


@piloted
@pytest.mark.parametrize("keys", [["q"], ["ctrl+c"], ["colon", "q", "enter"]])
async def test_what_was_gathered_of_a_running_job_is_asked_about(keys: list[str]) -> None:
    async with console(FakeSession(live()), NARROW) as running:
        await running.press(*keys)
        assert "is not saved" in running.text() and not ended(running)
        await running.press("escape")
        assert not ended(running)
        await running.pilot.press("q", "y")
        await running.pilot.pause(0.1)
        assert ended(running)


@piloted
async def test_what_is_saved_first_is_not_asked_about_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with console(FakeSession(live()), NARROW) as running:
        await running.press("q", "s")
        assert "save to" in running.text()
        await running.press("enter")
        assert "saved llama-70b" in running.text() and not ended(running)
        await running.pilot.press("q")
        await running.pilot.pause(0.1)
        assert ended(running)


@piloted
@pytest.mark.parametrize("opens", ["question_mark", "colon", "slash", "m"])
async def test_ctrl_q_quits_from_help_and_prompts(opens: str) -> None:
    async with console(size=NARROW) as running:
        await running.press(opens)
        await running.pilot.press("ctrl+q")
        await running.pilot.pause(0.1)
        assert ended(running)


@piloted
async def test_a_rank_that_is_not_there_stays_here_and_says_the_range() -> None:
    async with console(size=NARROW) as running:
        await running.press("colon", *"rank 137", "enter")
        assert "there is no rank 137; the ranks are 0-15" in running.text()
        assert running.app.current_mode == "incident"
        await running.press("ctrl+u", *"rank 13", "enter")
        assert running.app.current_mode == "fleet"
        assert "rank 13" in running.text()


@piloted
async def test_go_to_completes_names() -> None:
    async with console(size=NARROW) as running:
        await running.press("colon", *"node gpu01")
        await running.pilot.pause(0.1)
        assert "node gpu017  node gpu018" in running.text()
        line = running.app.screen.query_one(Input)
        for completed in ("node gpu017", "node gpu018", "node gpu017"):
            await running.press("tab")
            assert line.value == completed
        await running.press("backspace", "8", "enter")
        assert running.app.current_mode == "fleet" and "on gpu018" in running.text()


@piloted
async def test_what_is_typed_after_a_completion_is_completed_in_turn() -> None:
    async with console(size=NARROW) as running:
        await running.press("colon", "r", "a", "tab")
        line = running.app.screen.query_one(Input)
        assert line.value == "rank 5"  # whom the finding names
        await running.press("backspace", "1", "tab")
        assert line.value == "rank 10"


def test_a_node_that_is_not_there_is_answered_with_the_others() -> None:
    said = why_not_there(Target("node", "gpu999"), hang_snapshot())
    assert said is not None and "gpu[017-018]" in said
    assert why_not_there(Target("node", "gpu017"), hang_snapshot()) is None


@piloted
async def test_of_several_jobs_one_is_chosen_and_another_later() -> None:
    session = FakeSession(jobs=("gpt-9", JOB))
    async with console(session, NARROW) as running:
        assert running.app.current_mode == "jobs"
        await running.press("down", "enter")
        assert running.app.state.job == JOB and running.app.current_mode == "incident"
        await running.press("colon")
        await running.type("job gpt-9")
        assert running.app.current_mode == "jobs"


@piloted
async def test_a_running_job_that_could_not_be_read_is_read_again() -> None:
    """Its nodes were slow to answer; nobody need be there to try again."""
    session = FakeSession(live())
    session.fails[OpenJob] = UsageError("no host sent evidence: gpu017 did not answer in time")
    async with console(session, NARROW) as running:
        assert running.app.current_mode == "jobs"
        assert "gpu017 did not answer in time" in running.text()
        await running.pass_s(6)
        assert running.app.current_mode == "incident"
        assert not running.app.state.problem


@piloted
async def test_the_jobs_of_a_fleet_are_looked_for_again() -> None:
    session = FakeSession(live())
    async with console(session, NARROW) as running:
        await running.press("0")
        before = len(session.asked_for(ListJobs))
        session.answers[ListJobs] = lambda _: (JobLine("new-job", 2, 16, LAST_NS, "running"),)
        await running.pass_s(6)
        assert len(session.asked_for(ListJobs)) == before + 1
        assert "new-job" in running.text()
