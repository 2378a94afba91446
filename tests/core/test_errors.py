"""Errors: one root, exit codes that never move, and carets that point at the right letter."""

from __future__ import annotations

import pytest

from oncall.core.errors import (
    BadInput,
    ExitCode,
    MissingEvidence,
    OncallError,
    Problem,
    RulebookError,
    UsageError,
)


@pytest.mark.parametrize(
    "error",
    [
        UsageError("no such job"),
        BadInput("dumps/rank_3", "truncated"),
        MissingEvidence("rounds", ["ops"]),
        RulebookError([Problem("a.yaml", 1, 1, "empty")]),
    ],
)
def test_what_a_person_can_act_on_is_caught_as_one_and_exits_with_2(error: OncallError) -> None:
    assert isinstance(error, OncallError)
    assert error.exit_code == 2


def test_exit_codes_are_a_contract() -> None:
    assert {code.name: int(code) for code in ExitCode} == {
        "HEALTHY": 0,
        "FINDING": 1,
        "BAD_INPUT": 2,
        "TOO_LITTLE_COVERAGE": 3,
        "BUG": 70,
        "INTERRUPTED": 130,
        "BROKEN_PIPE": 141,
    }


def test_messages_say_what_and_where() -> None:
    assert str(BadInput("dumps/rank_3", "truncated")) == "dumps/rank_3: truncated"
    missing = MissingEvidence("rounds", ["ops", "comms or ops"])
    assert str(missing) == "rounds needs missing evidence: ops, comms or ops"
    assert missing.missing == ("ops", "comms or ops")


@pytest.mark.parametrize(
    "source_line", ["  sql: SELECT age FROM ops", "\tsql: SELECT age FROM ops"]
)
def test_the_caret_stands_below_what_is_wrong(source_line: str) -> None:
    column = source_line.index("age") + 1
    problem = Problem("hang.yaml", 24, column, "no column `age`", source_line, length=3)
    head, source, caret = str(problem).splitlines()
    assert head == f"hang.yaml:24:{column}: error: no column `age`"
    assert source == "    " + source_line
    assert caret.lstrip() == "^^^"
    assert caret.expandtabs().index("^") == source.expandtabs().index("age")


def test_every_problem_is_listed() -> None:
    problems = [Problem("a.yaml", 1, 2, "first"), Problem("b.yaml", 3, 4, "second")]
    error = RulebookError(problems)
    assert error.problems == tuple(problems)
    assert str(error) == "a.yaml:1:2: error: first\nb.yaml:3:4: error: second"
