"""The use case: what it adds to the engine's findings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oncall.core.diagnosis import Blame, Coverage, Diagnosis, SkippedRule, Stack, Suspect
from oncall.core.errors import ExitCode, UsageError
from oncall.evidence.incident import Incident
from oncall.evidence.registry import all_relations
from oncall.render.text.drawings import drawings_of
from oncall.rules.language.load import parse
from oncall.rules.language.rulebook import Rulebook
from oncall.use_case.diagnose import diagnose, exit_code
from oncall.use_case.doubt import why_undecided
from oncall.use_case.front import front
from oncall.views import words

_OPEN = """
rulebook: open
format: 1
title: Which rank has an operation open
status: test
sources: [nobody]
case: [job]
facts:
  stuck: SELECT job, rank, enqueued_ns AS at_ns FROM ops WHERE NOT done ORDER BY rank
start_when: any(stuck)
tree:
  verdict: OPEN
  say: "{{ stuck | ranks }} is in an operation."
  blame: stuck
verdicts:
  OPEN: {title: Open operation, class: hang, severity: critical}
"""
_NICS = (
    _OPEN.replace("rulebook: open", "rulebook: nics")
    .replace(
        "SELECT job, rank, enqueued_ns AS at_ns FROM ops WHERE NOT done ORDER BY rank",
        "SELECT 'j' AS job, node FROM nics WHERE link_up ORDER BY node",
    )
    .replace("stuck | ranks", "stuck | hosts")
)


def rulebook(text: str) -> Rulebook:
    book, problems = parse(text, "made.yaml")
    assert book is not None, problems
    return book


@pytest.fixture
def incident() -> Iterator[Incident]:
    """Rank 0 finished operation 1; rank 1 is in operation 2, and left two stacks."""
    with Incident.empty() as made:
        made.append("comms", {"job": "j", "comm": 1, "rank": [0, 1, 2], "role": "tp"})
        made.append(
            "ops",
            {
                "job": "j",
                "comm": 1,
                "kind": "coll",
                "op": "AllReduce",
                "rank": [0, 1, 1],
                "seq": [1, 1, 2],
                "enqueued_ns": [10, 10, 30],
                "ended_ns": [20, 20, None],
                "done": [True, True, False],
            },
        )
        made.append(
            "stacks",
            {
                "job": "j",
                "comm": 1,
                "kind": "coll",
                "rank": [0, 1, 1],
                "seq": [1, 1, 2],
                "frames": [["a at a.py:1"], ["b at b.py:1"], ["c at c.py:1", "d at d.py:2"]],
            },
        )
        yield made


def test_a_diagnosis_is_whole(incident: Incident) -> None:
    found = diagnose(incident, [rulebook(_OPEN), rulebook(_NICS)])
    assert (found.job, found.since_ns, found.until_ns) == ("j", 10, 30)
    assert (found.coverage.ranks, found.coverage.ranks_seen) == (3, 2)
    assert found.checked == ("open",)
    assert [rule.missing for rule in found.coverage.skipped_rules] == [("nics",)]
    (finding,) = found.findings
    assert finding.stacks == (Stack(1, "in AllReduce 2 of tp", ("c at c.py:1", "d at d.py:2")),)
    assert exit_code(found) == ExitCode.FINDING


@pytest.mark.parametrize(("stages", "reported"), [(2, {"stage": 1}), (1, {})])
def test_a_blamed_rank_has_its_pipeline_stage(
    incident: Incident, stages: int, reported: dict[str, int]
) -> None:
    incident.append("jobs", {"job": "j", "world_size": 4, "pp": stages, "tp": 4 // stages})
    incident.append("ranks", {"job": "j", "rank": list(range(4)), "node": "a"})
    book = rulebook(_OPEN.replace("SELECT job, rank,", "SELECT job, rank + 1 AS rank,"))
    (finding,) = diagnose(incident, [book]).findings
    assert [dict(one.where) for one in finding.blame] == [{"rank": 2, **reported}]


def test_a_rulebook_switched_off_is_a_note_and_no_doubt(incident: Incident) -> None:
    incident.con.execute("UPDATE ops SET ended_ns = 40, done = true")
    incident.append("recordings", {"job": "j", "path": "rank_2", "rank": 2})
    off = replace(rulebook(_OPEN), enabled=False, overridden_by=("site.yaml",))
    incident.append("nics", {"node": "a", "link_up": False})
    found = diagnose(incident, [off, rulebook(_NICS)])
    assert found.checked == ("nics",)
    assert found.notes[0] == "rulebook open is switched off"
    assert found.notes[1:] == (
        "rulebook nics has verdicts without `kind`: they accuse by themselves",
    )
    assert found.coverage.skipped_rules == ()
    assert exit_code(found) == ExitCode.HEALTHY


def test_a_job_that_is_not_there(incident: Incident) -> None:
    with pytest.raises(UsageError, match="no evidence of job `k` here"):
        diagnose(incident, [rulebook(_OPEN)], "k")


_HEADS = _OPEN.replace("rulebook: open", "rulebook: heads").replace(
    "SELECT job, rank, enqueued_ns AS at_ns FROM ops WHERE NOT done ORDER BY rank",
    "SELECT job, rank, newest_ns AS at_ns FROM heads WHERE entered_seq > 100",
)
_QUIET = _OPEN.replace("WHERE NOT done", "WHERE seq > 100")


@pytest.fixture
def overflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The relation `heads` cannot be computed."""

    def compute(*_: object, **__: object) -> dict[str, object]:
        raise OverflowError("a clock in 2126")

    broken = replace(all_relations()["heads"], sql=None, compute=compute)
    monkeypatch.setitem(all_relations(), "heads", broken)
    return


