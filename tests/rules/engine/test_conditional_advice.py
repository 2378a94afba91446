"""Advice and titles that depend on what was observed."""

from __future__ import annotations

import pytest

from oncall.evidence.incident import Incident
from oncall.rules.language.load import parse
from oncall.use_case.diagnose import diagnose

BOOK = """
rulebook: few
format: 1
title: How many calls
status: test
sources: [a test]
case: [job]
facts:
  calls: SELECT job, count(*) AS number, max(seq) AS last FROM ops GROUP BY job
start_when: any(calls)
tree:
  verdict: CALLS
  title: [{when: calls.number > 1, text: Several calls}]
  say: Calls were made.
  next:
    - {when: calls.number > 1, text: "Read all {{ calls.number }}."}
    - "Read call {{ calls.last }}."
    - {when: calls.number = 1, text: Wait for the next one.}
verdicts:
  CALLS: {title: One call, class: application, severity: info}
"""


@pytest.mark.parametrize(
    ("calls", "title", "advice"),
    [
        (1, "One call", ("Read call 0.", "Wait for the next one.")),
        (2, "Several calls", ("Read all 2.", "Read call 1.")),
    ],
)
def test_only_what_holds_is_shown(calls: int, title: str, advice: tuple[str, ...]) -> None:
    book, problems = parse(BOOK, "few.yaml")
    assert book is not None and not problems
    with Incident.empty() as incident:
        incident.append("ops", {"job": "j", "rank": 0, "comm": 1, "seq": list(range(calls))})
        (finding,) = diagnose(incident, [book]).findings
    assert (finding.title, finding.next) == (title, advice)
