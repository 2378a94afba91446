"""Rulebooks as lines, their texts in colour, and what is known of them, without a terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.console.rulebook_queries import (
    ListRulebooks,
    RunTests,
)
from oncall.tui.screens.rules.editor import Buffer, word_at
from oncall.tui.screens.rules.pane import (
    dry_run_items,
    fact_at,
    in_force,
    place_of,
    problem_items,
    problem_of_name,
    result_items,
    rule_items,
)
from oncall.tui.widgets.reading_list import spans
from oncall.views.snapshot import DryRun, Problem, RuleLine, Table

from ..fake_session import FakeSession
from .test_incident import said

RULEBOOK = """\
# a comment
rulebook: hang
params:
  hang_after: {value: 5 min, why: because}
facts:
  stuck: |
    SELECT * FROM progress      -- those: that wait
    WHERE waited_ns > $hang_after

  absent: SELECT rank FROM stuck
start_when: any(stuck)
tree:
  ask: Is it?
"""
HANG = RuleLine(
    "hang", "Who hangs", "stable", "/x/hang.yaml", True, True, "2 findings", 0.061, worst="critical"
)
SLOW = replace(HANG, name="slow", worst="warning")
EDITED = Buffer("hang", "a: 1\n", "a: 2\n")


def row_of(text: str) -> int:
    return next(n for n, line in enumerate(RULEBOOK.splitlines()) if text in line)


def test_a_rulebook_has_the_glyph_of_its_worst_finding() -> None:
    assert [said([one])[0][:6] for one in rule_items([HANG, SLOW])] == ["✖ hang", "▲ slow"]


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("hang_after: {", None),
        ("facts:", None),
        ("stuck: |", "stuck"),
        ("those: that", "stuck"),
        ("WHERE", "stuck"),
        ("absent:", "absent"),
        ("start_when", None),
        ("ask:", None),
    ],
)
def test_the_fact_under_the_cursor(text: str, fact: str | None) -> None:
    assert fact_at(RULEBOOK, row_of(text)) == fact


@given(st.text(), st.integers(0, 20))
def test_any_text_has_a_fact_or_none(text: str, row: int) -> None:
    assert fact_at(text, row) is None or fact_at(text, row) in text


@given(st.text(alphabet=st.characters(exclude_characters="\n")))
def test_any_line_is_coloured_within_itself(line: str) -> None:
    assert all(0 <= start < end <= len(line) for start, end, _ in spans(line))


@pytest.mark.parametrize(
    ("line", "text", "role"),
    [
        ("  stuck: SELECT * FROM x", "stuck", "key"),
        ("  stuck: SELECT * FROM x", "SELECT", "info"),
        ("    WHERE waited_ns > $hang_after", "$hang_after", "value"),
        ("  hang_after: {value: 5 min, why: because}", "5 min", "value"),
        ("  hang_after: {value: 5 min, why: because}", "why", "key"),
        ('    say: "rank {{ rank }} # not a comment"', "{{ rank }}", "value"),
        ("title: x   # why", "# why", "comment"),
        ("    SELECT 1 -- why", "-- why", "comment"),
        ("start_when: any(stuck)", "any(stuck)", "command"),
    ],
)
def test_what_is_coloured(line: str, text: str, role: str) -> None:
    assert (line.index(text), line.index(text) + len(text), role) in spans(line)


def test_a_sign_within_quotes_begins_no_comment() -> None:
    assert not [role for _, _, role in spans('say: "a # b -- c"') if role == "comment"]


@given(st.text(min_size=1), st.integers(-3, 30))
def test_a_word_lies_at_its_column(line: str, column: int) -> None:
    start, end = word_at(line, column)
    assert 0 <= start < end
    assert start <= max(0, min(column, len(line) - 1)) < end


def test_rules_tell_what_came_of_them() -> None:
    text = said(rule_items(FakeSession().ask(ListRulebooks())))
    assert "✖ hang" in text and "✔ slow" in text and "? waits" in text and "· loader" in text
    assert "  site · experimental · off" in text


def test_a_broken_file_is_reported_with_what_is_in_force_instead() -> None:
    text = said(rule_items((replace(HANG, path="/r/hang.yaml", broken="line 2: not YAML"),)))
    assert text[:3] == [
        "✖ hang",
        "  ✖ hang.yaml line 2: not YAML",
        "  the shipped rulebook is used",
    ]
    alone = replace(HANG, title="", status="broken", shipped=False, broken="line 2: not YAML")
    assert "  this rulebook is not used" in said(rule_items((alone,)))
    changed = replace(HANG, changed_by=("/r/ours.yaml", "--param hang.hang_after"))
    assert any("changed by ours.yaml, --param" in one for one in said(rule_items((changed,))))


def test_what_decides_over_verdicts() -> None:
    assert in_force((HANG,)) == in_force((replace(HANG, outcome="nothing", seconds=None),))
    assert in_force((HANG,)) != in_force((replace(HANG, written_ns=1),))


def test_unsaved_rules_are_marked_and_new_ones_listed() -> None:
    text = said(rule_items((HANG,), ["hang", "mine"]))
    assert "✖ hang ● unsaved" in text
    assert "● mine" in text


def test_rules_are_filtered_by_what_their_line_says() -> None:
    assert [item.name for item in rule_items(FakeSession().ask(ListRulebooks()), (), "LOADER")] == [
        "loader"
    ]


def test_a_problem_leads_to_its_place() -> None:
    (item,) = problem_items((Problem(24, 7, "no column `age`"),))
    assert place_of(item) == (23, 6)
    (fine,) = problem_items(())
    assert place_of(fine) is None
    assert said(problem_items(None)) == ["checking …"]


def test_a_dry_run_says_what_comes_goes_and_stays() -> None:
    run = DryRun(gained=("H1 rank 4",), lost=("H1 rank 5",), kept=("S1 rank 2",))
    assert said(dry_run_items(run)) == [
        " + added   H1 rank 4",
        " − removed H1 rank 5",
        " = kept    S1 rank 2",
    ]
    assert "no findings, as before" in said(dry_run_items(DryRun()))[0]
    assert "no verdict changes" in said(dry_run_items(DryRun(kept=("H1",))))[0]
    assert "1:2" in said(dry_run_items(DryRun((Problem(1, 2, "no"),))))[0]


def test_tests_tell_what_differs() -> None:
    text = said(result_items(FakeSession().ask(RunTests("hang", ""))))
    assert text == [" ✔ pass  rank 5 is absent", " ✖ FAIL  all is well", "   got H1 blaming [3]"]
    assert said(result_items(Table(("test",), (), 0))) == ["this rulebook has no tests"]


@pytest.mark.parametrize("name", ["", "Hang", "a b", "../hang", "hang"])
def test_names_that_no_new_rulebook_can_have(name: str) -> None:
    assert problem_of_name({"hang"}, name)


def test_what_is_found_of_another_text_says_nothing() -> None:
    typed = EDITED.typed("a: 3\n")
    assert typed.checked("a: 2\n", (Problem(1, 1, "no"),)).problems is None
    assert not typed.dry_run("a: 2\n", DryRun()).may_be_saved
    assert typed.dry_run("a: 3\n", DryRun()).may_be_saved
    assert not typed.dry_run("a: 3\n", DryRun((Problem(1, 1, "no"),))).may_be_saved


def test_typing_forgets_what_was_tried() -> None:
    tried = EDITED.dry_run("a: 2\n", DryRun())
    assert tried.may_be_saved and not tried.typed("a: 4\n").may_be_saved
    assert tried.typed("a: 2\n").may_be_saved


def test_what_is_saved_is_not_unsaved() -> None:
    assert EDITED.unsaved
    assert not EDITED.written("a: 2\n").unsaved
    assert Buffer("new", None, "").unsaved
