"""Tests of rulebooks: short rows become evidence, and a failure says what to know."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncall.core.errors import RulebookError
from oncall.rules.authoring.testing import TestResult, _report, run_tests, test_files
from oncall.rules.language.load import shipped_folder
from oncall.rules.language.tests_file import TestCase, load_tests

DEFAULTS = """\
rulebook: tiny
defaults:
  ops: {comm: tp0, kind: coll, started_ns: 0, observed_ns: 400 s}
tests:
"""


def results(folder: Path, tiny: str, tests: str) -> list[TestResult]:
    (folder / "tiny.yaml").write_text(tiny)
    (folder / "tiny.test.yaml").write_text(DEFAULTS + tests)
    (file,) = test_files(folder)
    return list(run_tests(file))


SICK = "given: {ops: [{rank: 0-2, seq: 8}, {rank: 3, seq: 7, ended_ns: 2 s}]}"


@pytest.mark.parametrize(
    "expect",
    [
        "{verdict: H1}",
        "{verdict: H1, blame: [3], path: {no_absent: no}, says: stopped at 7}",
        "[{verdict: H1, blame: [3]}]",
    ],
)
def test_what_is_expected_comes(tmp_path: Path, tiny: str, expect: str) -> None:
    (result,) = results(tmp_path, tiny, f"  - {{name: sick, {SICK}, expect: {expect}}}\n")
    assert result.passed, result.report


def test_a_failure_shows_expectation_result_path_and_rows(tmp_path: Path, tiny: str) -> None:
    expected = "{verdict: H1, blame: [2], path: {no_absent: no}}"
    tests = f"  - name: sick\n    {SICK}\n    expect: {expected}\n"
    (result,) = results(tmp_path, tiny, tests)
    assert result.line == 5
    for part in (
        "expected  H1 blaming [2], path no_absent: no",
        "got       H1 blaming [3], path no_absent: no",
        "Rank 3 stopped at 7; 3 ranks wait.",
        "no_absent: no -> H1",
        "fact      absent: 1 row",
        "rank  last_seq",
    ):
        assert part in result.report, part


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        ("  - {name: x, expect: {verdict: H9}}", "tiny has no verdict `H9` (did you mean `H1`?)"),
        ("  - {name: x, given: {opps: []}, expect: []}", "did you mean `ops`"),
        ("  - {name: x, given: {opps: [{rank: 1}]}, expect: []}", "no evidence table `opps`"),
        ("  - {name: x, given: {ops: [{rnk: 1}]}, expect: []}", "did you mean `rank`"),
        ("  - {name: x, given: {ops: [{rank: 5-2}]}, expect: []}", "runs backwards"),
        (
            "  - {name: x, given: {ops: [{started_ns: soon}]}, expect: []}",
            "not a value for started_ns",
        ),
        (
            "  - {name: x, given: {ops: [{rank: [1, 2]}]}, expect: []}",
            "not a value for rank (INTEGER)",
        ),
        ("  - {name: x, given: {ops: [{op: {a: 1}}]}, expect: []}", "not a value for op (VARCHAR)"),
        ("  - {name: x, given: {ops: [{rank: 1.5}]}, expect: []}", "not a value for rank"),
        ("  - {name: x, given: {qps: [{qpn: -1}]}, expect: []}", "`-1` is not a value for qpn"),
        ("  - {name: x, given: {ops: [{done: maybe}]}, expect: []}", "not a value for done"),
        ("  - {name: x, params: {hang_aftr: 3 s}, expect: []}", "did you mean `hang_after`"),
        ("  - {name: x, expct: []}", "unknown key `expct` (did you mean `expect`?)"),
        ("  - {name: x, expect: {verdict: H1, path: {no_absent: maybe}}}", "yes, no or unknown"),
        (
            "  - {name: x, expect: {verdict: H1, path: {absnt: no}}}",
            "tiny asks no question `absnt` (did you mean `no_absent`?)",
        ),
    ],
)
def test_a_wrong_test_file_says_where(tmp_path: Path, tiny: str, tests: str, message: str) -> None:
    with pytest.raises(RulebookError) as caught:
        results(tmp_path, tiny, tests)
    assert message in str(caught.value)
    assert all(problem.line == 5 for problem in caught.value.problems)


def test_a_test_file_without_its_rulebook(tmp_path: Path) -> None:
    (tmp_path / "x.test.yaml").write_text("rulebook: gone\ntests: [{name: x, expect: []}]")
    with pytest.raises(RulebookError, match="no rulebook `gone`"):
        list(run_tests(tmp_path / "x.test.yaml"))


SHIPPED = pytest.mark.parametrize(
    "file", sorted(shipped_folder().glob("*.test.yaml")), ids=lambda file: file.name
)


@SHIPPED
def test_some_verdicts_of_a_shipped_rulebook_are_reached_by_their_first_test(file: Path) -> None:
    """What a change of a relation breaks shows here; all others are left to the test below."""
    _, tests, rulebook = load_tests(file)
    first: dict[str, TestCase] = {}
    for test in tests.tests:
        if test.simulate is None:
            first = {one.verdict: test for one in test.expect} | first
    some = list(first.values())[:: 1 + len(first) // 8]
    by_name = {test.name: _report(tests, test, rulebook) for test in some}
    failed = [f"{name}\n{report}" for name, report in by_name.items() if report]
    assert first and not failed, "\n".join(failed)


@pytest.mark.slow  # minutes in all, and whoever changes a rulebook runs `oncall rules test`
@pytest.mark.timeout(900)  # one of them is of fifty jobs, on a machine that does other things too
@SHIPPED
def test_the_shipped_rulebooks_pass_their_tests(file: Path) -> None:
    if "simulate:" in file.read_text(encoding="utf-8"):
        pytest.importorskip("oncall_lab", reason="the lab is not installed")
    failed = [f"{one.name}\n{one.report}" for one in run_tests(file) if not one.passed]
    assert not failed, "\n".join(failed)
