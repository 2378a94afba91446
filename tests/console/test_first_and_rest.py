"""Where rulebooks take long: why the job stopped comes first, the rest once the cursor rests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from oncall.console import replay
from oncall.console.evidence_queries import GetRankCard
from oncall.console.history import Gathered
from oncall.console.queries import GatherSnapshot, GetSnapshot, JudgeSnapshot
from oncall.core.errors import Interrupted
from oncall.core.units import NS_PER_S
from oncall.evidence import saved
from oncall.fleet.reach import reach_fleet

from .conftest import AT_NS, CULPRIT, Open
from .test_live import Live, live

__all__ = ["live"]

Recorded = Callable[[str], Path]


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any evidence counts as large, and any time as long."""
    monkeypatch.setattr(replay, "FEW_ROWS", 0)
    monkeypatch.setattr(replay, "_LONG_S", 0.0)
    monkeypatch.setattr(saved, "ROW_GROUP", 1)


@pytest.mark.usefixtures("large")
def test_the_hang_is_named_before_the_rest_is_judged(opened: Open, recorded: Recorded) -> None:
    session = opened(recorded("hang"))
    first = session.ask(GetSnapshot(first=True))
    [finding] = first.diagnosis.findings
    assert (finding.verdict, finding.blame[0].where["rank"]) == ("H1", CULPRIT)
    assert "slow" in first.diagnosis.pending
    assert first.earlier is None
    whole = session.ask(JudgeSnapshot())
    assert not whole.diagnosis.pending
    assert whole.version > first.version
    assert whole.diagnosis == session.ask(GetSnapshot()).diagnosis
    assert (whole.ranks.state == first.ranks.state).all()


@pytest.mark.usefixtures("large")
def test_nothing_that_stops_the_job_is_not_no_fault(opened: Open, recorded: Recorded) -> None:
    first = opened(recorded("healthy")).ask(GetSnapshot(first=True))
    assert first.diagnosis.result == "inconclusive"
    assert "have yet to run" in first.diagnosis.doubt


@pytest.mark.usefixtures("large")
def test_what_was_found_at_another_moment_is_dated(opened: Open, recorded: Recorded) -> None:
    session = opened(recorded("slow"))
    whole = session.ask(GetSnapshot())
    slow = [one for one in whole.diagnosis.findings if one.explained_by is None]
    assert slow
    assert whole.moment.at_ns is not None
    stepped = session.ask(GetSnapshot(whole.moment.at_ns - NS_PER_S, first=True))
    assert stepped.diagnosis.pending
    assert not stepped.diagnosis.findings
    assert stepped.earlier is not None
    assert stepped.earlier.at_ns == whole.moment.at_ns
    assert stepped.earlier.findings == tuple(one for one in slow if one.severity != "info")


@pytest.mark.usefixtures("large")
def test_a_judgement_of_a_moment_that_was_left_changes_only_what_is_dated(
    opened: Open, recorded: Recorded
) -> None:
    session = opened(recorded("hang"))
    end = session.ask(GetSnapshot(first=True))
    assert end.moment.first_ns is not None
    before_ns = end.moment.first_ns + AT_NS - 10 * NS_PER_S
    before = session.ask(GetSnapshot(before_ns, first=True))
    answered = session.ask(JudgeSnapshot())  # of the end
    assert answered.moment == before.moment
    assert answered.earlier is not None
    assert answered.earlier.at_ns == end.moment.at_ns
    shown = replace(answered, version=before.version, earlier=None)
    assert shown.diagnosis == before.diagnosis
    session.ask(GetRankCard(CULPRIT))  # the evidence shown is still open


@pytest.mark.usefixtures("large")
def test_of_a_running_jobs_past_the_hang_comes_first_too(
    live: Live, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its nodes are asked once; the rest is judged by the same answers."""
    monkeypatch.setattr(Gathered, "covers", lambda *_: False)  # as where it was thinned out
    session = live(reach_fleet(f"local:{shards}/gpu*", None))
    now = session.ask(GetSnapshot())
    assert now.moment.last_ns is not None
    hung_ns = now.moment.last_ns - NS_PER_S
    first = session.ask(GetSnapshot(hung_ns, first=True))
    assert [one.verdict for one in first.diagnosis.findings] == ["H1"]
    assert "slow" in first.diagnosis.pending
    whole = session.ask(JudgeSnapshot(hung_ns))
    assert not whole.diagnosis.pending
    assert whole.moment == first.moment
    # Asked anew, the clocks of the nodes are measured anew.
    anew = session.ask(GetSnapshot(hung_ns)).diagnosis
    assert [one.verdict for one in whole.diagnosis.findings] == [
        one.verdict for one in anew.findings
    ]
    assert whole.diagnosis.checked == anew.checked
    with pytest.raises(Interrupted):  # the reader has moved on, and the answers are gone
        session.ask(GetSnapshot(hung_ns - 5 * NS_PER_S, first=True))
        session.ask(JudgeSnapshot(hung_ns))


@pytest.mark.usefixtures("large")
def test_a_running_jobs_verdict_stays_until_newer_evidence_is_judged(
    live: Live, shards: Path
) -> None:
    """It does not come and go with each gather; why a job stopped is shown at once."""
    session = live(reach_fleet(f"local:{shards}/gpu*", None))
    first = session.ask(GatherSnapshot(first=True))
    assert first.diagnosis.pending and not first.due
    whole = session.ask(JudgeSnapshot())
    kept = session.ask(GatherSnapshot(first=True))
    assert kept.due
    assert kept.version > whole.version
    assert (kept.diagnosis, kept.moment) == (whole.diagnosis, whole.moment)
    session.ask(GetRankCard(CULPRIT))  # the evidence shown is still open
    anew = session.ask(JudgeSnapshot())
    assert not anew.due and not anew.diagnosis.pending

    assert session.shown is not None
    healthy = replace(anew.diagnosis, findings=())
    session.shown.snapshot = replace(anew, diagnosis=healthy)
    stopped = session.ask(GatherSnapshot(first=True))
    assert stopped.diagnosis.pending and not stopped.due
    assert [one.verdict for one in stopped.diagnosis.findings] == ["H1"]
