"""A small rulebook that the tests of the engine bend as they need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from oncall.evidence.incident import Incident
from oncall.rules.language.load import parse
from oncall.rules.language.rulebook import Rulebook

TINY = """\
rulebook: tiny
format: 1
title: Which rank stays behind
status: test
sources: ["CCL-D 4.2.1"]
params:
  hang_after: {value: 5 min, why: longer than a checkpoint}
case: [job, comm]
facts:
  stuck: |
    SELECT job, comm, seq, rank, observed_ns - started_ns AS waited_ns, started_ns AS at_ns
    FROM ops WHERE ended_ns IS NULL AND observed_ns - started_ns > $hang_after
  newest: SELECT job, comm, max(seq) AS seq FROM ops JOIN started USING (job, comm) GROUP BY ALL
  absent: |
    SELECT o.job, o.comm, o.rank, max(o.seq) AS last_seq
    FROM ops AS o JOIN newest AS f USING (job, comm)
    GROUP BY ALL HAVING max(o.seq) < any_value(f.seq)
start_when: any(stuck)
tree:
  ask: Did every member enter operation {{ newest.seq }}?
  test: none(absent)
  if_no:
    verdict: H1
    say: "{{ absent | ranks }} stopped at {{ absent.last_seq }}; {{ stuck | count('rank') }} wait."
    blame: absent
    next: Take a stack of {{ absent | ranks }}.
  if_yes:
    verdict: none
    say: All entered.
verdicts:
  H1: {title: Not-entered hang, class: hang, severity: critical}
"""

NS = 1_000_000_000


@pytest.fixture
def tiny() -> str:
    return TINY


@pytest.fixture
def book() -> Callable[..., Rulebook]:
    """TINY with replacements, parsed; fails on any problem."""

    def make(*replacements: tuple[str, str], text: str = TINY) -> Rulebook:
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        rulebook, problems = parse(text, "tiny.yaml")
        assert rulebook is not None, [str(problem) for problem in problems]
        return rulebook

    return make


@pytest.fixture
def hang() -> Iterator[Incident]:
    """Two communicators: in 255 rank 3 never enters operation 8; 7 is healthy."""
    with _hang() as incident:
        yield incident


@pytest.fixture(scope="module")
def unchanged_hang() -> Iterator[Incident]:
    """The same, for tests that show that it stays as it is."""
    with _hang() as incident:
        yield incident


@contextmanager
def _hang() -> Iterator[Incident]:
    with Incident.empty() as incident:
        common: dict[str, Any] = {"job": "j", "kind": "coll", "observed_ns": 400 * NS}
        ended = [None, None, None, 5 * NS]
        incident.append(
            "ops",
            common
            | {"comm": 255, "seq": [8, 8, 8, 7], "rank": [0, 1, 2, 3]}
            | {"started_ns": [NS, NS, NS, 2 * NS], "ended_ns": ended},
        )
        incident.append(
            "ops",
            common
            | {"comm": 7, "seq": [8, 8], "rank": [0, 1]}
            | {"started_ns": [0, 0], "ended_ns": [NS, NS]},
        )
        yield incident
