"""What a person who asks in SQL reads of a SELECT that is wrong."""

from __future__ import annotations

import pytest

from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall.rules.engine.question import ask


@pytest.mark.parametrize(
    ("select", "said"),
    [
        ("SELECT rnk FROM ops", "no column `rnk` in `ops` (did you mean `rank`?)"),
        (
            "SELECT o.stared_ns FROM ops o",
            "no column `stared_ns` in `ops` (did you mean `started_ns`?)",
        ),
        ("SELECT zzzz FROM ops", "no column `zzzz` in `ops`; there are algo, bytes,"),
        ("SELECT foo", 'Referenced column "foo" was not found'),
        ("SELECT medain(rank) FROM ops", "Scalar Function with name medain does not exist!"),
    ],
)
def test_what_is_wrong_is_said_in_words_of_the_evidence(select: str, said: str) -> None:
    with Incident.empty() as incident, pytest.raises(UsageError) as refused:
        ask(incident, select)
    assert str(refused.value).startswith(said)
    assert "LINE" not in str(refused.value)
