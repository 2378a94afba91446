"""What a go-to line means."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from oncall.core.errors import UsageError
from oncall.tui.shell.goto import Target, parse_target

END = datetime(2026, 11, 20, 0, 30, tzinfo=UTC)
END_NS = int(END.timestamp()) * 10**9


def ns(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp()) * 10**9  # type: ignore[arg-type,misc]


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("node gpu017", Target("node", "gpu017")),
        (":node gpu017", Target("node", "gpu017")),
        ("gpu017", Target("node", "gpu017")),
        ("rank 137", Target("rank", 137)),
        ("137", Target("rank", 137)),
        ("iteration 41", Target("iteration", 41)),
        ("rule H1", Target("rule", "H1")),
        ("H1", Target("finding", "H1")),
        ("F2", Target("finding", "F2")),
        ("comm 0xae50", Target("comm", 0xAE50)),
        ("comm ae50", Target("comm", 0xAE50)),
        ("0xae50", Target("comm", 0xAE50)),
        ("job llama 70b", Target("job", "llama 70b")),
        ("time 00:10", Target("time", ns(2026, 11, 20, 0, 10))),
        ("23:59:30", Target("time", ns(2026, 11, 19, 23, 59, 30))),  # the night before
        ("time 2026-11-19T22:00", Target("time", ns(2026, 11, 19, 22))),
        ("time 2026-11-19T22:00:00+02:00", Target("time", ns(2026, 11, 19, 20))),
    ],
)
def test_a_line_is_understood(text: str, target: Target) -> None:
    assert parse_target(text, END_NS) == target


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "go to what?"),
        ("nod gpu017", "did you mean node?"),
        ("everything now", "known: node, rank"),
        ("rank", "which rank?"),
        ("rank five", "a rank is a number"),
        ("rank -1", "a rank is a number"),
        ("comm zz", "a communicator is a hash"),
        ("time 25:00", "not a time of day"),
        ("time noon", "write 03:10"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says.replace("?", r"\?")):
        parse_target(text, END_NS)


def test_a_time_of_day_needs_a_day() -> None:
    with pytest.raises(UsageError, match="give the date too"):
        parse_target("time 03:10", None)
