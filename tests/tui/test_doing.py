"""Running a suggested command, marking as solved, the ticket, the line for a chat."""

# ruff: noqa: ASYNC240 - nothing waits for these files

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oncall.console.evidence_queries import ArchiveSolved
from oncall.console.queries import GetReport, RunCommand
from oncall.core.errors import UsageError
from oncall.render.markdown import to_ticket
from oncall.tui.shell.notes import Note, add_note, notes_file, read_notes
from oncall.views.snapshot import Snapshot

from .console import console, piloted
from .fake_session import FakeSession
from .models.test_incident import with_findings
from .snapshots import FAULT_NS, JOB, LAST_NS, hang, hang_snapshot, healthy_snapshot, large_snapshot

COMMAND = "ssh gpu017 py-spy dump --pid 4105"


@pytest.fixture(autouse=True)
def _own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def suggesting(command: str = COMMAND) -> Snapshot:
    """A running job whose finding suggests a command."""
    snapshot = with_findings(replace(hang(), next=(f"See where it stands: `{command}`",)))
    return replace(snapshot, moment=replace(snapshot.moment, live=True))


def printing(text: str) -> FakeSession:
    session = FakeSession(suggesting())
    session.answers[RunCommand] = lambda _: text
    return session


@piloted
async def test_a_command_is_shown_before_it_runs_and_its_output_kept() -> None:
    session = printing("Thread 4105 (idle): MainThread\n    wait (loader.py:88)\n")
    async with console(session, (100, 30)) as running:
        await running.press("exclamation_mark")
        assert "on gpu017:  py-spy dump --pid 4105" in running.text()
        assert "enter runs it" in running.text()
        await running.press("escape", "exclamation_mark")
        assert not session.asked_for(RunCommand)
        await running.press("enter")
        assert session.asked_for(RunCommand) == [RunCommand(COMMAND, "gpu017")]
        assert "wait (loader.py:88)" in running.text()
        await running.press("escape")
        [kept] = read_notes(notes_file(JOB))
        assert (kept.kind, kept.text) == ("command", COMMAND)
        assert "wait (loader.py:88)" in kept.output
        await running.press("x", "ctrl+u", *"ticket", "enter")
        assert "wait (loader.py:88)" in Path("ticket.md").read_text()


@piloted
async def test_a_command_that_fails_says_why_and_can_be_tried_again() -> None:
    session = printing("at last")
    session.fails[RunCommand] = UsageError("gpu017 did not answer")
    async with console(session, (80, 24)) as running:
        await running.press("exclamation_mark", "enter")
        assert "It did not run: gpu017 did not answer" in running.text()
        del session.fails[RunCommand]
        await running.press("enter")
        assert "at last" in running.text()


@piloted
@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("ssh gpu017 kill -CONT 4105", "`kill` is not among the commands that only read"),
        ("scontrol show node gpu017", "`scontrol` is not among the commands that only read"),
    ],
)
async def test_what_may_change_something_is_not_run(command: str, why: str) -> None:
    async with console(FakeSession(suggesting(command)), (100, 30)) as running:
        await running.press("exclamation_mark")
        assert why in running.text()


@piloted
async def test_what_fixed_it_is_kept_with_the_recording_and_seen_again() -> None:
    recording = Path("night.oncall")
    recording.touch()
    async with console(recording=recording) as running:
        await running.press("S")
        await running.type("restarted the loader of rank 5")
        await running.pass_s(10)
        assert "solved: restarted the loader of rank 5" in running.text()
    [kept] = read_notes(Path("night.oncall.notes"))
    assert kept.kind == "solved" and kept.about.startswith("F1")
    async with console(recording=recording) as running:
        assert "solved: restarted the loader of rank 5" in running.text()


@piloted
async def test_what_fixed_it_is_in_the_archive_too_if_there_is_one() -> None:
    session = FakeSession()
    session.answers[ArchiveSolved] = lambda _: "64afbeb1ad47"
    async with console(session, (120, 30)) as running:
        await running.press("S")
        await running.type("reseated the riser")
        assert "marked as solved, in the archive as incident 64afbeb1ad47" in running.text()
        assert [one.fixed_by for one in session.asked_for(ArchiveSolved)] == ["reseated the riser"]
        session.answers[ArchiveSolved] = lambda _: ""
        await running.press("S")
        await running.type("nothing")
        assert "not archived: nothing is at fault" in running.text()
        session.fails[ArchiveSolved] = UsageError("/shared/archive is not writable")
        await running.press("S")
        await running.type("again")
        assert "/shared/archive is not writable" in running.text()


@piloted
async def test_what_fixed_a_running_job_before_is_not_said_to_have_solved_this() -> None:
    path = notes_file(JOB)
    add_note(path, Note("restarted the loader", FAULT_NS, FAULT_NS - 10**9, "F1", "solved"))
    async with console(FakeSession(suggesting()), (100, 30)) as running:
        assert "fixed before by: restarted the loader" in running.text()
        await running.press("S")
        await running.type("replaced gpu017")
        await running.pass_s(10)
        assert "solved: replaced gpu017" in running.text()


@piloted
async def test_a_note_on_the_fleet_is_about_its_rank() -> None:
    async with console(size=(100, 30)) as running:
        await running.press("r", "m")
        assert "A note about rank 5" in running.text()


@piloted
async def test_a_finding_is_copied_as_one_line_and_whole() -> None:
    async with console(size=(100, 30)) as running:
        await running.press("y", "h")
        copied = running.app.clipboard
        assert "\n" not in copied
        assert copied.startswith("llama-70b: Not entered: rank 5 on gpu017, for 10 min (93 %).")
        assert copied.endswith("Next: py-spy dump --pid 4105")
        await running.press("y", "m")
        assert running.app.clipboard.startswith("# llama-70b: rank 5")
        assert running.session.asked[-1] == GetReport("markdown")


@pytest.mark.parametrize("snapshot", [hang_snapshot, large_snapshot, healthy_snapshot])
def test_a_ticket_fits_a_page_and_has_no_sql(snapshot: object) -> None:
    seen: Snapshot = snapshot()  # type: ignore[operator]
    ticket = to_ticket(seen.diagnosis, LAST_NS)
    assert len(ticket.splitlines()) <= 60
    assert "SELECT" not in ticket and "CCL-D" not in ticket
    if seen.diagnosis.findings:
        assert "for 10 min" in ticket and "`py-spy dump --pid 4105`" in ticket


def test_a_ticket_of_many_causes_stays_a_page() -> None:
    many = [replace(hang(), id=f"F{n}") for n in range(1, 40)]
    ticket = to_ticket(with_findings(*many).diagnosis, LAST_NS)
    assert len(ticket.splitlines()) <= 70
    assert "and 31 more" in ticket
