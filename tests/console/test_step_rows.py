"""The rows behind a step are those that it tells of: of its case, and of the codes it took."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncall.console.rulebook_runs import step_rows
from oncall.core.diagnosis import Finding, Step
from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall.rules.language.load import load_rulebooks, parse, shipped_folder
from oncall.use_case.diagnose import diagnose

CODES = """\
rulebook: codes
format: 1
title: What hosts report
status: test
sources: ["NVIDIA's Xid catalogue"]
case: [job, node]
facts:
  said: SELECT 'j' AS job, * FROM host_events ORDER BY line
start_when: any(said)
tree:
  switch: said.code
  rows:
    xid_79: {verdict: LOST, say: "{{ said.text }}."}
    xid_31: {verdict: PROGRAM, say: "{{ said.text }}."}
verdicts:
  LOST: {kind: event, title: GPU lost, class: host, severity: critical}
  PROGRAM: {kind: event, title: The program, class: application, severity: warning}
"""
XID = {"node": "n1", "source": "kernel", "path": "dmesg"}


def shown(incident: Incident, finding: Finding, step: int) -> tuple[int, list[str]]:
    """How many rows are behind it, and their codes."""
    books = [*load_rulebooks([shipped_folder()]), *filter(None, [parse(CODES, "codes.yaml")[0]])]
    table = step_rows(incident, books, finding, step, 10).table
    return table.total, [row[table.columns.index("code")] for row in table.rows]


def test_of_a_table_they_have_the_code_that_was_taken() -> None:
    book, _ = parse(CODES, "codes.yaml")
    assert book is not None
    with Incident.empty() as incident:
        said = {"code": ["xid_31", "xid_79"], "text": ["mmu", "off the bus"], "line": [1, 2]}
        incident.append("host_events", XID | said)
        (found,) = diagnose(incident, [book]).findings

        assert found.story[0].rows == 1
        assert shown(incident, found, 0) == (1, ["xid_79"])


def test_the_step_of_the_effect_has_the_rows_of_the_effect() -> None:
    waited = {"job": "j", "path": "job.log", "line": 10, "attempt": 1, "seq": 77, "kind": "timeout"}
    with Incident.empty() as incident:
        incident.append("jobs", {"job": "j", "world_size": [4]})
        nodes = ["n0", "n0", "n1", "n1"]
        incident.append("ranks", {"job": "j", "rank": list(range(4)), "node": nodes})
        incident.append("watchdog_reports", waited | {"rank": [0, 1, 2], "comm_rank": [0, 1, 2]})
        incident.append("host_events", XID | {"code": ["xid_79"], "line": 1, "text": "fell"})
        root, wait = diagnose(incident, load_rulebooks([shipped_folder()])).findings

        assert (root.verdict, wait.verdict) == ("GPU_XID", "NOT_JOINED")
        assert shown(incident, root, 0) == shown(incident, wait, len(wait.story) - 1)
        assert shown(incident, root, 0)[1] == ["not_joined"]
        assert shown(incident, root, 1)[1] == ["gpu_fault"]


def test_a_step_without_a_fact_has_none() -> None:
    """As what only composition says: that nothing shows a cost."""
    book, _ = parse(CODES, "codes.yaml")
    assert book is not None
    with Incident.empty() as incident:
        incident.append("host_events", XID | {"code": ["xid_79"], "line": 1, "text": "fell"})
        (found,) = diagnose(incident, [book]).findings
        longer = replace(found, story=(*found.story, Step("", "no", "It costs nothing.", "", 0)))

        with pytest.raises(UsageError, match="no rows are behind step 2"):
            step_rows(incident, [book], longer, 1, 10)
