"""The fleet screen, key by key."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oncall.console.evidence_queries import GetCommunicator, GetRankCard, GetRates
from oncall.core.errors import UsageError
from oncall.tui.screens.fleet.rank_card import RankCardPane
from oncall.tui.screens.fleet.rank_grid import RankGrid
from oncall.views.snapshot import RankState, Snapshot

from .console import Running, console, piloted
from .fake_session import FakeSession
from .pictures import check_picture, in_both_looks
from .snapshots import DP, large_snapshot, silent_snapshot
from .until import until


def grid(running: Running) -> RankGrid:
    return running.app.screen.query_one(RankGrid)


def card_of(running: Running, rank: int) -> bool:
    return f"Rank {rank}\n" in str(running.app.screen.query_one("RankCardPane Static").content)


def changed(snapshot: Snapshot, states: dict[int, RankState]) -> Snapshot:
    state = snapshot.ranks.state.copy()
    for rank, now in states.items():
        state[rank] = now
    return replace(snapshot, ranks=replace(snapshot.ranks, state=state))


@piloted
async def test_begins_at_the_culprit_with_its_card_which_follows_a_cursor_that_rests() -> None:
    async with console(size=(160, 48)) as running:
        await running.press("2")
        await until(running, lambda: card_of(running, 5))
        assert grid(running).rank == 5
        assert "X 1 blamed" in running.line(1)
        assert "wait at loader.py:88" in running.text()
        await running.press("l", "l", "l")
        await until(running, lambda: card_of(running, 8))
        assert GetRankCard(8) in running.session.asked


@piloted
async def test_moves_by_arrows_and_by_vi() -> None:
    async with console() as running:
        await running.press("2", "l", "right", "h")
        assert grid(running).rank == 6
        await running.press("j")
        assert grid(running).rank == 14
        await running.press("up", "g")
        assert grid(running).rank == 0
        await running.press("G")
        assert grid(running).rank == 15


@piloted
async def test_on_a_narrow_terminal_the_card_is_below_a_grid_that_leaves_room() -> None:
    async with console(size=(80, 24)) as running:
        await running.press("2")
        await until(running, lambda: card_of(running, 5))
        assert "Rank 5" in running.text() and "H" in running.line(2)
        await running.press("l")
        await until(running, lambda: card_of(running, 6))
    async with console(FakeSession(large_snapshot()), size=(80, 24)) as running:
        await running.press("2")
        assert not running.app.screen.query_one(RankCardPane).display


@piloted
async def test_on_a_narrow_terminal_the_card_is_opened_and_left() -> None:
    async with console(size=(80, 24)) as running:
        await running.press("2")
        assert "rank 5 on gpu017 · GPU 5" in running.text()
        await running.press("enter")
        await until(running, lambda: card_of(running, 5))
        assert "Operations, newest first" in running.text()
        assert not grid(running).display
        await running.press("escape")
        assert "gpu017" in running.line(2)
        assert running.app.current_mode == "fleet"


@piloted
async def test_groups_one_way_after_the_other_and_stays_on_its_rank() -> None:
    async with console() as running:
        await running.press("2", "v")
        assert "by stage" in running.line(1)
        assert "stage 0" in running.text() and grid(running).rank == 5
        await running.press("v")
        assert "by tp" in running.line(1) and grid(running).rank == 5
        await running.press("v", "v", "v")
        assert "by node" in running.line(1)


@piloted
async def test_a_filter_and_faults_only_narrow_what_is_shown() -> None:
    async with console() as running:
        await running.press("2", "slash")
        await running.type("gpu018")
        assert "8 of 16 ranks" in running.line(1) and "gpu017" not in running.text()
        assert grid(running).rank == 8
        await running.press("f")
        assert "0 of 16 ranks" in running.line(1) and "none matches" in running.line(1)
        await running.press("escape")
        assert "1 of 16 ranks" in running.line(1) and grid(running).rank == 5


@piloted
async def test_a_filter_that_means_nothing_here_says_so() -> None:
    async with console(size=(160, 24)) as running:
        await running.press("2", "slash")
        await running.type("ep3")
        assert "no ep communicator" in running.line(1)
        assert "16 ranks" in running.line(1)


@piloted
async def test_jumps_between_ranks_at_fault() -> None:
    async with console(FakeSession(large_snapshot())) as running:
        await running.press("2", "w")
        assert grid(running).rank == 400
        await running.press("b", "b")
        assert grid(running).rank == 4095
        assert "gpu528" in running.text()


@piloted
async def test_goes_to_a_rank_and_to_a_node() -> None:
    async with console(FakeSession(large_snapshot())) as running:
        await running.press("colon")
        await running.type("rank 2222")
        assert running.app.current_mode == "fleet"
        await until(running, lambda: grid(running).rank == 2222)
        await running.press("colon")
        await running.type("node gpu100")
        await until(running, lambda: grid(running).rank == 664)
        await running.press("colon")
        await running.type("rank 99999")
        assert "there is no rank 99999; the ranks are 0-4095" in running.text()


@piloted
async def test_a_rank_leads_to_the_communicator_it_stands_in() -> None:
    async with console() as running:
        await running.press("2", "c")
        assert "not blocked in any recorded operation" in running.text()
        await running.press("h", "c")
        assert running.app.current_mode == "communicators"
        await until(
            running,
            lambda: DP in [query.comm for query in running.session.asked_for(GetCommunicator)],
        )


@piloted
async def test_of_a_new_snapshot_only_what_changed_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot = replace(large_snapshot(), moment=replace(large_snapshot().moment, live=True))
    session = FakeSession(snapshot)
    async with console(session, size=(80, 24)) as running:
        await running.press("2")
        drawn: list[int] = []
        before = RankGrid.render_line
        monkeypatch.setattr(
            RankGrid, "render_line", lambda self, y: (drawn.append(y), before(self, y))[1]
        )
        session.replace(changed(snapshot, {9: RankState.RUNNING, 4000: RankState.RUNNING}))
        await running.press("R")
        await until(running, lambda: ". 3 running" in running.line(2) or ". 3" in running.line(2))
        assert set(drawn) == {0}  # gpu018 is on screen, the other far below it
        assert grid(running).rank == 137


@piloted
async def test_ranks_that_come_and_go_leave_the_cursor_on_its_rank() -> None:
    session = FakeSession(silent_snapshot())
    async with console(session) as running:
        await running.press("2", "G")
        assert grid(running).rank == 15
        larger = large_snapshot(512)
        session.replace(replace(larger, moment=replace(larger.moment, live=True)))
        await running.press("R")
        await until(running, lambda: "512 ranks" in running.text())
        assert grid(running).rank == 15


@piloted
async def test_a_card_that_cannot_be_read_says_why() -> None:
    session = FakeSession()
    session.fails[GetRankCard] = UsageError("the file is gone")
    async with console(session, size=(160, 48)) as running:
        await running.press("2")
        await until(running, lambda: "the file is gone" in running.text())


@piloted
async def test_a_click_moves_the_cursor() -> None:
    async with console() as running:
        await running.press("2")
        at = grid(running)._layout_now
        assert at is not None
        place = at.place[11]
        await running.pilot.click(RankGrid, offset=(int(at.column[place]) + 1, int(at.row[place])))
        await running.settle()
        assert grid(running).rank == 11


@piloted
async def test_sizes_do_not_disturb_it() -> None:
    async with console(FakeSession(large_snapshot())) as running:
        await running.press("2")
        for size in ((60, 16), (200, 60), (30, 5), (120, 30)):
            await running.pilot.resize_terminal(*size)
            await running.settle()
        assert grid(running).rank == 137
        assert np.array_equal(grid(running)._shown, np.ones(4096, dtype=np.bool_))


@in_both_looks
@piloted
async def test_picture(size: tuple[int, int], theme: str) -> None:
    async with console(FakeSession(large_snapshot()), size=size, theme=theme) as running:
        await running.press("2")
        if size[0] > 120:
            await until(running, lambda: card_of(running, 137))
        check_picture(running.app, f"fleet-{size[0]}x{size[1]}-{theme.removeprefix('oncall-')}")


@piloted
async def test_picture_by_stage() -> None:
    async with console(FakeSession(large_snapshot(512)), size=(160, 48)) as running:
        await running.press("2", "v")
        await until(running, lambda: "Rank" in running.text())
        check_picture(running.app, "fleet-stage-160x48-dark")


@piloted
async def test_ranks_are_coloured_and_sorted_by_a_value() -> None:
    async with console(size=(200, 60)) as running:
        await running.press("2", "o")
        assert "lag: 0 is 40 ops, 9 is 55 ops, 1 rank without" in running.text()
        await running.press("o")  # rate was not recorded
        assert "temperature: 0 is 40 °C, 9 is 55 °C" in running.text()
        assert "15 9 55 °C" in running.text() and " 3 · -" in running.text()
        await running.press("u")
        text = running.text()
        assert "by value" in text
        assert text.index("15 9 55 °C") < text.index("14 9 54 °C") < text.index(" 3 · -")
        await running.press("o")  # neither were power and NIC: the state again
        assert "X 1 blamed" in running.text() and "temperature" not in running.text()


@piloted
async def test_below_a_small_grid_are_the_rates_of_the_ranks() -> None:
    session = FakeSession()
    async with console(session, size=(160, 48)) as running:
        await running.press("2")
        text = running.text()
        assert "Rates: bytes handed to collectives" in text
        assert "rank 5: 0 B/s · below baseline" in text
        await running.press("h", "h")
        assert "rank 3: 0 B/s · below baseline" in running.text()
        asked = session.asked_for(GetRates).count(GetRates("ranks"))
        assert asked == 1  # moving the cursor reads nothing
        await running.press("o")
        assert "Rates: bytes" not in running.text()  # values take more room


@piloted
async def test_rates_that_were_not_recorded_are_named_and_a_narrow_terminal_asks_for_none() -> None:
    session = FakeSession()
    session.fails[GetRates] = UsageError("no times")
    async with console(session, size=(160, 48)) as running:
        await running.press("2")
        assert "Not recorded: bytes handed to collectives" in running.text()
    session = FakeSession()
    async with console(session, size=(80, 24)) as running:
        await running.press("2")
        assert GetRates("ranks") not in session.asked


@piloted
async def test_a_large_fleet_is_a_map_and_e_shows_rank_numbers() -> None:
    async with console(FakeSession(large_snapshot()), size=(120, 40)) as running:
        await running.press("2")
        assert "[X]" in running.text() and "HL▀H" in running.text()
        assert sum("HHHH" in running.line(line) for line in range(40)) == 32  # 128 ranks a line
        await running.press("e")
        assert "[ 137X]" in running.text()
        await running.press("e", "w")
        assert grid(running).rank == 400 and "[X]" not in running.text()
