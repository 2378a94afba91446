"""Saving, notes, export, and copying."""

# ruff: noqa: ASYNC240 - nothing waits for these files

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oncall.console.queries import SaveIncident
from oncall.core.errors import BadInput
from oncall.tui.shell.keeping import problem_of_target
from oncall.tui.shell.notes import Note, add_note, notes_file, read_notes, to_markdown

from .console import console, piloted
from .fake_session import FakeSession
from .snapshots import FAULT_NS, JOB, LAST_NS


@pytest.fixture(autouse=True)
def _own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


@piloted
async def test_save_overwrites_nothing_and_says_what_is_wrong() -> None:
    Path("here.oncall").write_text("mine")
    async with console() as running:
        await running.press("s", "ctrl+u", *"here", "enter")
        assert "already exists" in running.text()
        await running.press("ctrl+u", *"nowhere/x", "enter")
        assert "folder nowhere does not exist" in running.text()
        await running.press("escape")
    assert Path("here.oncall").read_text() == "mine"


@piloted
async def test_notes_go_beside_a_recording_and_into_the_export() -> None:
    recording = Path("night.oncall")
    recording.touch()
    async with console(recording=recording) as running:
        await running.press("m")
        await running.type("rank 5 sat in its data loader")
        assert running.app.state.notes == 1
        await running.press("9")
        assert "note: rank 5 sat" in running.text()
        await running.press("1")
        [note] = read_notes(Path("night.oncall.notes"))
        assert (note.text, note.at_ns) == ("rank 5 sat in its data loader", LAST_NS)
        await running.press("x", "ctrl+u", *"ticket", "enter")
        report = Path("ticket.md").read_text()
        assert "rank 5 sat in its data loader" in report
        assert "(ticket.svg)" in report
        assert "<svg" in Path("ticket.svg").read_text()
        assert Path("ticket.oncall").read_bytes() == b"incident"


@piloted
async def test_where_no_note_can_be_written_that_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", "file/state")
    async with console() as running:
        await running.press("m")
        await running.type("seen")
        assert "cannot write the note" in running.text()


@piloted
async def test_copy_asks_in_which_form_and_tells_what_it_copied() -> None:
    async with console(FakeSession(jobs=("gpt-9", JOB))) as running:
        await running.press("y")
        assert "t name" in running.text()
        await running.press("c")
        assert running.app.clipboard == "oncall diagnose --job gpt-9"
        assert "copied command" in running.text()
        await running.press("y", "escape")
        assert "leave it" not in running.text()


@piloted
async def test_a_save_that_fails_is_reported() -> None:
    session = FakeSession()
    session.fails[SaveIncident] = BadInput("x.oncall", "no space left")
    async with console(session) as running:
        await running.press("s", "enter")
        assert "x.oncall: no space left" in running.text()


def test_what_is_no_note_is_placed(tmp_path: Path) -> None:
    path = tmp_path / "a.notes"
    add_note(path, Note("one", None, 5))
    with path.open("a") as file:
        file.write("what\n")
    with pytest.raises(BadInput, match=r"a\.notes:2: not a note"):
        read_notes(path)


def test_of_an_earlier_incident_a_report_has_only_what_fixed_it() -> None:
    notes = (
        Note("hot", FAULT_NS, FAULT_NS - 9),
        Note("reseated the cable", FAULT_NS, FAULT_NS - 5, "F1", "solved"),
        Note("ssh gpu017 uptime", FAULT_NS, FAULT_NS - 7, "F1", "command", "up"),
        Note("again", LAST_NS, LAST_NS),
    )
    said = to_markdown(notes, FAULT_NS)
    assert "## Fixed earlier" in said and "reseated the cable" in said and "again" in said
    assert "hot" not in said and "uptime" not in said and "## Solved" not in said
    assert "hot" in to_markdown(notes) and "## Solved" in to_markdown(notes)


def test_any_job_name_makes_a_file_name() -> None:
    assert re.fullmatch(r"_a_b_c-[0-9a-f]{8}\.notes", notes_file("../a b/c").name)
    assert notes_file("llama-70b").name == "llama-70b.notes"


def test_a_target_needs_a_name() -> None:
    assert problem_of_target("  ", ".oncall") == "enter a name"
    assert problem_of_target("new", ".oncall") is None
