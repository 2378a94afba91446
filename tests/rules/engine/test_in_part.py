"""What a rulebook ran without: evidence of which any one lets it start."""

from __future__ import annotations

from typing import Any

import pytest

from oncall.core.diagnosis import Diagnosis
from oncall.evidence.incident import Incident
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.diagnose import diagnose
from oncall.views.coverage_words import lacking_phrases, unseen_phrase

XID = {
    "node": "n1",
    "source": "kernel",
    "path": "dmesg",
    "line": 1,
    "text": "fell",
    "code": "xid_79",
}
ERROR = {"path": "job.log", "line": 1, "attempt": 1, "kind": "error", "code": "KeyError"}
BOTH = {"host_events": XID, "log_events": ERROR}


def diagnosed(tables: dict[str, dict[str, Any]]) -> Diagnosis:
    books = [book for book in load_rulebooks([shipped_folder()]) if book.name == "faults"]
    with Incident.empty() as incident:
        for name, columns in tables.items():
            incident.append(name, columns | {"at_ns": [1]})
        return diagnose(incident, books)


@pytest.mark.parametrize(
    ("there", "gone"), [("log_events", "kernel and NCCL events"), ("host_events", "log lines")]
)
def test_where_logs_or_hosts_are_enough_the_other_is_named(there: str, gone: str) -> None:
    found = diagnosed({there: BOTH[there]})

    rules = found.coverage.skipped_rules
    assert found.checked == ("faults",)
    assert gone in (unseen_phrase(rules) or "")
    assert [line for line in lacking_phrases(rules) if line.startswith(f"{gone}: recorded by")]
    assert gone not in (unseen_phrase(diagnosed(BOTH).coverage.skipped_rules) or "")
