"""Rulebooks that take long run once the cursor rests, and what they found last is dated."""

from __future__ import annotations

from dataclasses import replace

from oncall.console.evidence_queries import GetStages
from oncall.console.queries import GetSnapshot, JudgeSnapshot
from oncall.core.errors import UsageError
from oncall.views.snapshot import Earlier, Snapshot

from .console import console, piloted
from .fake_session import FakeSession
from .snapshots import LAST_NS, hang_snapshot, healthy_snapshot


def pending(snapshot: Snapshot) -> Snapshot:
    """With rulebooks that have yet to run, and found something at the end."""
    hang = hang_snapshot().diagnosis.findings[0]
    late = replace(hang, title="Slow pipeline stage", rulebook="stages", severity="warning")
    return replace(
        snapshot,
        diagnosis=replace(snapshot.diagnosis, pending=("slow", "stages")),
        earlier=Earlier(LAST_NS, (late,)),
    )


def judging() -> FakeSession:
    session = FakeSession(pending(healthy_snapshot()))
    session.answers[JudgeSnapshot] = lambda _: replace(healthy_snapshot(), version=99)
    return session


def judged(session: FakeSession) -> list[int | None]:
    return [query.at_ns for query in session.asked_for(JudgeSnapshot)]


@piloted
async def test_until_then_nothing_is_called_healthy_and_what_was_found_is_dated() -> None:
    session = FakeSession(pending(healthy_snapshot()))
    session.fails[JudgeSnapshot] = UsageError("the disk is full")
    async with console(session, size=(120, 40)) as running:
        text = running.text()
        assert "Nothing stops the job; 2 rulebooks have yet to run" in text
        assert "No fault found" not in text and "✔ Nothing" not in text
        assert "Found at 09:05:50 UTC, not yet judged for this moment" in text
        assert "Slow pipeline stage: rank 5" in text
        await running.press("6")
        assert "read once all rulebooks have run" in running.text().lower()
        assert not session.asked_for(GetStages)


@piloted
async def test_a_moving_cursor_waits_with_the_rest_until_it_is_still() -> None:
    session = judging()
    async with console(session) as running:
        await running.press("left_square_bracket", "left_square_bracket")
        asked = session.asked_for(GetSnapshot)[-1]
        assert asked.first
        assert judged(session) == [None]
        await running.pass_s(1)
        assert judged(session) == [None, asked.at_ns]


@piloted
async def test_a_playing_cursor_judges_nothing_until_it_is_paused() -> None:
    session = judging()
    async with console(session) as running:
        await running.press("left_curly_bracket")
        await running.press("space")
        await running.pass_s(2)
        await running.pass_s(2)
        assert judged(session) == [None]
        await running.press("space")
        await running.pass_s(1)
        assert len(judged(session)) == 2
