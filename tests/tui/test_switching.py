"""How a screen comes: one paint, of what it has to show; made ahead while nobody types."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from textual.app import App

from oncall.console.evidence_queries import GetRankCard, GetRates, GetStages
from oncall.tui.run import collect_in_short_pauses
from oncall.tui.shell import switching
from oncall.tui.shell.registry import SCREENS

from .console import Running, console, piloted
from .fake_session import FakeSession
from .pictures import normalised


class Painted:
    """What is painted from now on: the screen's text each time."""

    def __init__(self, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        self.frames: list[str] = []
        display = App._display

        def painted(app: App[Any], screen: Any, renderable: Any) -> None:
            if renderable is not None and not app._batch_count:
                self.frames.append(running.text())
            display(app, screen, renderable)

        monkeypatch.setattr(App, "_display", painted)


@piloted
async def test_the_first_paint_of_a_screen_shows_what_it_has_to_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with console(size=(120, 40)) as running:
        painted = Painted(running, monkeypatch)
        await running.press("2")
        first = painted.frames[0]
        assert "16 ranks by node" in first and "gpu017  0H" in first and "5X" in first
        assert "enter Card" in first
        painted.frames.clear()
        await running.press("4")
        assert all("16 ranks by node" not in frame for frame in painted.frames)


@piloted
async def test_a_screen_that_does_not_settle_is_painted_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(switching, "_LONGEST_S", 0.01)
    async with console() as running:
        monkeypatch.setattr(switching.SettlingScreen, "_settle", lambda *_: None)
        await running.press("2")
        await running.pilot.pause(0.1)
        assert not running.app.holds_back and not running.app._batch_count
        assert "16 ranks by node" in running.text()


@piloted
async def test_the_last_of_several_keys_wins() -> None:
    async with console() as running:
        await running.pilot.press("2", "3", "4", "2")
        await running.settle()
        assert running.app.current_mode == "fleet" and not running.app._batch_count
        assert "16 ranks by node" in running.text()


@piloted
async def test_screens_are_made_ahead_while_nobody_types() -> None:
    session = FakeSession()
    async with console(session) as running:
        made = set(running.app._screen_stacks)
        await running.press("question_mark")
        await running.press("escape")
        assert set(running.app._screen_stacks) == made  # just now somebody typed
        asked = len(session.asked)
        for _ in SCREENS:
            await running.pass_s(2)
        assert set(running.app._screen_stacks) == {one.id for one in SCREENS}
        assert len(session.asked) == asked  # they ask for what they show once they are seen
        assert running.app.current_mode == "incident"
        before = session.asked_for(GetRankCard), session.asked_for(GetStages)
        await running.press("T")  # nor when the theme changes
        assert (session.asked_for(GetRankCard), session.asked_for(GetStages)) == before == ([], [])
        await running.press("2")
        assert "16 ranks by node" in running.text()
        await running.press("4")
        assert GetRates("suspects") in session.asked


@piloted
async def test_what_is_made_ahead_looks_no_other_even_if_the_theme_has_changed() -> None:
    seen: list[list[str]] = []
    for waits in (0, len(SCREENS)):
        async with console(size=(120, 40)) as running:
            for _ in range(waits):
                await running.pass_s(2)
            await running.press("T")
            shots = []
            for key in ("2", "4", "6", "2"):
                await running.press(key)
                await running.pass_s(10)  # what was said of the theme is gone
                shots.append(normalised(running.app.export_screenshot(title=" ")))
            seen.append(shots)
    assert seen[0] == seen[1]


@pytest.fixture
def collecting() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("collecting")
def test_garbage_is_collected_in_short_pauses() -> None:
    gc.set_threshold(200_000, 20, 100)
    collect_in_short_pauses()
    assert gc.get_freeze_count() > 1000
    assert gc.get_threshold() == (20_000, 20, 100)