@pytest.mark.usefixtures("overflow")
def test_what_cannot_be_computed_is_a_gap_and_the_rest_is_diagnosed(incident: Incident) -> None:
    found = diagnose(incident, [rulebook(_OPEN), rulebook(_HEADS)])
    assert [finding.verdict for finding in found.findings] == ["OPEN"]
    (gap,) = [gap for gap in found.coverage.gaps if gap.details]
    assert gap.reason == "could not be computed: heads (OverflowError: a clock in 2126)"
    assert "raise OverflowError" in gap.details
    (skipped,) = found.coverage.skipped_rules
    assert (skipped.rule, skipped.why, skipped.uncomputed) == ("heads", gap.reason, "heads")
    assert exit_code(found) == ExitCode.FINDING


@pytest.mark.usefixtures("overflow")
def test_nothing_found_without_what_failed_is_inconclusive(incident: Incident) -> None:
    incident.append("recordings", {"job": "j", "path": "rank_2", "rank": 2})
    assert exit_code(diagnose(incident, [rulebook(_QUIET)])) == ExitCode.HEALTHY
    with Incident.empty() as again:
        again.append("ops", {"job": "j", "comm": 1, "seq": 1, "rank": 0, "done": True})
        found = diagnose(again, [rulebook(_QUIET), rulebook(_HEADS)])
    assert exit_code(found) == ExitCode.TOO_LITTLE_COVERAGE
    assert found.doubt == "rulebook heads failed"


@pytest.mark.usefixtures("overflow")
def test_a_picture_of_what_failed_is_its_reason(incident: Incident) -> None:
    traffic = rulebook(_OPEN.replace("rulebook: open", "rulebook: open\ndraw: traffic"))
    incident.append(
        "epochs",
        {"node": "a", "nic": "m", "qpn": 1, "start_ns": 10, "epoch_ns": 5, "bytes": 1, "rank": 1},
    )
    found = diagnose(incident, [traffic])
    drawn = drawings_of(incident, found)
    assert drawn == {
        "F1": ["not drawn: could not be computed: heads (OverflowError: a clock in 2126)"]
    }


def test_evidence_that_contradicts_itself_is_not_called_healthy(incident: Incident) -> None:
    incident.append("recordings", {"job": "j", "path": "rank_2", "rank": 2})
    incident.append(
        "launches",
        {"job": "j", "comm": 1, "rank": 0, "launched": 0, "completed": 1, "at_ns": 10**9},
    )
    found = diagnose(incident, [rulebook(_HEADS), rulebook(_QUIET)])
    assert [one.what for one in found.coverage.contradictions] == [
        "1 rank completed more operations than it launched",
        "1 rank completed operations that it never launched",
    ]
    assert exit_code(found) == ExitCode.TOO_LITTLE_COVERAGE
    assert found.doubt == (
        "the evidence cannot be trusted: 1 rank completed more operations than it launched"
    )


def test_a_contradiction_where_nobody_looked_is_stated_and_no_doubt(incident: Incident) -> None:
    incident.con.execute("UPDATE ops SET ended_ns = 40, done = true")
    incident.append("recordings", {"job": "j", "path": "rank_2", "rank": 2})
    incident.append("comms", {"job": "j", "comm": 1, "rank": 2, "size": [1, 2]})
    found = diagnose(incident, [rulebook(_QUIET)])
    assert [one.tables for one in found.coverage.contradictions] == [("comms",)]
    assert exit_code(found) == ExitCode.HEALTHY


