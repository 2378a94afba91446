"""The story of the night as the evidence tells it."""

from __future__ import annotations

from tests import findings

from oncall.core.diagnosis import Coverage, Diagnosis, Finding, Step
from oncall.core.units import NS_PER_S
from oncall.evidence.incident import Incident
from oncall.views.night import night_lines

BEGAN_NS = 1_800_000_000 * NS_PER_S
ENDED_NS = BEGAN_NS + 600 * NS_PER_S


def finding(name: str, title: str, after_s: int | None, root: str | None = None) -> Finding:
    at_ns = None if after_s is None else BEGAN_NS + after_s * NS_PER_S
    story = (Step("Is it stopped?", "yes", "A signal stopped it.", "stopped", 1),)
    return findings.finding(id=name, title=title, at_ns=at_ns, story=story, explained_by=root)


def lines_of(incident: Incident, *findings: Finding) -> list[tuple[int, str]]:
    diagnosis = Diagnosis("demo", BEGAN_NS, ENDED_NS, Coverage(1, 1, 8, 8), findings)
    lines = night_lines(incident, diagnosis, BEGAN_NS, ENDED_NS)
    return [((one.at_ns - BEGAN_NS) // NS_PER_S, one.text) for one in lines]


def test_what_happened_comes_in_order() -> None:
    """The last completion, what hosts said once for each kind, the cause and what follows."""
    with Incident.empty() as incident:
        incident.con.execute(
            "INSERT INTO ops BY NAME SELECT 'demo' AS job, 7 AS comm, i AS seq, 0 AS rank, "
            "'coll' AS kind, 'AllReduce' AS op, $1 + i * 1000000000 AS started_ns, "
            "$1 + (i + 1) * 1000000000 AS ended_ns, true AS done FROM range(100) r(i)",
            [BEGAN_NS],
        )
        incident.con.execute(
            "INSERT INTO host_events BY NAME SELECT 'gpu003' AS node, 'kernel' AS source, "
            "'xid_79' AS code, 'GPU has fallen off the bus' AS text, "
            "$1 + (90 + i) * 1000000000 AS at_ns FROM range(3) r(i)",
            [BEGAN_NS],
        )
        found = lines_of(
            incident,
            finding("F1", "Process stopped", 99),
            finding("F2", "Not-entered hang", 101, "F1"),
            finding("F3", "Slow data", None),
        )
    assert found == [
        (0, "the evidence begins: 8/8 ranks · 1/1 nodes"),
        (90, "gpu003: GPU has fallen off the bus (3 times)"),
        (99, "✖ Process stopped: rank 5. A signal stopped it."),
        (100, "the last operation completes: none has since"),
        (101, "✖ Not-entered hang: rank 5 (follows from F1 Process stopped)"),
        (600, "✖ Slow data: rank 5. A signal stopped it."),
        (600, "the evidence ends"),
    ]


def test_of_a_job_that_goes_on_no_completion_is_the_last() -> None:
    with Incident.empty() as incident:
        incident.con.execute(
            "INSERT INTO ops BY NAME SELECT 'demo' AS job, 7 AS comm, i AS seq, 0 AS rank, "
            "'coll' AS kind, 'AllReduce' AS op, $1 + i * 60000000000 AS started_ns, "
            "$1 + i * 60000000000 + 1 AS ended_ns, true AS done FROM range(10) r(i)",
            [BEGAN_NS],
        )
        assert [text for _, text in lines_of(incident)] == [
            "the evidence begins: 8/8 ranks · 1/1 nodes",
            "the evidence ends",
        ]
