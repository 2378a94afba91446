"""The console as a whole, key by key, on a session made by hand."""

from __future__ import annotations

from dataclasses import replace
from string import ascii_uppercase

import pytest
from textual import events

from oncall.tui.drawing.states import THEMES
from oncall.tui.shell.messages import Copy
from oncall.tui.shell.registry import SCREENS

from .console import console, piloted
from .fake_session import FakeSession
from .snapshots import FIRST_NS, JOB, silent_snapshot


@piloted
async def test_help_tells_every_key_of_the_screen_and_why_some_do_nothing() -> None:
    async with console(size=(100, 120)) as running:
        await running.press("question_mark")
        seen = running.text()
        for entry in running.app.actions_of(running.app.console_screen):
            assert entry.description.split()[0] in seen, entry.id
        assert "Not now: this is a recording" in seen
        await running.press("escape")
        assert "Not now" not in running.text()


@piloted
async def test_filter_narrows_while_typing_and_esc_gives_it_up() -> None:
    async with console(FakeSession(jobs=("gpt-9", JOB))) as running:
        await running.press("slash", *"llama")
        assert running.app.state.filter == "llama"
        assert "gpt-9" not in running.text()
        await running.press("escape")
        assert running.app.state.filter == ""
        assert "gpt-9" in running.text()
        await running.press("slash")
        await running.type("gpt")
        assert "/gpt" in running.text()
        await running.press("escape")
        assert running.app.state.filter == ""


@piloted
async def test_go_to_a_time_and_what_is_wrong_with_a_line() -> None:
    async with console() as running:
        await running.press("colon")
        await running.type("tiem 09:00")
        assert "did you mean time?" in running.text()
        await running.press(*["backspace"] * 10)
        await running.type("time 09:00:00")
        assert running.app.state.cursor.at_ns == FIRST_NS + 400 * 10**9
        await running.press("colon", *"rank x", "enter")
        assert "a rank is a number" in running.text()


@piloted
async def test_esc_goes_back_the_way_one_came() -> None:
    async with console() as running:
        await running.press("9", "0", "escape")
        assert running.app.current_mode == "log"
        await running.press("escape")
        assert running.app.current_mode == "incident"


@piloted
async def test_the_palette_does_actions_by_name() -> None:
    async with console() as running:
        await running.press("ctrl+p")
        await running.type("faults")
        assert running.app.state.faults_only


@piloted
async def test_another_theme_is_a_key_away() -> None:
    async with console() as running:
        for name in (*(theme.name for theme in THEMES[1:]), "oncall-dark"):
            await running.press("T")
            assert running.app.theme == name


@piloted
async def test_keys_are_remapped_by_id() -> None:
    async with console(keymap={"faults": "f6", "jobs.open": "o"}) as running:
        await running.press("f")
        assert not running.app.state.faults_only
        await running.press("f6")
        assert running.app.state.faults_only
        await running.press("question_mark")
        assert "f6" in running.text()


@piloted
async def test_a_small_terminal_says_so_and_works_again_when_enlarged() -> None:
    async with console(size=(80, 24)) as running:
        await running.pilot.resize_terminal(40, 10)
        await running.settle()
        assert "This terminal is 40 by 10" in running.text()
        await running.pilot.resize_terminal(80, 24)
        await running.settle()
        assert "This terminal" not in running.text()
        assert JOB in running.line(0)


@piloted
async def test_a_storm_of_resizes_leaves_the_screen_whole() -> None:
    async with console(size=(80, 24)) as running:
        for width in range(30, 120, 7):
            await running.pilot.resize_terminal(width, width // 3)
        await running.pilot.resize_terminal(100, 30)
        await running.settle()
        assert JOB in running.line(0)
        assert "Quit" in running.line(-1)


@piloted
async def test_without_utf8_all_is_ascii() -> None:
    async with console(ascii_only=True) as running:
        await running.press("question_mark")
        svg = running.app.export_screenshot()
        shown = svg.replace("\N{NO-BREAK SPACE}", " ").replace("&#160;", " ")
        assert "Explain this screen" in shown
        assert shown.isascii()


@pytest.mark.parametrize("busy", [False, True])
@piloted
async def test_quit_leaves_nothing_behind_even_while_something_is_asked(busy: bool) -> None:
    session = FakeSession()
    async with console(session) as running:
        if busy:
            session.gate.clear()
            await running.pilot.press("left_square_bracket")
            await running.pilot.pause()
        await running.pilot.press("ctrl+q")
        assert running.app.close_session()
        assert session.closed


@piloted
async def test_what_is_typed_ahead_of_a_prompt_belongs_to_it_and_enter_counts_once() -> None:
    async with console() as running:
        for key in ("colon", *"rank 3", "enter", "enter"):
            character = {"colon": ":", "enter": None}.get(key, key)
            running.app.post_message(events.Key("space" if key == " " else key, character))
        await running.settle()
        assert running.app.current_mode == "fleet"
        assert running.app.state.cursor.follows


@piloted
async def test_the_mouse_may_be_used_on_screens_and_keys() -> None:
    async with console(size=(160, 30)) as running:
        await running.pilot.click("#title", offset=(running.line(0).index("9 Log") + 1, 0))
        await running.settle()
        assert running.app.current_mode == "log"
        await running.pilot.click("#keys", offset=(running.line(-1).index("Faults"), 0))
        await running.settle()
        assert running.app.state.faults_only


@piloted
async def test_a_theme_is_in_force_on_every_screen() -> None:
    async with console(FakeSession(jobs=("gpt-9", JOB))) as running:
        await running.press("9", "T", "0")
        strip = running.app.screen._compositor.render_strips()[0]
        colours = {segment.style.color.name for segment in strip if segment.style.color}
        theme = running.app.current_theme
        assert running.app.theme == "oncall-light"
        assert theme.primary in colours


@piloted
async def test_help_is_read_to_its_end_by_key() -> None:
    async with console(size=(80, 24)) as running:
        await running.press("question_mark", "G")
        assert "config.toml" in running.text()
        await running.press("g")
        assert "The top line names the culprit" in running.text()
        await running.press("space")
        assert "The top line names the culprit" not in running.text()
        await running.press("escape")
        assert "CRITICAL" in running.line(1)


@piloted
async def test_what_is_empty_is_not_copied_and_that_is_said() -> None:
    async with console() as running:
        running.app.copy_to_clipboard("before")
        running.app.copy(Copy("r", "row", ""))
        await running.settle()
        assert "nothing copied: row is empty" in running.line(-2)
        assert running.app._clipboard == "before"


@piloted
async def test_more_screens_than_the_title_has_room_for_are_behind_a_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    more = [
        replace(SCREENS[-1], id=f"more{key}", key=key, title="More") for key in ascii_uppercase * 2
    ]
    monkeypatch.setattr("oncall.tui.shell.lines.SCREENS", (*SCREENS, *more))
    async with console(FakeSession(silent_snapshot()), size=(80, 24)) as running:
        first = running.line(0)
        assert len(first.rstrip()) <= 80
        assert " 1 Incident " in first and " z … " in first
        assert "8 ranks without data" in running.line(1)
        await running.press("z")
        assert "0 Jobs" in running.text() and "9 Log" in running.text()
        await running.press("9")
        last = running.line(0)
        assert " 9 Log " in last and " z … " in last
