"""The communicator screen, key by key."""

from __future__ import annotations

from dataclasses import replace

from textual.widgets import Static

from oncall.console.evidence_queries import GetCommunicator
from oncall.core.errors import UsageError
from oncall.tui.screens.communicators.round_grid import RoundGrid
from oncall.tui.screens.communicators.screen import CommunicatorList
from oncall.views.snapshot import Snapshot

from .console import Running, console, piloted
from .fake_session import FakeSession
from .pictures import check_picture, in_both_looks
from .snapshots import DP, TP, WORLD, hang_snapshot, healthy_snapshot
from .until import until


def elsewhere() -> Snapshot:
    """The hang, with rank 5 blocked in a tensor-parallel operation."""
    snapshot = hang_snapshot()
    comm, seq = snapshot.ranks.comm.copy(), snapshot.ranks.seq.copy()
    comm[5], seq[5] = TP, 812
    return replace(snapshot, ranks=replace(snapshot.ranks, comm=comm, seq=seq))


def chosen(running: Running) -> int:
    row = running.app.screen.query_one(CommunicatorList).row
    return row.comm if row is not None else 0


def shown_text(running: Running) -> str:
    return str(running.app.screen.query_one("#round", Static).content)


def shown(running: Running) -> int:
    view = running.app.screen.query_one(RoundGrid).view
    return view.summary.comm if view is not None else 0


@piloted
async def test_rounds_before_tell_how_long_they_took() -> None:
    async with console(size=(160, 48)) as running:
        await running.press("3")
        await until(running, lambda: shown(running) == DP)
        await running.press("tab", "h", "h")
        assert "AllReduce 12: 16 of 16 done" in shown_text(running)
        assert "took 410 ms (rank" in shown_text(running)
        await running.press("l", "l", "l")
        assert "AllReduce 14" in shown_text(running)


@piloted
async def test_rows_fold_and_unfold() -> None:
    async with console(size=(160, 48)) as running:
        await running.press("3")
        await until(running, lambda: shown(running) == DP)
        rows = running.app.screen.query_one(RoundGrid).rows
        assert [row.label for row in rows] == ["rank 5", "ranks 0-4,6-15 (15 ranks)"]
        await running.press("v")
        assert len(running.app.screen.query_one(RoundGrid).rows) == 16
        await running.press("v")
        assert len(running.app.screen.query_one(RoundGrid).rows) == 2


@piloted
async def test_a_waiter_is_followed_and_come_back_from() -> None:
    async with console(FakeSession(elsewhere()), size=(160, 48)) as running:
        await running.press("3")
        await until(running, lambda: shown(running) == DP)
        assert "rank 5 is blocked in operation 812 of tp 0-1" in shown_text(running)
        await running.press("enter")
        await until(running, lambda: shown(running) == TP)
        assert chosen(running) == TP
        await running.press("escape")
        await until(running, lambda: shown(running) == DP)
        assert running.app.current_mode == "communicators"
        await running.press("escape")
        assert running.app.current_mode != "communicators"


@piloted
async def test_a_row_leads_to_its_rank_in_the_fleet() -> None:
    async with console(size=(160, 48)) as running:
        await running.press("3")
        await until(running, lambda: shown(running) == DP)
        await running.press("tab", "j", "r")
        assert running.app.current_mode == "fleet"
        await until(running, lambda: "Rank 0" in running.text())


@piloted
async def test_a_filter_narrows_the_list_and_what_it_chose_is_shown() -> None:
    async with console(size=(160, 48)) as running:
        await running.press("3", "slash")
        await running.type("world")
        await until(running, lambda: shown(running) == WORLD)
        await running.press("slash")
        await running.press(*["backspace"] * 5)
        await running.type("nothing")
        assert "none matches the filter" in running.text()


@piloted
async def test_goes_to_a_communicator_by_its_hash() -> None:
    async with console(size=(160, 48)) as running:
        await running.press("colon")
        await running.type(hex(TP))
        await until(running, lambda: running.app.current_mode == "communicators")
        await until(running, lambda: shown(running) == TP)


@piloted
async def test_a_new_snapshot_leaves_the_cursor_where_it_was() -> None:
    snapshot = replace(hang_snapshot(), moment=replace(hang_snapshot().moment, live=True))
    session = FakeSession(snapshot)
    async with console(session, size=(160, 48)) as running:
        await running.press("3", "j")
        await until(running, lambda: shown(running) == WORLD)
        dp, tp, everybody = snapshot.communicators
        waited_in = replace(tp, behind=1, waiting=1, longest_wait_ns=10**9)
        session.replace(replace(snapshot, communicators=(dp, waited_in, everybody)))
        await running.press("R")
        await until(running, lambda: "L tp 0-1" in running.line(3))
        assert chosen(running) == WORLD and "world" in running.line(4)


@piloted
async def test_what_cannot_be_read_says_why() -> None:
    session = FakeSession()
    session.fails[GetCommunicator] = UsageError("the file is gone")
    async with console(session, size=(160, 48)) as running:
        await running.press("3")
        await until(running, lambda: "the file is gone" in shown_text(running))


@piloted
async def test_a_job_without_communicators_says_so() -> None:
    async with console(FakeSession(replace(healthy_snapshot(), communicators=()))) as running:
        await running.press("3")
        assert "none recorded" in running.text()
        await running.press("enter")
        assert "no communicators recorded" in running.text()


@in_both_looks
@piloted
async def test_picture(size: tuple[int, int], theme: str) -> None:
    async with console(FakeSession(elsewhere()), size=size, theme=theme) as running:
        await running.press("3")
        await until(running, lambda: "AllReduce 14" in shown_text(running))
        name = f"communicators-{size[0]}x{size[1]}-{theme.removeprefix('oncall-')}"
        check_picture(running.app, name)
