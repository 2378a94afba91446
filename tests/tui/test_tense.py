"""What has ended stands in grey below what goes on: without rows, without a next command."""

from __future__ import annotations

from dataclasses import replace

from oncall.core.units import NS_PER_S
from oncall.tui.screens.incident import model
from oncall.views.snapshot import Ended, Snapshot

from .console import console, piloted
from .fake_session import FakeSession
from .pictures import check_picture
from .snapshots import LAST_NS, hang, hang_snapshot, healthy_snapshot, waiting

_AGO_NS = 180 * NS_PER_S


def after_a_stop(snapshot: Snapshot) -> Snapshot:
    """With a stop of rank 4 that ended three minutes ago."""
    was = replace(waiting(), severity="critical", explained_by=None)
    ended = Ended(was, LAST_NS - _AGO_NS - 58 * NS_PER_S, LAST_NS - _AGO_NS)
    return replace(snapshot, ended=(ended,))


def test_it_stands_below_what_goes_on_and_below_the_coverage() -> None:
    lines = model.incident(after_a_stop(hang_snapshot())).lines
    assert [line.past for line in lines] == [False, False, True]
    past = lines[-1]
    assert past.aside == "ended 3 min ago, once, 58 s"
    assert past.severity == "faint" and past.finding is not None
    assert not past.finding.next and not any(step.fact for step in past.finding.story)


def test_what_slows_the_job_no_more_comes_after_what_does() -> None:
    snapshot = hang_snapshot()
    from oncall.core.diagnosis import Claim, Lost

    claim = Claim("effect", frozenset({"compute"}))
    over = replace(hang(), title="Over", lost=Lost(0.5), until_ns=LAST_NS - _AGO_NS, claim=claim)
    now = replace(hang(), id="F2", title="Now", lost=Lost(0.1), claim=claim)
    both = replace(snapshot, diagnosis=replace(snapshot.diagnosis, findings=(over, now)))
    found = model.incident(both)
    assert [line.title for line in found.lines[:2]] == ["Now", "Over"]
    assert found.lines[1].past and found.lines[1].aside.startswith("until ")
    assert found.headline.sentence.index("Now") < found.headline.sentence.index("Over")


@piloted
async def test_a_healthy_job_says_what_has_ended() -> None:
    async with console(FakeSession(after_a_stop(healthy_snapshot())), (80, 24)) as running:
        assert "No fault found" in running.line(1)
        assert "ended 3 min ago, once, 58 s" in running.text()
        assert "Next" not in running.line(3)
        check_picture(running.app, "ended-80x24-dark")
        await running.press("G")
        assert "ended waits W1" in running.text()
        await running.press("c")
        assert "no command" in running.line(-2) or "command" in running.line(-2)
        await running.press("w")
        assert "Next command" not in running.line(3)
