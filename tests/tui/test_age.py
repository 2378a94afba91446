"""How old what is shown of a running job is, and who tells nothing any more."""

from __future__ import annotations

from dataclasses import replace

from oncall.tui.shell.lines import StatusLine, TitleLine
from oncall.views.snapshot import HostAnswer, Snapshot

from .console import Running, console, piloted
from .fake_session import FakeSession
from .snapshots import healthy_snapshot, silent_snapshot

NARROW = (80, 24)


def live_snapshot(*hosts: HostAnswer) -> Snapshot:
    """A healthy job that runs."""
    snapshot = healthy_snapshot()
    return replace(snapshot, moment=replace(snapshot.moment, live=True), hosts=hosts)


def dead_collector() -> Snapshot:
    return live_snapshot(
        HostAnswer("gpu017", "ok", age_ns=10**9),
        HostAnswer("gpu018", "ok", age_ns=10**9, collector="no collector is running"),
    )


def colour_of(running: Running, line: type[StatusLine] | type[TitleLine], text: str) -> str:
    """The colour of a text in one of the lines around the screen."""
    found = running.app.screen.query_one(line)._said
    assert found is not None and text in found.plain
    at = found.plain.index(text)
    return next(str(one.style) for one in reversed(found.spans) if one.start <= at < one.end)


@piloted
async def test_the_age_of_what_is_shown_turns_amber_and_red() -> None:
    session = FakeSession(live_snapshot())
    async with console(session, NARROW, refresh_every_s=10**6) as running:
        for later_s, said, variable in (
            (4, ", 4 s old", "muted"),
            (16, ", 20 s old", "warning"),
            (77, ", 1 min 37 s old", "error"),
        ):
            await running.pass_s(later_s)
            assert f"● live 09:05:50 UTC{said}" in running.text()
            colour = running.app.theme_variables[variable].lower()
            assert colour in colour_of(running, StatusLine, said).lower()


@piloted
async def test_evidence_that_was_old_when_it_came_says_so() -> None:
    """The nodes answer at once, but with what they recorded two minutes ago."""
    snapshot = live_snapshot()
    at_ns = snapshot.moment.at_ns
    assert at_ns is not None
    moment = replace(snapshot.moment, at_ns=at_ns - 120 * 10**9, last_ns=at_ns - 120 * 10**9)
    async with console(FakeSession(replace(snapshot, moment=moment)), NARROW) as running:
        assert "● live 09:03:50 UTC, 2 min old" in running.text()


@piloted
async def test_a_dead_collector_is_on_the_second_line_and_no_check_mark_is_shown() -> None:
    async with console(FakeSession(dead_collector()), NARROW) as running:
        assert "collector dead on gpu018" in running.line(1)
        assert "1 collector dead" in running.text()
        assert "✔ No findings" not in running.text()


@piloted
async def test_a_silent_node_is_in_the_header_on_every_screen() -> None:
    async with console(FakeSession(silent_snapshot()), NARROW) as running:
        for key in "123456":
            await running.press(key)
            assert "gpu018 silent" in running.line(1), key


@piloted
async def test_a_lost_gateway_is_on_the_second_line_and_its_reason_beside_the_coverage() -> None:
    why = {"gw07": "not in its PATH"}
    session = FakeSession(replace(healthy_snapshot(), lost_gateways=why))
    async with console(session, NARROW) as running:
        assert "gateway gw07 lost" in running.line(1)
        assert "gateway gw07: not in its PATH; its nodes are asked directly" in running.text()
