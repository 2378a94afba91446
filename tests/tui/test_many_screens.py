"""More screens than the title line has room for: the list of all is behind one key."""

from __future__ import annotations

from string import digits

import pytest

from oncall.tui.shell import registry
from oncall.tui.shell.registry import SCREENS, ScreenEntry, listed

from .console import console, piloted
from .fake_session import FakeSession

LOG = "oncall.tui.screens.log:LogScreen"


def more_screens(count: int) -> tuple[ScreenEntry, ...]:
    """Screens that a developer adds when every digit is taken."""
    return tuple(
        ScreenEntry(f"more{number}", f"More{number}", "", LOG, "What a new screen shows.")
        for number in range(count)
    )


def test_a_screen_without_a_key_of_its_own_has_a_letter_in_the_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "SCREENS", (*SCREENS, *more_screens(2)))
    keys = [key for key, _ in listed()]
    assert keys == [*digits, "a", "b"]


@piloted
async def test_every_screen_is_reached_by_the_list() -> None:
    async with console(FakeSession(), size=(80, 24)) as running:
        for key, entry in listed():
            await running.press("z", key)
            assert running.app.current_mode == entry.id
        await running.press("f2")
        assert "0 Jobs" in running.text() and "9 Log" in running.text()
        await running.press("escape")
        assert running.app.current_mode == SCREENS[-1].id
