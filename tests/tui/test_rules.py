"""The rulebook screen, key by key."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from oncall.console.queries import GetSnapshot
from oncall.console.rulebook_queries import (
    CheckRulebook,
    GetRulebookText,
    ListRulebooks,
    RunFact,
    SaveRulebook,
)
from oncall.core.errors import Problem, RulebookError
from oncall.tui.screens.rules import editor as drafts
from oncall.tui.screens.rules.editor import RuleEditor
from oncall.tui.screens.rules.screen import RulesScreen

from .console import Running, console, piloted
from .fake_session import RULE, FakeSession
from .pictures import check_picture, in_both_looks
from .until import until, until_seen

NARROW, WIDE = (80, 24), (160, 48)


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Drafts go where the test can see them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def editor(running: Running) -> RuleEditor:
    return running.app.screen.query_one(RuleEditor)


async def open_editor(running: Running) -> None:
    """The first rulebook in the editor."""
    await running.press("5")
    await until_seen(running, "Which rank hangs this job")
    await running.press("enter")
    await until(running, lambda: running.app.focused is editor(running) and editor(running).text)


async def write(running: Running, text: str) -> None:
    """Typed, and checked."""
    await running.pilot.press(*text)
    await until(
        running, lambda: CheckRulebook("hang", editor(running).text) in running.session.asked
    )


@piloted
async def test_what_is_wrong_is_reported_where_it_is_wrong() -> None:
    async with console(size=WIDE) as running:
        await open_editor(running)
        await running.press("down", "end")
        await write(running, " wrong")
        await until_seen(running, "◀ no column `wrong`; did you mean `rank`?")
        line = next(line for line in running.text().splitlines() if "◀" in line)
        assert "rulebook: hang wrong" in line
        assert "2:16" in running.text()
        await running.pilot.press(*["backspace"] * 6)
        await until_seen(running, "no problems")
        assert "◀" not in running.text()


@piloted
async def test_edit_check_try_and_save() -> None:
    async with console(size=NARROW) as running:
        session = running.session
        await open_editor(running)
        await write(running, "# mine ")
        await running.press("ctrl+s")
        assert "press ctrl+s again to save" in running.text()
        assert "added   H1 rank 4 on gpu017" in running.text()
        assert "removed H1 rank 5 on gpu017" in running.text()
        assert not session.asked_for(SaveRulebook)
        await running.press("ctrl+s")
        assert session.saved == {"hang": "# mine " + RULE}
        assert "written to /home/op/.config/oncall/rules/hang.yaml" in running.text()
        assert drafts.read_file("hang") is None


@piloted
async def test_what_was_tried_is_saved_at_once_and_what_was_typed_since_is_not() -> None:
    async with console(size=NARROW) as running:
        await open_editor(running)
        await write(running, "# a ")
        await running.press("ctrl+r")
        await write(running, "b ")
        await running.press("ctrl+s")
        assert not running.session.saved
        await running.press("ctrl+s")
        assert running.session.saved["hang"].startswith("# a b ")


@piloted
async def test_what_is_wrong_is_not_saved() -> None:
    async with console(size=NARROW) as running:
        await open_editor(running)
        await write(running, "wrong ")
        await running.press("ctrl+s", "ctrl+s")
        assert "problems, not saved" in running.text()
        assert not running.session.saved
        assert drafts.read_file("hang") == "wrong " + RULE


@piloted
async def test_a_fact_runs_alone() -> None:
    async with console(size=NARROW) as running:
        await open_editor(running)
        await running.press("ctrl+g")
        assert "the cursor is not in a fact" in running.text()
        await running.press(*["down"] * 5, "ctrl+g")
        assert "Fact stuck · 1 row" in running.text()
        assert running.session.asked_for(RunFact)[0].fact == "stuck"


@piloted
async def test_tests_run_in_place() -> None:
    async with console(size=NARROW) as running:
        await open_editor(running)
        await running.press("ctrl+t")
        assert "FAIL  all is well" in running.text()
        assert "got H1 blaming [3]" in running.text()


@piloted
async def test_leaving_asks_what_becomes_of_an_unsaved_text() -> None:
    async with console(size=NARROW) as running:
        await open_editor(running)
        await write(running, "# x ")
        await running.press("escape")
        assert "hang is not saved:" in running.text()
        await running.press("escape")
        assert running.app.focused is editor(running)
        await running.press("escape", "k")
        assert "● unsaved" in running.text()
        assert drafts.read_file("hang") == "# x " + RULE
        await running.press("enter", "escape", "d")
        assert "● unsaved" not in running.text()
        assert drafts.read_file("hang") is None
        assert editor(running).text == RULE


@piloted
async def test_a_text_that_was_not_changed_is_left_without_asking() -> None:
    async with console(size=NARROW) as running:
        await open_editor(running)
        await running.press("escape")
        assert "1 finding" in running.text()


@piloted
async def test_texts_of_several_rulebooks_wait_side_by_side() -> None:
    async with console(size=WIDE) as running:
        await open_editor(running)
        await write(running, "# x ")
        await running.press("escape", "k", "j")
        await until(running, lambda: "rulebook: waits" in editor(running).text)
        await running.press("k")
        await until(running, lambda: editor(running).text.startswith("# x "))


@piloted
async def test_quitting_at_once_leaves_a_draft_that_comes_back() -> None:
    async with console(size=NARROW) as running:
        await open_editor(running)
        await running.pilot.press(*"# lost?", "ctrl+q")
    async with console(size=NARROW) as running:
        await open_editor(running)
        assert editor(running).text == "# lost?" + RULE
        assert "not saved, kept as a draft" in running.text()


@piloted
async def test_a_draft_is_written_while_one_types() -> None:
    async with console(size=NARROW) as running:
        await open_editor(running)
        await running.pilot.press(*"# x ")
        await until(running, lambda: drafts.read_file("hang") == "# x " + RULE)


@piloted
async def test_where_no_draft_can_be_written_it_is_said(state_home: Path) -> None:
    (state_home / "oncall").write_text("a file where a folder should be")
    async with console(size=NARROW) as running:
        await open_editor(running)
        await write(running, "# x ")
        await until_seen(running, "cannot write the draft")
        assert editor(running).text == "# x " + RULE


@piloted
async def test_a_new_rule_begins_from_a_template() -> None:
    async with console(size=NARROW) as running:
        await running.press("5", "a")
        await running.type("Not A Name")
        assert "lower-case letters" in running.text()
        await running.press(*["backspace"] * 10)
        await running.type("loader_late")
        await until(running, lambda: running.app.focused is editor(running))
        assert "rulebook: loader_late" in editor(running).text
        await running.press("escape", "k")
        assert "not saved yet" in running.text()
        await running.press("enter", "ctrl+s", "ctrl+s")
        assert list(running.session.saved) == ["loader_late"]


@piloted
async def test_a_new_rule_of_a_session_that_ended_is_still_listed() -> None:
    drafts.keep_file("mine", "rulebook: mine\n")
    async with console(size=NARROW) as running:
        await running.press("5")
        await until_seen(running, "not saved yet")
        await running.press("G", "enter")
        await until(running, lambda: editor(running).text == "rulebook: mine\n")


@piloted
async def test_the_readers_own_editor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "editor.py"
    script.write_text(
        "import sys, pathlib\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "path.write_text('# from outside\\n' + path.read_text())\n"
    )
    monkeypatch.setenv("VISUAL", f"{sys.executable} {script}")
    async with console(size=NARROW) as running:
        monkeypatch.setattr(running.app, "suspend", suspended)
        await running.press("5")
        await until(running, lambda: editor(running).text)
        await running.press("e")
        await until(running, lambda: editor(running).text == "# from outside\n" + RULE)
        assert "● unsaved" in running.text()


@piloted
async def test_an_editor_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "/no/such/editor")
    async with console(size=NARROW) as running:
        monkeypatch.setattr(running.app, "suspend", suspended)
        await open_editor(running)
        await running.press("ctrl+o")
        assert "cannot start the editor `/no/such/editor`" in running.text()
        assert editor(running).text == RULE


@contextmanager
def suspended() -> Iterator[None]:
    """A terminal that lets itself be handed over."""
    yield


@piloted
async def test_go_to_the_rulebook_of_a_verdict_from_another_screen() -> None:
    async with console(size=NARROW) as running:
        assert running.app.current_mode == "incident"
        await running.press("colon")
        await running.type("rule w1")
        assert running.app.current_mode == "rules"
        await until(running, lambda: "rulebook: waits" in editor(running).text)
        await running.press("1", "colon")
        await running.type("rule X9")
        assert "rule X9: no rulebook has that name or verdict" in running.text()


@in_both_looks
@piloted
async def test_picture(size: tuple[int, int], theme: str) -> None:
    async with console(size=size, theme=theme) as running:
        await open_editor(running)
        await running.press("down", "end")
        await write(running, " wrong")
        await until_seen(running, "◀")
        name = f"{size[0]}x{size[1]}-{theme.removeprefix('oncall-')}"
        check_picture(running.app, f"rules-{name}")


@piloted
async def test_picture_of_the_list() -> None:
    async with console(size=NARROW) as running:
        await running.press("5")
        await until(running, lambda: editor(running).text)
        check_picture(running.app, "rules-list-80x24-dark")


@piloted
async def test_picture_of_a_dry_run() -> None:
    async with console(size=WIDE) as running:
        await open_editor(running)
        await write(running, "# mine ")
        await running.press("ctrl+s")
        check_picture(running.app, "rules-dry-run-160x48-dark")


@piloted
async def test_keys_that_are_typed_into_the_editor_are_not_offered() -> None:
    async with console(size=WIDE) as running:
        await running.press("5")
        await until_seen(running, "no data")
        assert "/ Filter" in running.text() and "a New rule" in running.text()
        await running.press("enter")
        await until(running, lambda: running.app.focused is editor(running))
        await running.settle()
        keys = running.text().splitlines()[-1]
        assert "Filter" not in keys and "New rule" not in keys
        assert "ctrl+o $EDITOR" in keys and "f1 Help" in keys


@piloted
async def test_a_file_that_somebody_breaks_is_reported_and_the_evidence_judged_again() -> None:
    session = FakeSession()
    async with console(session, size=WIDE) as running:
        await open_editor(running)
        good = session.ask(ListRulebooks())
        snapshots = len(session.asked_for(GetSnapshot))
        broken = replace(good[0], broken="line 2: not YAML", written_ns=1)
        session.answers[ListRulebooks] = lambda _: (broken, *good[1:])
        session.answers[GetRulebookText] = lambda _: "rulebook: hang\nfacts: [\n"
        await until_seen(running, "✖ hang.yaml line 2: not YAML")
        await until(running, lambda: "facts: [" in editor(running).text)
        await until(running, lambda: len(session.asked_for(GetSnapshot)) > snapshots)
        assert "hang: /usr/lib/oncall/rulebooks/hang.yaml: line 2: not YAML" in running.app.said
        assert running.app.focused is editor(running)


@piloted
async def test_what_is_typed_stays_when_the_file_changes() -> None:
    session = FakeSession()
    async with console(session, size=WIDE) as running:
        await open_editor(running)
        await write(running, "# mine ")
        changed = tuple(replace(rule, written_ns=1) for rule in session.ask(ListRulebooks()))
        read = session.asked_for(GetRulebookText)
        session.answers[ListRulebooks] = lambda _: changed
        screen = running.app.screen
        assert isinstance(screen, RulesScreen)
        await until(running, lambda: screen._rules == changed)
        await running.settle()
        assert editor(running).text == "# mine " + RULE
        assert session.asked_for(GetRulebookText) == read


@piloted
async def test_what_was_saved_for_the_first_time_stays_under_the_cursor() -> None:
    async with console(size=NARROW) as running:
        await running.press("5", "a")
        await running.type("loader_late")
        await until(running, lambda: running.app.focused is editor(running))
        await running.press("ctrl+s", "ctrl+s")
        await until_seen(running, "written to")
        await asyncio.sleep(0.3)  # longer than the list waits before it opens what it is on
        await running.settle()
        assert "rulebook: loader_late" in editor(running).text


@piloted
async def test_what_does_not_parse_is_reported_by_line_when_it_is_run() -> None:
    session = FakeSession()
    wrong = [Problem("hang.yaml", 2, 1, "unknown key `x`", "x: 3"), Problem("h", 4, 1, "more")]
    session.fails[RunFact] = RulebookError(wrong)
    async with console(session, size=NARROW) as running:
        await open_editor(running)
        await running.press(*["down"] * 5, "ctrl+g")
        assert "Failed" in running.text()
        assert "2:1   unknown key `x`" in running.text() and "4:1   more" in running.text()
