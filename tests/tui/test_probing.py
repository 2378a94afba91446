"""Probing from the console: on a finding, on a rank's node, stopped, refused, read."""

from __future__ import annotations

import threading
from dataclasses import replace

from oncall.console.queries import GetSnapshot, ProbeNodes
from oncall.core.diagnosis import Blame
from oncall.core.errors import UsageError
from oncall.tui.shell.messages import PROBE
from oncall.tui.shell.node_work import ProbeScreen
from oncall.views.snapshot import Snapshot

from .console import Running, console, piloted
from .fake_session import FakeSession
from .models.test_incident import with_findings
from .pictures import check_picture
from .snapshots import hang, hang_snapshot
from .until import until, until_seen

NARROW = (80, 24)


def live(snapshot: Snapshot) -> FakeSession:
    return FakeSession(replace(snapshot, moment=replace(snapshot.moment, live=True)))


def probed(running: Running) -> list[object]:
    return [query.nodes for query in running.session.asked_for(ProbeNodes)]


@piloted
async def test_the_nodes_of_a_finding_are_probed_and_the_result_is_read() -> None:
    async with console(live(hang_snapshot()), size=NARROW) as running:
        await running.press("p")
        await until_seen(running, "gpu017 → peer000  90 µs")
        assert probed(running) == [("gpu017",)]
        assert "Probe of gpu017" in running.text()
        await running.press("G")
        assert "gpu017 → peer039" in running.text()
        await running.press("y")
        assert running.app.clipboard.startswith("41 nodes")
        await running.press("escape")
        assert "Not entered: rank 5" in running.line(1)


@piloted
async def test_on_the_fleet_screen_it_is_the_node_under_the_cursor() -> None:
    async with console(live(hang_snapshot()), size=NARROW) as running:
        await running.press("2", "G", "p")
        await until_seen(running, "gpu018 → peer000")
        assert probed(running) == [("gpu018",)]


@piloted
async def test_one_sees_how_far_it_is_and_can_stop_it() -> None:
    session = live(hang_snapshot())
    async with console(session, size=NARROW) as running:
        session.gate.clear()
        session.so_far = "3 of 9 hosts answered"
        await running.pilot.press("p")
        await until_without_rest(running, "3 of 9 hosts answered")
        await running.pilot.press("escape")
        await until(running, lambda: not running.app.session.asks(PROBE))
        # What came in spite of that is nobody's any more.
        assert "probes" in session.cancelled
        assert not isinstance(running.app.screen, ProbeScreen)
        assert "worst pairs" not in running.text()


async def until_without_rest(running: Running, text: str) -> None:
    """Until it is seen, while something is still being asked."""
    for _ in range(3000):
        if text in running.text():
            return
        await running.pilot.pause(0.01)
    raise AssertionError(running.text())


@piloted
async def test_others_are_asked_meanwhile() -> None:
    session = live(hang_snapshot())
    async with console(session, size=NARROW) as running:
        session.gates[ProbeNodes] = threading.Event()
        await running.pilot.press("p")
        await until_without_rest(running, "These and a few other nodes")
        running.app.open_job("llama-70b")
        before = session.asked.count(GetSnapshot())
        await until_asked(running, before)
        session.gates[ProbeNodes].set()
        await until_seen(running, "worst pairs")


async def until_asked(running: Running, before: int) -> None:
    for _ in range(3000):
        if running.session.asked.count(GetSnapshot()) > before:
            return
        await running.pilot.pause(0.01)
    raise AssertionError(running.session.asked)


@piloted
async def test_what_fails_is_reported() -> None:
    session = live(hang_snapshot())
    session.fails[ProbeNodes] = UsageError("a probe needs two nodes that answer: gpu017 answered")
    async with console(session, size=NARROW) as running:
        await running.press("p")
        await until_seen(running, "No measurement: a probe needs two nodes")


@piloted
async def test_recordings_are_not_probed_nor_findings_without_a_node() -> None:
    async with console(size=NARROW) as running:
        await running.press("p")
        assert "Probe: this is a recording" in running.text()
        assert not probed(running)
    nobody = replace(hang(), blame=(Blame("comm", {"comm": "0xd9"}),))
    async with console(live(with_findings(nobody)), size=NARROW) as running:
        await running.press("p")
        assert "Probe: this finding blames no node" in running.text()


@piloted
async def test_picture() -> None:
    async with console(live(hang_snapshot()), size=NARROW) as running:
        await running.press("p")
        await until_seen(running, "worst pairs")
        check_picture(running.app, "probe")
