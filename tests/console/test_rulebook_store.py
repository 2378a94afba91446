"""Rulebooks in a session: read, checked, tried, saved, and never over somebody else's change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from oncall.console.evidence_queries import GetStepRows
from oncall.console.queries import GetSnapshot
from oncall.console.recording import Recording
from oncall.console.replay import Replay
from oncall.console.rulebook_queries import (
    CheckRulebook,
    DryRunRulebook,
    GetRulebookText,
    ListRulebooks,
    RunFact,
    SaveRulebook,
)
from oncall.console.rulebook_store import RulebookStore
from oncall.core.errors import RulebookError, UsageError
from oncall.rules.language.load import shipped_folder
from oncall.views.snapshot import RuleLine

from .conftest import CULPRIT, Open

Recorded = Callable[[str], Path]

OF_RELATION = "{of: halted.hang_after}"


def line_of(store: RulebookStore, name: str) -> RuleLine:
    return {line.name: line for line in store.lines(None)}[name]


def test_lines_say_what_came_of_each(opened: Open, recorded: Recorded) -> None:
    session = opened(recorded("hang"))
    assert {line.outcome for line in session.ask(ListRulebooks())} == {""}
    session.ask(GetSnapshot())
    lines = {line.name: line for line in session.ask(ListRulebooks())}
    assert lines["hang"].outcome == "1 finding" and lines["hang"].seconds is not None
    assert lines["slow"].outcome == "nothing"
    waits = lines["waits"]
    assert (waits.outcome, waits.why_skipped) == ("no data", "not recorded: NCCL transfers")
    assert all(line.shipped and line.enabled for line in lines.values())


def test_problems_are_placed_and_gone_once_mended(store: RulebookStore) -> None:
    text = store.text("hang")
    assert store.check(text) == ()
    [problem, *_] = store.check(text.replace("FROM hang_members m\n", "FROM hang_member m\n"))
    assert "did you mean `hang_members`" in problem.message
    assert text.splitlines()[problem.line - 1][problem.column - 1 :].startswith("hang_members")
    assert store.check("rulebook: [") != ()


def test_a_dry_run_tells_which_verdicts_change(opened: Open, recorded: Recorded) -> None:
    session = opened(recorded("hang"))
    [finding] = session.ask(GetSnapshot()).diagnosis.findings
    text = session.ask(GetRulebookText("hang"))
    same = session.ask(DryRunRulebook("hang", text))
    assert (same.gained, same.lost) == ((), ())
    assert [f"rank {CULPRIT}" in one for one in same.kept] == [True]
    changed = text.replace(OF_RELATION, "{of: halted.hang_after, value: 50 min, why: ours}")
    patient = session.ask(DryRunRulebook("hang", changed))
    assert (patient.lost, patient.kept) == (same.kept, ())
    assert ["STANDSTILL" in one for one in patient.gained] == [True]
    assert session.ask(DryRunRulebook("hang", text.replace("facts:", "fact:"))).problems
    # Nothing of it stays: the snapshot and its questions are as they were.
    assert session.ask(GetStepRows(finding.id, 0)).table.total == finding.story[0].rows


def verdicts(session: Replay) -> list[str]:
    return [finding.verdict for finding in session.ask(GetSnapshot()).diagnosis.findings]


def test_a_fact_runs_alone(opened: Open, recorded: Recorded) -> None:
    session = opened(recorded("hang"))
    session.ask(GetSnapshot())
    text = session.ask(GetRulebookText("hang"))
    table = session.ask(RunFact("hang", text, "suspects"))
    assert [row[table.columns.index("rank")] for row in table.rows] == [CULPRIT]
    with pytest.raises(UsageError, match="no fact"):
        session.ask(RunFact("hang", text, "gone"))
    # Nothing starts in patience: facts that need no case still show their rows.
    patient = text.replace(OF_RELATION, "{of: halted.hang_after, value: 50 min, why: ours}")
    assert session.ask(RunFact("hang", patient, "hung")).total == 0


def test_overrides_stay_on_a_text_that_is_tried(tmp_path: Path, recorded: Recorded) -> None:
    store = RulebookStore(overrides={"hang.hang_after": "50 min"}, site=tmp_path)
    session = Replay(Recording([recorded("hang")]), store)
    assert verdicts(session) == ["STANDSTILL"]
    text = session.ask(GetRulebookText("hang")) + "\n# a comment\n"
    changed = session.ask(DryRunRulebook("hang", text))
    assert (changed.gained, changed.lost, len(changed.kept)) == ((), (), 1)
    session.close()


def test_saving_writes_the_site_never_the_shipped_and_keeps_comments(
    store: RulebookStore, tmp_path: Path
) -> None:
    shipped = shipped_folder() / "hang.yaml"
    before = shipped.read_bytes()
    text = store.text("hang").replace(OF_RELATION, "{value: 7 min, why: ours}  # slow disks here")
    path = store.save("hang", text)
    assert path == tmp_path / "site" / "hang.yaml"
    assert path.read_text() == text and shipped.read_bytes() == before
    assert str(store.named("hang").params["hang_after"].value) == str(7 * 60 * 10**9)
    assert not line_of(store, "hang").shipped
    # And again, from what is there now.
    assert store.save("hang", store.text("hang") + "# more\n") == path
    assert sorted(path.parent.glob("*.yaml")) == [path.with_name("hang.test.yaml"), path]


def test_what_somebody_else_changed_is_not_overwritten(store: RulebookStore) -> None:
    path = store.save("hang", store.text("hang"))
    mine = store.text("hang") + "# mine\n"
    path.write_text(mine.replace("mine", "theirs"))
    with pytest.raises(UsageError, match="someone else changed"):
        store.save("hang", mine)
    assert "theirs" in path.read_text()
    store.text("hang")
    store.save("hang", mine)
    assert path.read_text() == mine


def test_what_does_not_parse_is_not_saved(store: RulebookStore, tmp_path: Path) -> None:
    with pytest.raises(RulebookError):
        store.save("hang", "rulebook: hang\n")
    with pytest.raises(UsageError, match="is of rulebook `slow`"):
        store.save("hang", store.text("slow"))
    assert not (tmp_path / "site").exists()


def test_a_site_that_becomes_wrong_as_a_whole_is_put_back(store: RulebookStore) -> None:
    path = store.save("hang", store.text("hang"))
    (path.parent / "patience.yaml").write_text(
        "rulebook: hang\noverride: {params: {hang_after: 50 min}}\n"
    )
    kept = path.read_text()
    renamed = store.text("hang").replace(" hang_after:", " wait_after:")
    renamed = renamed.replace("$hang_after", "$wait_after").replace(
        "{{ $hang_after", "{{ $wait_after"
    )
    with pytest.raises(RulebookError, match="no parameter"):
        store.save("hang", renamed)
    assert path.read_text() == kept
    assert "hang_after" in store.named("hang").params


def test_a_new_rulebook_passes_its_check_and_is_in_force_once_saved(store: RulebookStore) -> None:
    text = store.new("loader")
    assert store.check(text) == ()
    store.save("loader", text)
    assert store.named("loader").book.status == "experimental"
    assert {row[1] for row in store.test("loader", text).rows} == {"pass"}
    with pytest.raises(UsageError, match="already"):
        store.new("loader")
    with pytest.raises(UsageError, match="lower-case"):
        store.new("My Rule")


def test_the_rulebooks_own_tests_run_on_what_is_typed(store: RulebookStore) -> None:
    text = store.text("process")
    table = store.test("process", text)
    assert table.total == len(table.rows) > 0
    assert {row[1] for row in table.rows} == {"pass"}
    # A new one has those of the template, until it is about something else.
    starter = store.new("loader")
    assert store.test("loader", starter).total == 3
    cold = starter.replace("temp_c > $hot", "temp_c < $hot")
    assert "FAIL" in {row[1] for row in store.test("loader", cold).rows}
    with pytest.raises(UsageError, match=r"has no tests yet; .*loader.test.yaml"):
        store.test("loader", starter.replace("HOT", "LATE"))


def test_a_draft_that_the_check_refuses_is_not_tried(store: RulebookStore) -> None:
    text = store.new("loader").replace("temp_c > $hot", "temp_c > $hot AND random() > 0")
    (problem,) = store.check(text)
    assert "random" in problem.message
    with pytest.raises(RulebookError, match="random"):
        store.tried("loader", text)
    with pytest.raises(RulebookError, match="random"):
        store.test("loader", text)


# ---------------------------------------------------------------------- broken


BROKEN = "rulebook: hang\nfacts: [\n"


def test_a_broken_file_is_listed_with_its_error_and_mended_in_its_place(
    opened: Open, recorded: Recorded, tmp_path: Path
) -> None:
    session = opened(recorded("hang"))
    assert session.ask(GetSnapshot()).diagnosis.findings
    file = tmp_path / "site" / "ours.yaml"
    file.parent.mkdir()
    file.write_text(BROKEN)
    line = {line.name: line for line in session.ask(ListRulebooks())}["hang"]
    assert line.shipped and line.path == str(file) and line.broken.startswith("line 2: not YAML")
    # Nothing is lost, and the next snapshot says what is not in force.
    snapshot = session.ask(GetSnapshot())
    assert [finding.rulebook for finding in snapshot.diagnosis.findings] == ["hang"]
    assert [rule.rule for rule in snapshot.diagnosis.coverage.skipped_rules if rule.set_aside] == [
        "hang"
    ]
    assert session.ask(GetRulebookText("hang")) == BROKEN
    mended = (
        (shipped_folder() / "hang.yaml")
        .read_text()
        .replace(OF_RELATION, "{of: halted.hang_after, value: 50 min, why: ours}")
    )
    assert session.ask(SaveRulebook("hang", mended)) == file
    line = {line.name: line for line in session.ask(ListRulebooks())}["hang"]
    assert not line.broken and not line.shipped
    assert verdicts(session) == ["STANDSTILL"]


def test_a_broken_file_of_a_new_rulebook_is_listed_too(
    store: RulebookStore, tmp_path: Path
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "loader.yaml").write_text("rulebook: loader\n")
    line = store.lines(None)[-1]
    assert (line.name, line.title, line.enabled) == ("loader", "", True)
    assert "is missing" in line.broken
    with pytest.raises(UsageError, match="already"):
        store.new("loader")
    store.text("loader")
    store.save("loader", RulebookStore().new("loader"))
    assert not store.lines(None)[-1].broken


def test_a_file_that_breaks_and_is_mended_while_one_looks(store: RulebookStore) -> None:
    path = store.save("hang", store.text("hang").replace(OF_RELATION, "{value: 7 min, why: ours}"))
    good = path.read_text()
    for text, shipped in ((BROKEN, True), (good, False)):
        path.write_text(text)
        lines = {line.name: line for line in store.lines(None)}
        assert lines["hang"].shipped is shipped
        assert bool(lines["hang"].broken) is shipped


def test_an_override_is_checked_tried_and_saved(
    opened: Open, recorded: Recorded, tmp_path: Path
) -> None:
    session = opened(recorded("hang"))
    assert session.ask(GetSnapshot()).diagnosis.findings
    file = tmp_path / "site" / "patience.yaml"
    file.parent.mkdir()
    file.write_text("rulebook: hang\noverride: {params: {hang_aftr: 50 min}}\n")
    session.ask(ListRulebooks())
    text = session.ask(GetRulebookText("hang"))
    [problem] = session.ask(CheckRulebook("hang", text))
    assert (problem.line, "did you mean `hang_after`" in problem.message) == (2, True)
    text = text.replace("hang_aftr", "hang_after")
    assert session.ask(CheckRulebook("hang", text)) == ()
    run = session.ask(DryRunRulebook("hang", text))
    assert len(run.lost) == 1 and "STANDSTILL" in run.gained[0]
    assert session.ask(SaveRulebook("hang", text)) == file
    assert verdicts(session) == ["STANDSTILL"]
    # A rulebook of that name in whole is not written over it.
    whole = session.ask(GetRulebookText("hang"))
    assert whole.startswith((shipped_folder() / "hang.yaml").read_text()[:40])
    assert session.ask(SaveRulebook("hang", whole)) != file


def test_where_the_sites_are_left_out_nothing_is_saved(tmp_path: Path) -> None:
    store = RulebookStore()
    with pytest.raises(UsageError, match="--no-site-rules"):
        store.save("hang", store.text("hang"))
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "hang.yaml").write_text((shipped_folder() / "hang.yaml").read_text())
    store = RulebookStore([mine])
    assert store.save("hang", store.text("hang") + "# mine\n") == mine / "hang.yaml"
    # What is wrong at the start is an error; what breaks later is not.
    (mine / "hang.yaml").write_text(BROKEN)
    assert line_of(store, "hang").broken
    with pytest.raises(RulebookError):
        RulebookStore([mine])
