"""A check finds what SQL, sentences and leaves get wrong, at its line and column."""

# ruff: noqa: E501  (one case a line reads better)
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncall.rules.engine.check import Checker, check_paths
from oncall.rules.language.load import shipped_folder


@pytest.fixture(scope="module")
def checker() -> Iterator[Checker]:
    with Checker() as one:
        yield one


def found(checker: Checker, text: str) -> list[str]:
    return [f"{one.line}:{one.column} {one.message}" for one in checker.check(text, "x.yaml")]


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        ("observed_ns - started_ns >", "observed_ns - startd_ns >", "12:55", "`startd_ns` (did you mean `started_ns`?)"),
        ("FROM ops WHERE", "FROM opps WHERE", "12:10", "no table, relation or earlier fact `opps` (did you mean `ops`?)"),
        ("FROM ops WHERE", "FROM newest WHERE", "12:10", "no table, relation or earlier fact `newest`"),
        ("FROM ops WHERE", "FROM started WHERE", "12:10", "`started` is not known yet"),
        ("  newest: SELECT", "  in_flight: SELECT", "13:3", "`in_flight` is already a relation"),
        ("FROM ops WHERE", "FROM main.ops WHERE", "12:10", "uses plain names"),
        ("> $hang_after", "> $hang_aftr", "12:68", "unknown parameter `$hang_aftr` (did you mean `hang_after`?)"),
        ("> $hang_after", "> 300000000000", "12:68", "a bare number `300000000000`"),
        ("SELECT job, comm, seq, rank,", "SELECT job, seq, rank,", "10:3", "lacks the case's column `comm`"),
        ("max(o.seq) AS last_seq", "maxx(o.seq) AS last_seq", "15:35", "unknown scalar function `maxx`"),
        ("GROUP BY ALL HAVING", "GROUP ALL HAVING", "17:11", "syntax error"),
        ("FROM ops WHERE", "FROM read_csv('/etc/passwd') WHERE", "12:10", "may not read from `read_csv`"),
        ("FROM ops WHERE", "FROM '/etc/passwd' WHERE", "12:10", "no table, relation or earlier fact"),
        ("> $hang_after", "> epoch_ns(now())", "12:77", "may not call `now`"),
        ("{{ absent.last_seq }}", "{{ absent.last_sq }}", "24:46", "(did you mean `last_seq`?)"),
        ("{{ absent.last_seq }}", "{{ absent | hosts }}", "24:46", "no column `node`, which `hosts` shows"),
        ("{{ absent.last_seq }}", "{{ absent.job | number }}", "24:46", "`job` is VARCHAR"),
        ("blame: absent", "blame: absent\n    confidence: stuck", "26:17", "lacks column value and column why"),
        ("  newest: SELECT", "  spare: SELECT job, comm FROM ops\n  newest: SELECT", "13:3", "nothing uses the fact `spare`"),
        ("case: [job", "  spare: {value: 3, why: x}\ncase: [job", "8:3", "no fact or sentence uses `spare`"),
        ("SELECT job, comm, seq, rank,", "SELECT job, [comm] AS comm, seq, rank,", "10:3", "must hold single values"),
        ("say: All entered.", "say: " + "All entered. " * 12, "29:10", "about 155 characters"),
    ],
)  # fmt: skip
def test_faults_and_places(
    checker: Checker, tiny: str, old: str, new: str, place: str, message: str
) -> None:
    assert old in tiny
    problems = found(checker, tiny.replace(old, new))
    assert any(one.startswith(f"{place} ") and message in one for one in problems), problems


def test_sql_is_checked_although_the_tree_is_wrong(checker: Checker, tiny: str) -> None:
    text = (
        tiny.replace("blame: absent", "blaem: absent")
        .replace("startd", "")
        .replace("started_ns >", "startd_ns >")
    )
    problems = found(checker, text)
    assert any("did you mean `blame`" in one for one in problems)
    assert any("did you mean `started_ns`" in one for one in problems)


def test_hostile_sql_is_bound_neither_long_nor_with_files(checker: Checker, tiny: str) -> None:
    endless = "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT 'j' AS job, 1 AS comm FROM r"
    text = tiny.replace("  newest: SELECT", f"  spare: {endless}\n  newest: SELECT")
    assert any("nothing uses the fact `spare`" in one for one in found(checker, text))
    deep = f"SELECT job, comm, {'(' * 3000}1{')' * 3000} FROM ops"
    assert found(checker, tiny.replace("  newest: SELECT", f"  spare: {deep}\n  newest: SELECT"))


def test_tests_must_exist_and_reach_every_verdict(tmp_path: Path, tiny: str) -> None:
    (tmp_path / "tiny.yaml").write_text(tiny)
    assert "tiny.test.yaml is missing" in str(check_paths([tmp_path])[0])
    only_healthy = "rulebook: tiny\ntests:\n  - {name: none, expect: {verdict: none}}\n"
    (tmp_path / "tiny.test.yaml").write_text(only_healthy)
    assert [one.message for one in check_paths([tmp_path])] == ["no test expects `verdict: H1`"]
    sick = only_healthy + "  - {name: sick, given: {ops: [{rank: 1}]}, expect: {verdict: H1}}\n"
    (tmp_path / "tiny.test.yaml").write_text(sick)
    assert check_paths([tmp_path]) == []


def test_overrides_are_checked_against_what_they_override(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("rulebook: hang\noverride: {params: {hang_aftr: 1 s}}")
    problems = check_paths([tmp_path])
    assert len(problems) == 1 and "did you mean `hang_after`?" in problems[0].message


def test_the_shipped_rulebooks_pass(checker: Checker) -> None:
    files = [path for path in shipped_folder().glob("*.yaml") if ".test." not in path.name]
    assert files and not [problem for path in files for problem in checker.check_file(path)]
