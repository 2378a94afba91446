"""The rates screen, key by key."""

from __future__ import annotations

from dataclasses import replace

from textual.widgets import Static

from oncall.console.evidence_queries import GetRates
from oncall.core.errors import UsageError
from oncall.tui.screens.rates import RateChart, RateList
from oncall.views.rates.buckets import Series

from .console import Running, console, piloted
from .fake_session import FakeSession
from .pictures import check_picture, in_both_looks


class FineSession(FakeSession):
    """Its rates are of something that can be asked for more finely."""

    def rates(self, query: GetRates) -> tuple[Series, ...]:
        found = super().rates(query)
        if query.kind == "rank 5":
            return tuple(replace(one, name="rank 5 of tp") for one in found[:1])
        number = "5" if query.kind == "suspects" else "0"
        return (replace(found[0], subject=f"rank {number}"), *found[1:])


def rates(running: Running) -> RateList:
    return running.app.screen.query_one(RateList)


def names(running: Running) -> list[str]:
    return [one.name for one in rates(running).rows]


def chart(running: Running) -> str:
    return str(running.app.screen.query_one(RateChart).content)


def said(running: Running) -> str:
    return str(running.app.screen.query_one("#rates-line", Static).content)


@piloted
async def test_ranks_and_nics_are_asked_for() -> None:
    async with console() as running:
        await running.press("4", "c", "c", "c")
        assert [query.kind for query in running.session.asked_for(GetRates)] == [
            "job", "suspects", "job", "ranks", "nics",
        ]  # fmt: skip
        assert "bytes each port sent and received" in said(running)
        assert "gpu017 mlx5_0 tx" in running.text() and "GB/s" in running.text()
        assert "4 rates: bytes each port" in said(running)


@piloted
async def test_a_scale_is_shared_or_each_lines_own() -> None:
    async with console() as running:
        await running.press("4")
        assert "one scale, from 0" in said(running)
        await running.press("v")
        assert "a scale per line" in said(running)


@piloted
async def test_one_thing_is_shown_more_finely_and_left_again() -> None:
    async with console(FineSession()) as running:
        await running.press("4", "enter")
        assert names(running) == ["rank 5 of tp"]
        assert "rank 5, at full resolution" in said(running)
        await running.press("escape")
        assert len(names(running)) == 8 and running.app.current_mode == "rates"
        await running.press("j", "enter")
        assert "there is no finer data" in running.text()


@piloted
async def test_a_rate_leads_to_its_rank() -> None:
    async with console(FineSession()) as running:
        await running.press("4", "r")
        assert running.app.current_mode == "fleet"


@piloted
async def test_a_filter_and_faults_only_narrow_the_list() -> None:
    async with console() as running:
        await running.press("4", "slash")
        await running.type("rank 3")
        assert names(running) == ["rank 3 of dp"]
        assert "1 of 8 rate" in said(running)
        assert chart(running).startswith("rank 3 of dp")


@piloted
async def test_without_rates_it_says_so() -> None:
    session = FakeSession()
    session.answers[GetRates] = lambda _: ()
    async with console(session) as running:
        await running.press("4")
        assert "not recorded: suspects and their groups" in said(running)
        await running.press("v")
        assert "no rate is shown" in running.text()


@piloted
async def test_what_cannot_be_read_says_why() -> None:
    session = FakeSession()
    session.fails[GetRates] = UsageError("the node is gone")
    async with console(session) as running:
        await running.press("4")
        assert "the node is gone" in said(running)


@piloted
async def test_numbers_can_be_copied() -> None:
    async with console() as running:
        await running.press("4")
        screen = running.app.console_screen
        assert screen is not None
        text, numbers = screen.copies()
        assert str(text.text).startswith("rank 5 of dp: 0 ops/s")
        assert str(numbers.text).startswith("at_ns\tops/s\n1760000000000000000\t20\n")


@in_both_looks
@piloted
async def test_picture(size: tuple[int, int], theme: str) -> None:
    async with console(size=size, theme=theme) as running:
        await running.press("4", "j", "j", "j", "j")
        check_picture(running.app, f"rates-{size[0]}x{size[1]}-{theme.removeprefix('oncall-')}")
