"""Rulebooks as lines, their texts in colour, and what is known of them, without a terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.tui.screens.rules.editor import Buffer, word_at
from oncall.tui.screens.rules.pane import (
    fact_at,
    problem_of_name,
    rule_items,
)
from oncall.tui.widgets.reading_list import spans
from oncall.views.snapshot import DryRun, Problem, RuleLine

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


@given(st.text(min_size=1), st.integers(-3, 30))
def test_a_word_lies_at_its_column(line: str, column: int) -> None:
    start, end = word_at(line, column)
    assert 0 <= start < end
    assert start <= max(0, min(column, len(line) - 1)) < end


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


@pytest.mark.parametrize("name", ["", "Hang", "a b", "../hang", "hang"])
def test_names_that_no_new_rulebook_can_have(name: str) -> None:
    assert problem_of_name({"hang"}, name)


def test_what_is_found_of_another_text_says_nothing() -> None:
    typed = EDITED.typed("a: 3\n")
    assert typed.checked("a: 2\n", (Problem(1, 1, "no"),)).problems is None
    assert not typed.dry_run("a: 2\n", DryRun()).may_be_saved
    assert typed.dry_run("a: 3\n", DryRun()).may_be_saved
    assert not typed.dry_run("a: 3\n", DryRun((Problem(1, 1, "no"),))).may_be_saved
