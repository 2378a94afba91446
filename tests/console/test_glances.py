"""The list of several jobs: each in a line with its verdict, before one of them is chosen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from oncall.console.live import Fleet
from oncall.console.queries import GetSnapshot, GlanceAtJob, ListJobs, OpenJob
from oncall.console.replay import Replay
from oncall.console.rulebook_store import RulebookStore
from oncall.core.errors import Interrupted
from oncall.fleet.reach import reach_fleet

from .conftest import CULPRIT, Open

DUMPS = Path(__file__).resolve().parents[2] / "fixtures" / "flight_recorder"


def test_each_of_several_recordings_is_judged_and_read_once(opened: Open) -> None:
    session = opened(DUMPS)
    lines = {one.job: one for one in session.ask(ListJobs())}
    assert {one.verdict for one in lines.values()} == {""}
    found = {job: session.ask(GlanceAtJob(job)) for job in lines}
    assert found["not_entered"].verdict.startswith("✖ Not-entered hang: rank 5")
    assert (found["not_entered"].severity, found["not_entered"].waiting) == ("critical", 7)
    assert found["healthy"].severity is None and found["healthy"].ranks == 8
    read = dict(session.source._read)  # type: ignore[attr-defined]
    assert session.ask(OpenJob("wrong_op")).job == "wrong_op"
    assert session.ask(GlanceAtJob("healthy")).job == "healthy"
    assert session.ask(GetSnapshot()).job == "wrong_op"
    assert session.source._read == read  # type: ignore[attr-defined]


def test_a_saved_incident_is_judged_without_being_opened(
    opened: Open, recorded: Callable[[str], Path]
) -> None:
    session = opened(recorded("hang"))
    line = session.ask(GlanceAtJob("simulated"))
    assert f"rank {CULPRIT}" in line.verdict and line.severity == "critical"
    assert session.shown is None


def test_a_running_job_is_asked_of_its_nodes_unless_another_is_open(
    shards: Path, store: RulebookStore
) -> None:
    session = Replay(Fleet(reach_fleet(f"local:{shards}/gpu*", None), store, since_ns=None), store)
    try:
        line = session.ask(GlanceAtJob("simulated"))
        assert f"rank {CULPRIT}" in line.verdict and line.ranks == 16
        assert [one.job for one in session.ask(ListJobs())] == ["simulated"]
        session.ask(OpenJob("simulated"))
        with pytest.raises(Interrupted):
            session.ask(GlanceAtJob("other"))
    finally:
        session.close()