def test_impossible_values_are_stated(incident: Incident) -> None:
    incident.append("recordings", {"job": "j", "path": "rank_2", "rank": 2})
    incident.append("ops", {"job": "j", "comm": 1, "rank": 0, "seq": 2, "ended_ns": 2**63 - 1})
    found = diagnose(incident, [rulebook(_QUIET)])
    (one,) = found.coverage.contradictions
    assert one.what == "1 impossible value of ops.ended_ns"
    assert one.example == "such as 9223372036854775807; taken as unknown"
    assert found.until_ns == 30
    assert exit_code(found) == ExitCode.TOO_LITTLE_COVERAGE


SEEN = Coverage(nodes=0, answered=0, ranks=10, ranks_seen=9)


@pytest.mark.parametrize(
    ("coverage", "checked", "code", "doubt"),
    [
        (SEEN, ("hang",), ExitCode.HEALTHY, ""),
        (SEEN, (), ExitCode.TOO_LITTLE_COVERAGE, "no rulebook had the evidence it needs"),
        (
            replace(SEEN, ranks_seen=8),
            ("hang",),
            ExitCode.TOO_LITTLE_COVERAGE,
            "only 8 of 10 ranks were seen, less than 90 %",
        ),
        (
            Coverage(nodes=0, answered=0, ranks=0, ranks_seen=0),
            ("hang",),
            ExitCode.TOO_LITTLE_COVERAGE,
            "no data from any rank or node",
        ),
        (
            replace(SEEN, skipped_rules=(SkippedRule("slow", (), "slow.yaml:3:1: no such table"),)),
            ("hang",),
            ExitCode.TOO_LITTLE_COVERAGE,
            "rulebook slow failed",
        ),
        (
            replace(SEEN, skipped_rules=(SkippedRule("hang.odd", ("ops",), "1 case ends there"),)),
            ("hang",),
            ExitCode.TOO_LITTLE_COVERAGE,
            "a suspicion could not be decided (hang.odd)",
        ),
        (
            replace(SEEN, skipped_rules=(SkippedRule("network", ("nics",)),)),
            ("hang",),
            ExitCode.HEALTHY,
            "",
        ),
    ],
)
def test_silence_is_not_health(
    coverage: Coverage, checked: tuple[str, ...], code: ExitCode, doubt: str
) -> None:
    found = Diagnosis("j", None, None, coverage, (), checked=checked)
    assert found.doubt == doubt
    assert exit_code(found) == code
    assert found.healthy == (code == ExitCode.HEALTHY)


def test_nothing_of_the_recordings_is_touched(incident: Incident, tmp_path: Path) -> None:
    incident.save(tmp_path / "before.oncall")
    before = (tmp_path / "before.oncall").read_bytes()
    with Incident.open(tmp_path / "before.oncall") as again:
        diagnose(again, [rulebook(_OPEN)])
    assert (tmp_path / "before.oncall").read_bytes() == before


def test_calls_that_ended_without_a_member_show_no_health() -> None:
    """Rank 0 ended: the calls of its peers end with an error, which a dump shows as completed."""
    with Incident.empty() as made:
        calls = {"rank": [0, 1, 1, 2, 2], "seq": [1, 1, 2, 1, 2], "enqueued_ns": [1, 1, 2, 1, 2]}
        made.append("ops", {"job": "j", "comm": 1, "kind": "coll", "op": "AllReduce"} | calls
                    | {"done": True})  # fmt: skip
        made.append("recordings", {"job": "j", "kind": "flight_recorder", "rank": [0, 1, 2]})
        doubt = why_undecided(made, slow=False)
    assert doubt.why == "either the call failed when it ended, or its recording is older"
    why = "ranks 1-2 completed a call that it never made, and made none since"
    assert doubt.suspects == (Suspect((Blame("rank", {"rank": 0}),), why),)


def test_who_is_looked_at_first_is_said_with_its_stack(incident: Incident) -> None:
    """Rank 1 waits for rank 0 in its second call; rank 2 of the group left no data."""
    frames = [["load at train.py:7"], ["all_reduce at torch/distributed/distributed_c10d.py:9"]]
    incident.append(
        "thread_stacks", {"job": "j", "rank": [0, 1], "is_main": True, "frames": frames}
    )
    suspect = front(incident)
    assert suspect is not None
    said = "rank 0: 1 of 3 ranks is in AllReduce 2; it is at 1, in user code: load at train.py:7"
    assert words.suspicion(suspect) == said
