"""A running job between gathers: what its nodes have recorded, asked for every second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from oncall.console.queries import GatherSnapshot, GetPulse

from .console import Running, console, piloted
from .fake_session import FakeSession
from .snapshots import healthy_snapshot

WIDE = (140, 40)


def running_job(counts: Mapping[str, int]) -> FakeSession:
    """A live session whose nodes say these counts."""
    snapshot = healthy_snapshot()
    session = FakeSession(replace(snapshot, moment=replace(snapshot.moment, live=True)))
    session.answers[GetPulse] = lambda _: dict(counts)
    return session


async def pass_beats(running: Running, times: int) -> None:
    for _ in range(times):
        await running.pass_s(1)


@piloted
async def test_the_rate_is_shown_and_red_once_nothing_is_recorded() -> None:
    counts = {"a": 10, "b": 10}
    session = running_job(counts)
    async with console(session, WIDE, refresh_every_s=10**6) as running:
        await pass_beats(running, 1)
        for a, b, shown in ((50, 30, "█ 80 records/s"), (100, 100, "█ 200 records/s")):
            counts["a"], counts["b"] = counts["a"] + a, counts["b"] + b
            await pass_beats(running, 1)
            assert shown in running.text()
        gathered = len(session.asked_for(GatherSnapshot))
        await pass_beats(running, 1)
        assert "▄█▁ 0 records/s" in running.text()
        assert len(session.asked_for(GatherSnapshot)) == gathered + 1  # at once, and once
        await pass_beats(running, 3)
        assert len(session.asked_for(GatherSnapshot)) == gathered + 1
