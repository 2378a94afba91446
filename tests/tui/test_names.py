"""The console on names, messages and typed text that were chosen to do harm: nothing ends it,
nothing is read as markup, and nothing that steers a terminal is drawn or copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncall.tui.app import ConsoleApp
from oncall.tui.shell.registry import SCREENS

from ..hostile import ALL_BUT_LONG, LONG, MARKUP, PIECES, jobs_of, save_hostile, unsafe_in
from .console import piloted
from .fake_session import FakeSession
from .hostile_session import HostileSession
from .snapshots import JOB
from .walk import Walk, opened, walking


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def hostile_console(*pieces: str, jobs: tuple[str, ...] = (JOB,)) -> ConsoleApp:
    session = HostileSession(FakeSession(jobs=jobs), pieces or PIECES)
    return ConsoleApp(lambda: session)  # type: ignore[arg-type,return-value]


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def check(walk: Walk) -> None:
    """Nothing that was seen, copied or kept could steer what it is shown on."""
    for text in (walk.seen, *walk.copied):
        assert not unsafe_in(text.replace("\t", " "))


@piloted
async def test_a_job_whose_name_is_markup_is_chosen_by_it() -> None:
    jobs = tuple(f"job{number}" for number in range(len(MARKUP)))
    async with walking(hostile_console(*MARKUP, jobs=jobs)) as walk:
        assert all(piece in walk.seen for piece in MARKUP), walk.seen
        await walk.press("y", "t", "y", "c", "enter", "escape")
        check(walk)


@piloted
async def test_every_key_of_every_screen_is_pressed_on_hostile_text() -> None:
    async with walking(hostile_console()) as walk:
        await walk.each_screen(("y",))
        check(walk)
        assert all(piece in walk.seen for piece in ("[/]", "{{ x }}", "$(reboot)")), walk.seen


@piloted
async def test_what_is_typed_is_taken_literally(state_folder: Path) -> None:
    async with walking(hostile_console("[/]")) as walk:
        for text in ("".join(MARKUP), ALL_BUT_LONG, LONG):
            for prompt in ("slash", "colon", "m"):
                await walk.press(prompt)
                await walk.type(text)
                await walk.press("escape", "escape")
        await walk.press("2", "question_mark", "escape", "ctrl+p")
        await walk.type("[/] [bold")
        await walk.press("escape", "9")
        check(walk)
    assert [path.parent.name for path in files_in(state_folder)] == ["notes"]


@pytest.mark.slow  # saves three files, each in its own time
@piloted
async def test_proposed_names_of_files_stay_in_their_folder(state_folder: Path) -> None:
    for piece in ("../../\x1b]0;t\x07", LONG):
        async with walking(hostile_console(piece)) as walk:
            await walk.press("s", "enter", "x", "enter")
            check(walk)
    made = files_in(state_folder)
    assert {path.parent for path in made} == {state_folder}
    assert {path.suffix for path in made} == {".oncall", ".md", ".svg"}
    for path in made:
        assert not unsafe_in(path.read_text()) and not unsafe_in(path.name)


def test_a_bug_whose_message_is_markup_ends_the_console_in_order(
    capfd: pytest.CaptureFixture[str],
) -> None:
    @piloted
    async def fail() -> None:
        app = hostile_console()
        async with app.run_test():
            try:
                raise ValueError("[/] \x1b]0;owned\x07")
            except ValueError:
                app._fatal_error()
        app.close_session()

    fail()
    said = capfd.readouterr().err
    assert "ValueError: [/]" in said and "\x1b]0" not in said


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_hostile(tmp_path_factory.mktemp("names") / "[bold]names.oncall", PIECES)


@piloted
async def test_evidence_with_hostile_names_is_opened_chosen_and_read(names: Path) -> None:
    async with opened(names) as walk:
        await walk.press("enter", "1", "2", "3")
        check(walk)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
@piloted
async def test_every_key_on_evidence_with_hostile_names(names: Path, number: int) -> None:
    async with opened(names, jobs_of(names)[number]) as walk:
        await walk.each_screen(("y",))
        check(walk)


@pytest.mark.slow
@pytest.mark.parametrize("piece", PIECES, ids=ascii)
def test_evidence_with_that_text_in_every_column(tmp_path: Path, piece: str) -> None:
    path = save_hostile(tmp_path / "all.oncall", [piece], every_column=True)

    @piloted
    async def read() -> None:
        for job in jobs_of(path):
            async with opened(path, job) as walk:
                await walk.press(*(entry.key for entry in SCREENS[1:]))
                check(walk)

    read()
