"""Rulebooks in a session: read, checked, tried, saved, and never over somebody else's change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from oncall.console.shelf import Shelf, site_folder
from oncall.errors import RulebookError, UsageError
from oncall.rules.load import shipped_folder

from .conftest import CULPRIT, Open

Recorded = Callable[[str], Path]


def test_lines_say_what_came_of_each(opened: Open, recorded: Recorded) -> None:
    session = opened(recorded("hang"))
    assert {line.outcome for line in session.rules()} == {""}
    session.world()
    lines = {line.name: line for line in session.rules()}
    assert lines["hang"].outcome == "1 finding" and lines["hang"].seconds is not None
    assert lines["slow"].outcome == "nothing"
    assert lines["waits"].outcome == "skipped: no evidence: transfers"
    assert all(line.shipped and line.enabled for line in lines.values())


def test_problems_are_placed_and_gone_once_mended(shelf: Shelf) -> None:
    text = shelf.text("hang")
    assert shelf.check(text) == ()
    [problem, *_] = shelf.check(text.replace("FROM hang_members m\n", "FROM hang_member m\n"))
    assert "did you mean `hang_members`" in problem.message
    assert text.splitlines()[problem.line - 1][problem.column - 1 :].startswith("hang_members")
    assert shelf.check("rulebook: [") != ()


def test_a_dry_run_tells_which_verdicts_change(opened: Open, recorded: Recorded) -> None:
    session = opened(recorded("hang"))
    [finding] = session.world().diagnosis.findings
    text = session.rule_text("hang")
    same = session.dry_run("hang", text)
    assert (same.gained, same.lost) == ((), ())
    assert [f"rank {CULPRIT}" in one for one in same.kept] == [True]
    patient = session.dry_run("hang", text.replace("value: 5 min", "value: 50 min"))
    assert (patient.gained, patient.lost, patient.kept) == ((), same.kept, ())
    assert session.dry_run("hang", text.replace("facts:", "fact:")).problems
    # Nothing of it stays: the world and its questions are as they were.
    assert session.step_rows(finding.id, 0).table.total == finding.story[0].rows


def test_a_fact_runs_alone(opened: Open, recorded: Recorded) -> None:
    session = opened(recorded("hang"))
    session.world()
    text = session.rule_text("hang")
    table = session.run_fact("hang", text, "absent")
    assert [row[table.columns.index("rank")] for row in table.rows] == [CULPRIT]
    with pytest.raises(UsageError, match="no fact"):
        session.run_fact("hang", text, "gone")
    # Nothing starts in patience: facts that need no case still show their rows.
    patient = text.replace("value: 5 min", "value: 50 min")
    assert session.run_fact("hang", patient, "stuck").total == 0


def test_overrides_stay_on_a_text_that_is_tried(tmp_path: Path, recorded: Recorded) -> None:
    from oncall.console.recording import RecordingSession

    shelf = Shelf(overrides={"hang.hang_after": "50 min"}, site=tmp_path)
    session = RecordingSession([recorded("hang")], shelf)
    assert not session.world().diagnosis.findings
    changed = session.dry_run("hang", session.rule_text("hang") + "\n# a comment\n")
    assert (changed.gained, changed.kept) == ((), ())
    session.close()


def test_saving_writes_the_site_never_the_shipped_and_keeps_comments(
    shelf: Shelf, tmp_path: Path
) -> None:
    shipped = shipped_folder() / "hang.yaml"
    before = shipped.read_bytes()
    text = shelf.text("hang").replace("value: 5 min", "value: 7 min  # slow disks here")
    path = shelf.save("hang", text)
    assert path == tmp_path / "site" / "hang.yaml"
    assert path.read_text() == text and shipped.read_bytes() == before
    assert str(shelf.named("hang").params["hang_after"].value) == str(7 * 60 * 10**9)
    assert not shelf.lines(None)[0].shipped
    # And again, from what is there now.
    assert shelf.save("hang", shelf.text("hang") + "# more\n") == path
    assert sorted(path.parent.iterdir()) == [path]


def test_what_somebody_else_changed_is_not_overwritten(shelf: Shelf) -> None:
    path = shelf.save("hang", shelf.text("hang"))
    mine = shelf.text("hang") + "# mine\n"
    path.write_text(mine.replace("mine", "theirs"))
    with pytest.raises(UsageError, match="changed by somebody else"):
        shelf.save("hang", mine)
    assert "theirs" in path.read_text()
    shelf.text("hang")
    shelf.save("hang", mine)
    assert path.read_text() == mine


def test_a_file_that_was_never_read_is_not_overwritten(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "hang.yaml").write_text("not yet a rulebook")
    with pytest.raises(UsageError, match="changed by somebody else"):
        shelf.save("hang", shelf.text("hang"))


def test_what_does_not_parse_is_not_saved(shelf: Shelf, tmp_path: Path) -> None:
    with pytest.raises(RulebookError):
        shelf.save("hang", "rulebook: hang\n")
    with pytest.raises(UsageError, match="is of `slow`"):
        shelf.save("hang", shelf.text("slow"))
    assert not (tmp_path / "site").exists()


def test_a_site_that_becomes_wrong_as_a_whole_is_put_back(shelf: Shelf) -> None:
    path = shelf.save("hang", shelf.text("hang"))
    (path.parent / "patience.yaml").write_text(
        "rulebook: hang\noverride: {params: {hang_after: 50 min}}\n"
    )
    kept = path.read_text()
    renamed = shelf.text("hang").replace("hang_after", "wait_after")
    with pytest.raises(RulebookError, match="no parameter"):
        shelf.save("hang", renamed)
    assert path.read_text() == kept
    assert "hang_after" in shelf.named("hang").params


def test_a_new_rulebook_passes_its_check_and_is_in_force_once_saved(shelf: Shelf) -> None:
    text = shelf.new("loader")
    assert shelf.check(text) == ()
    shelf.save("loader", text)
    assert shelf.named("loader").book.status == "experimental"
    assert shelf.test("loader").total == 0
    with pytest.raises(UsageError, match="already"):
        shelf.new("loader")
    with pytest.raises(UsageError, match="lower-case"):
        shelf.new("My Rule")


def test_the_rulebooks_own_tests_run_in_place(shelf: Shelf) -> None:
    table = shelf.test("process")
    assert table.total == len(table.rows) > 0
    assert {row[1] for row in table.rows} == {"pass"}


def test_the_site_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert site_folder() == tmp_path / "oncall" / "rules"
