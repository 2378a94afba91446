"""The time on the screen: stepped, played, followed live, paused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oncall.console.queries import GatherSnapshot, GetSnapshot
from oncall.core.errors import UsageError
from oncall.views.snapshot import Snapshot

from .console import console, piloted
from .fake_session import FakeSession
from .snapshots import FAULT_NS, FIRST_NS, LAST_NS, hang_snapshot, silent_snapshot


def instants(session: FakeSession) -> list[int | None]:
    """What snapshots were asked for."""
    return [query.at_ns for query in session.asked_for(GetSnapshot)]


@piloted
async def test_time_is_stepped_back_and_followed_again() -> None:
    async with console() as running:
        await running.press("left_square_bracket")
        # 750 s in about sixty steps: 15 s each
        assert instants(running.session)[-1] == LAST_NS - 15 * 10**9
        assert "15 s before the end" in running.text()
        await running.press("left_curly_bracket", "right_square_bracket")
        assert instants(running.session)[-1] == LAST_NS - 150 * 10**9
        await running.press("full_stop")
        assert instants(running.session)[-1] is None


@piloted
async def test_findings_are_jumped_to_in_time() -> None:
    async with console() as running:
        await running.press("N")
        assert running.app.state.cursor.at_ns == FAULT_NS
        await running.press("N")
        assert "no earlier finding" in running.text()
        await running.press("left_square_bracket")
        assert not running.app.state.snapshot.diagnosis.findings
        await running.press("n")
        assert running.app.state.cursor.at_ns == FAULT_NS


@piloted
async def test_play_moves_with_the_clock_and_ends_at_the_end() -> None:
    async with console() as running:
        await running.press("space")
        assert running.app.state.cursor.at_ns == FIRST_NS
        await running.press("greater_than_sign")
        await running.pass_s(2)
        assert running.app.state.cursor.at_ns == FIRST_NS + 60 * 10**9
        await running.press("space")
        await running.pass_s(5)
        assert running.app.state.cursor.at_ns == FIRST_NS + 60 * 10**9
        await running.press("space")
        await running.pass_s(60)
        assert running.app.state.cursor.follows
        assert not running.app.state.cursor.playing


def live_session() -> FakeSession:
    return FakeSession(replace(silent_snapshot(), origin="2 nodes over SSH"))


def gathers(session: FakeSession) -> int:
    return len(session.asked_for(GatherSnapshot))


@piloted
async def test_a_running_job_is_gathered_again_but_never_twice_at_once() -> None:
    async with console(live_session(), refresh_every_s=5) as running:
        await running.pass_s(3)
        assert gathers(running.session) == 0
        await running.pass_s(3)
        assert gathers(running.session) == 1
        running.session.gate.clear()
        running.clock.now_s += 6
        for _ in range(5):
            running.app.beat()
            running.clock.now_s += 6
            await running.pilot.pause()
        assert gathers(running.session) == 2
        running.session.gate.set()


@piloted
async def test_a_paused_live_view_stays_still() -> None:
    async with console(live_session()) as running:
        await running.press("space")
        assert running.app.state.cursor.at_ns == LAST_NS
        await running.pass_s(60)
        assert gathers(running.session) == 0


@piloted
async def test_trouble_while_gathering_is_reported_and_the_last_snapshot_stays_with_its_age() -> (
    None
):
    async with console(live_session()) as running:
        running.session.fails[GatherSnapshot] = UsageError("gpu018: connection lost")
        await running.press("R")
        assert "gpu018: connection lost" in running.text()
        await running.pass_s(2)
        await running.pass_s(2)
        assert "(shown: 4 s old)" in running.text()
        assert running.app.state.snapshot is not None
        del running.session.fails[GatherSnapshot]
        await running.press("R")
        assert "connection lost" not in running.text()
        await running.press("9")
        assert "gathering: gpu018: connection lost" in running.text()


@piloted
async def test_a_bug_in_a_session_is_reported_and_the_console_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    class Broken(FakeSession):
        def snapshot(self, at_ns: int | None = None) -> Snapshot:  # noqa: ARG002
            raise KeyError("what")

    async with console(Broken()) as running:
        assert "a defect of oncall: KeyError" in running.text()
        await running.press("9")
        assert "traceback in" in running.text()
        assert "in snapshot" in (tmp_path / "oncall" / "defects.log").read_text()


@piloted
async def test_a_hang_is_not_lost_by_what_arrives_late() -> None:
    """The newest question wins: stepping quickly shows only where one stopped."""
    async with console(FakeSession(hang_snapshot())) as running:
        running.session.gate.clear()
        await running.pilot.press(*["left_square_bracket"] * 5)
        running.session.gate.set()
        await running.settle()
        assert running.app.state.snapshot.moment.at_ns == LAST_NS - 75 * 10**9


@piloted
async def test_gathering_again_while_paused_stays_at_that_moment() -> None:
    async with console(live_session()) as running:
        await running.press("space", "left_square_bracket", "R")
        assert gathers(running.session) == 1
        assert instants(running.session)[-1] == LAST_NS - 15 * 10**9
