"""The log as the story of the night, the job's own logs, the stacks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncall.console.evidence_queries import GetStacks
from oncall.core.errors import UsageError
from oncall.tui.drawing.states import THEMES
from oncall.tui.screens.stacks import stack_items
from oncall.tui.shell.log import changes
from oncall.tui.shell.registry import SCREENS
from oncall.views.snapshot import HostAnswer, Snapshot
from oncall.views.stacks import FoldedStacks, StackGroup

from .console import console, piloted
from .fake_session import FakeSession
from .snapshots import hang_snapshot, healthy_snapshot, silent_snapshot


def live(snapshot: Snapshot, *hosts: HostAnswer) -> Snapshot:
    return replace(snapshot, moment=replace(snapshot.moment, live=True), hosts=hosts)


def said(before: Snapshot | None, now: Snapshot) -> list[str]:
    return [line for line, _ in changes(before, now)]


def test_a_note_is_logged_once() -> None:
    healthy = live(healthy_snapshot())
    noted = replace(healthy, diagnosis=replace(healthy.diagnosis, notes=("without the archive",)))
    assert said(None, noted)[-1] == "note: without the archive"
    assert said(noted, noted) == []


def test_nodes_and_collectors_are_lost_and_come_back() -> None:
    well = live(healthy_snapshot(), HostAnswer("gpu017", "ok"), HostAnswer("gpu018", "ok"))
    ill = live(
        healthy_snapshot(),
        HostAnswer("gpu017", "ok", collector="no collector is running"),
        HostAnswer("gpu018", "timeout"),
    )
    slow = HostAnswer("gpu017", "ok", collector="the collector did not answer", collector_slow=True)
    late = live(healthy_snapshot(), slow)
    assert said(live(healthy_snapshot()), late) == ["collector silent on: gpu017"]
    assert said(well, ill) == ["silent: gpu018", "collector dead on: gpu017"]
    starved = live(
        healthy_snapshot(), HostAnswer("gpu017", "timeout", slowness="needs over 20 s to answer")
    )
    assert said(well, starved) == ["slow to answer: gpu017"]
    gone = live(healthy_snapshot(), HostAnswer("gpu017", "timeout"), HostAnswer("gpu018", "ok"))
    assert said(ill, gone) == ["silent: gpu017", "answering again: gpu018"]
    assert said(ill, well) == ["answering again: gpu018", "collector back on: gpu017"]


@piloted
async def test_the_log_reads_as_the_story_of_the_night() -> None:
    session = FakeSession(live(healthy_snapshot()))
    async with console(session, (100, 30)) as running:
        session.replace(live(hang_snapshot()))
        await running.pass_s(6)
        session.replace(silent_snapshot())
        await running.pass_s(6)
        await running.press("9")
        text = running.text()
        order = [
            "verdict: No fault found",
            "verdict: ✖ Not entered: rank 5 on gpu017",
            "no longer: Not entered",
            "silent: gpu018",
        ]
        places = [text.index(one) for one in order]
        assert places == sorted(places)


@piloted
async def test_the_log_shows_the_jobs_own_lines_too() -> None:
    async with console(size=(100, 30)) as running:
        await running.press("9", "v")
        assert "gpu017  NVRM: Xid 31, pid=4105" in running.text()
        await running.press("slash")
        await running.type("watchdog")
        assert "NVRM" not in running.text() and "Watchdog: timeout" in running.text()
        await running.press("escape", "v")
        assert "verdict: ✖ Not entered" in running.text()


STACKS = FoldedStacks(
    "llama-70b",
    16,
    (
        StackGroup("rank 5", 1, "data loader", "wait", ("wait at loader.py:88",), True, False,
                   ("gpu017",), (4105,)),
        StackGroup("ranks 0-4,6-15", 15, "backward", "all_reduce",
                   tuple(f"f{n} at /usr/lib/python3.11/x.py:{n}" for n in range(20)), False, False),
    ),
    1,
)  # fmt: skip


@piloted
async def test_the_odd_stack_stands_first_and_leads_to_its_rank() -> None:
    session = FakeSession()
    session.answers[GetStacks] = lambda _: STACKS
    async with console(session, (100, 40)) as running:
        await running.press("8")
        text = running.text()
        assert text.index("✖ rank 5: data loader") < text.index("ranks 0-4,6-15: backward")
        assert "8 more frames" in text
        await running.press("r")
        assert running.app.current_mode == "fleet"


@piloted
async def test_without_stacks_the_screen_says_how_to_take_them() -> None:
    session = FakeSession()
    session.fails[GetStacks] = UsageError("no stacks")
    async with console(session, (80, 24)) as running:
        await running.press("8")
        assert "$ oncall stacks --job llama-70b" in running.text()


@pytest.mark.parametrize(("pattern", "count"), [("", 3), ("loader", 2), ("nothing", 1)])
def test_stacks_are_filtered(pattern: str, count: int) -> None:
    assert len(stack_items(STACKS, pattern)) == count


def test_short_names_differ() -> None:
    assert len({entry.short for entry in SCREENS}) == len(SCREENS)
    assert {len(entry.short) for entry in SCREENS} == {3}


@pytest.mark.parametrize("theme", [one.name for one in THEMES])
def test_the_log_paints_what_is_critical_and_what_is_a_warning_in_their_own_colours(
    theme: str,
) -> None:
    @piloted
    async def painted() -> None:
        async with console(size=(100, 30), theme=theme) as running:
            await running.press("9")
            of = ("✖ Not-entered hang: rank 5", "▲ Slow rank: rank 7", "the evidence begins")
            styles = [
                segment.style.color
                for said in of
                for strip in running.app.screen._compositor.render_strips()
                for segment in strip
                if said in segment.text and "verdict" not in segment.text and segment.style
            ]
            assert len(styles) == len(set(styles)) == 3

    painted()
