"""A session on a recording: snapshots at instants, and questions about the last one."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from oncall.console.evidence_queries import GetRankCard, GetStepRows
from oncall.console.queries import GetReport, GetSnapshot, ListJobs, OpenJob, SaveIncident
from oncall.console.recording import Recording
from oncall.console.replay import Replay
from oncall.console.rulebook_store import RulebookStore
from oncall.console.session import Session
from oncall.core.errors import BadInput, Interrupted, UsageError
from oncall.core.units import NS_PER_S
from oncall.evidence.incident import Incident
from oncall.rules.engine import engine
from oncall.rules.engine.evaluate import Evaluation
from oncall.views.snapshot import RankState

from .conftest import AT_NS, CULPRIT, Open

Recorded = Callable[[str], Path]


def test_a_hang_is_shown_as_it_stands(opened: Open, recorded: Recorded) -> None:
    session: Session = opened(recorded("hang"))
    snapshot = session.ask(GetSnapshot())
    [finding] = snapshot.diagnosis.findings
    assert (finding.verdict, finding.blame[0].where["rank"]) == ("H1", CULPRIT)
    assert snapshot.ranks.state[CULPRIT] == RankState.BLAMED
    # All others wait for it, in whatever communicator: victims are distinguished from the busy.
    others = np.delete(snapshot.ranks.state, CULPRIT)
    assert (others == RankState.HUNG).all()
    assert {"hang", "process", "slow", "waits"} <= set(snapshot.timings_s)
    assert snapshot.communicators[0].comm == int(finding.case["comm"], 16)
    reported = snapshot.communicators[0]
    assert 0 < reported.waiting <= reported.size - reported.behind


def test_before_the_fault_all_is_well_and_versions_rise(opened: Open, recorded: Recorded) -> None:
    session = opened(recorded("hang"))
    end = session.ask(GetSnapshot())
    assert end.moment.first_ns is not None
    at_ns = end.moment.first_ns + AT_NS - 10 * NS_PER_S
    before = session.ask(GetSnapshot(at_ns))
    assert before.moment.at_ns == at_ns
    assert (before.moment.first_ns, before.moment.last_ns) == (
        end.moment.first_ns,
        end.moment.last_ns,
    )
    assert not before.diagnosis.findings
    assert (before.ranks.state < RankState.HUNG).all()
    assert before.version > end.version
    # What was cut off is back: each snapshot is a copy of its own.
    assert session.ask(GetSnapshot()).diagnosis.findings == end.diagnosis.findings


def test_soon_after_the_fault_the_late_are_reported_from_the_waiting(
    opened: Open, recorded: Recorded
) -> None:
    session = opened(recorded("hang"))
    first_ns = session.ask(GetSnapshot()).moment.first_ns
    assert first_ns is not None
    snapshot = session.ask(GetSnapshot(first_ns + AT_NS + 60 * NS_PER_S))
    assert [one.verdict for one in snapshot.diagnosis.findings] == ["STANDSTILL"]
    state = snapshot.ranks.state.tolist()
    assert state.pop(CULPRIT) == RankState.BLAMED
    assert set(state) == {RankState.WAITING}, "the job may be stopped: none is called hung yet"


def test_silent_ranks_are_those_that_left_nothing(opened: Open, recorded: Recorded) -> None:
    snapshot = opened(recorded("silent")).ask(GetSnapshot())
    silent = snapshot.ranks.rank[snapshot.ranks.state == RankState.UNKNOWN]
    assert silent.tolist() == list(range(8, 16))
    assert snapshot.diagnosis.coverage.ranks_seen == 8


def test_rows_behind_a_step_are_those_it_counted(opened: Open, recorded: Recorded) -> None:
    for name in ("hang", "slow"):
        session = opened(recorded(name))
        [finding, *_] = session.ask(GetSnapshot()).diagnosis.findings
        for number, step in enumerate(finding.story):
            rows = session.ask(GetStepRows(finding.id, number, limit=1))
            assert (rows.fact, rows.sql, rows.table.total) == (step.fact, step.sql, step.rows)
            assert len(rows.table.rows) == min(1, step.rows)
    with pytest.raises(UsageError, match="no longer has step 99"):
        session.ask(GetStepRows(finding.id, 98))


def test_the_blamed_rows_name_the_culprit(opened: Open, recorded: Recorded) -> None:
    session = opened(recorded("hang"))
    [finding] = session.ask(GetSnapshot()).diagnosis.findings
    table = session.ask(GetStepRows(finding.id, len(finding.story) - 1)).table
    assert [row[table.columns.index("rank")] for row in table.rows] == [CULPRIT]


def test_questions_come_after_a_snapshot(opened: Open, recorded: Recorded) -> None:
    session = opened(recorded("hang"))
    with pytest.raises(UsageError, match="no diagnosis yet"):
        session.ask(GetRankCard(0))


def test_reports_carry_the_notes_and_no_control_characters(
    opened: Open, recorded: Recorded
) -> None:
    session = opened(recorded("hang"))
    session.ask(GetSnapshot())
    for style in ("text", "markdown"):
        report = session.ask(GetReport(style, "seen \x1b[31mby me\nat night"))
        assert "by me\nat night" in report
        assert "\x1b" not in report
    assert json.loads(session.ask(GetReport("json")))["findings"][0]["verdict"] == "H1"
    with pytest.raises(UsageError, match="style"):
        session.ask(GetReport("pdf"))


def test_saving_copies_the_whole_evidence(opened: Open, recorded: Recorded, tmp_path: Path) -> None:
    session = opened(recorded("hang"))
    first_ns = session.ask(GetSnapshot()).moment.first_ns
    session.ask(GetSnapshot(first_ns))
    session.ask(SaveIncident(tmp_path / "mine.oncall"))
    with Incident.open(tmp_path / "mine.oncall") as mine, Incident.open(recorded("hang")) as all_:
        assert mine.rows("ops") == all_.rows("ops") > 0
    (tmp_path / "letter.oncall").write_text("dear")
    with pytest.raises(UsageError, match="not an incident file"):
        session.ask(SaveIncident(tmp_path / "letter.oncall"))


def test_several_jobs_are_chosen_from(
    recorded: Recorded, store: RulebookStore, tmp_path: Path
) -> None:
    with Incident.open(recorded("healthy")) as both:
        for table in ("jobs", "ranks", "comms", "ops"):
            both.con.execute(f"INSERT INTO {table} SELECT * REPLACE ('other' AS job) FROM {table}")
        both.save(tmp_path / "both.oncall")
    session = Replay(Recording([tmp_path / "both.oncall"]), store)
    assert [(line.job, line.ranks, line.nodes) for line in session.ask(ListJobs())] == [
        ("other", 16, 2),
        ("simulated", 16, 2),
    ]
    with pytest.raises(UsageError, match="2 jobs"):
        session.ask(GetSnapshot())
    assert session.ask(OpenJob("other")).job == "other"
    session.close()


def test_what_cannot_be_read_says_so(store: RulebookStore, tmp_path: Path) -> None:
    gone = Replay(Recording([tmp_path / "gone"]), store)
    for query in (ListJobs(), GetSnapshot(), SaveIncident(tmp_path / "x.oncall")):
        with pytest.raises(BadInput, match="no such file"):
            gone.ask(query)
    gone.close()
    broken = tmp_path / "broken.oncall"
    broken.write_bytes(b"\0" * 8 + b"DUCK" + b"\0" * 5000)
    session = Replay(Recording([broken]), store)
    with pytest.raises(BadInput, match="broken"):
        session.ask(GetSnapshot())
    session.close()


def test_cancel_ends_a_snapshot_and_the_next_one_comes(opened: Open, recorded: Recorded) -> None:
    session = opened(recorded("slow"))
    session.ask(GetSnapshot())
    began = threading.Event()
    source = session.source
    real = source.at

    def at(at_ns, task):  # type: ignore[no-untyped-def]
        evidence = real(at_ns, task)
        began.set()
        return evidence

    source.at = at  # type: ignore[method-assign]
    raised: list[BaseException] = []

    def work() -> None:
        try:
            session.ask(GetSnapshot())
        except Interrupted as error:
            raised.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    assert began.wait(60)
    session.cancel()
    worker.join(60)
    assert len(raised) == 1
    assert session.ask(GetSnapshot()).diagnosis.findings


def test_what_lies_beside_a_saved_incident_is_said_not_to_be_read(
    opened: Open, recorded: Recorded, tmp_path: Path
) -> None:
    shutil.copy(recorded("hang"), tmp_path / "night.oncall")
    assert opened(tmp_path).ask(GetSnapshot()).origin == f"recording {tmp_path / 'night.oncall'}"
    (tmp_path / "slurm.out").write_text("a log")
    said = opened(tmp_path).ask(GetSnapshot()).origin
    assert said == f"recording {tmp_path / 'night.oncall'}; not read: 1 more in that folder"


def test_a_folder_without_recordings_leaves_nothing_behind(
    store: RulebookStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "cache").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "cache"))
    session = Replay(Recording([tmp_path / "empty"]), store)
    with pytest.raises(BadInput):
        session.ask(ListJobs())
    session.close()
    assert list((tmp_path / "cache").iterdir()) == []


def test_progress_counts_the_rulebooks_and_why_a_job_stopped_comes_first(
    recorded: Recorded, store: RulebookStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Replay(Recording([recorded("hang")]), store)
    reported: list[tuple[str, str]] = []
    evaluate = engine._evaluate

    def evaluating(evaluation: Evaluation, gathered: engine._Run) -> None:
        reported.append((evaluation.rulebook.name, session.progress()))
        evaluate(evaluation, gathered)

    monkeypatch.setattr(engine, "_evaluate", evaluating)
    try:
        session.ask(GetSnapshot())
        assert session.progress() == ""
    finally:
        session.close()
    count = len(store.rulebooks)
    assert reported[0][1] == f"0 of {count} rulebooks have run"
    assert reported[-1][1].endswith(f" so far; {count - 1} of {count} rulebooks have run")
    assert {name for name, _ in reported[:3]} == {"hang", "process", "stacks"}


def test_recordings_of_several_jobs_in_one_folder_are_chosen_from(
    store: RulebookStore, tmp_path: Path
) -> None:
    fixtures = Path(__file__).parents[2] / "fixtures" / "flight_recorder"
    for name in ("healthy", "not_entered"):
        shutil.copytree(fixtures / name, tmp_path / name)
    session = Replay(Recording([tmp_path]), store)
    assert [line.job for line in session.ask(ListJobs())] == ["healthy", "not_entered"]
    with pytest.raises(UsageError, match="recordings of 2 jobs"):
        session.ask(GetSnapshot())
    with pytest.raises(UsageError, match="recordings of 2 jobs"):
        session.ask(SaveIncident(tmp_path / "both.oncall"))
    hung = session.ask(OpenJob("not_entered"))
    assert (hung.job, len(hung.diagnosis.findings)) == ("not_entered", 1)
    healthy = session.ask(OpenJob("healthy"))
    assert (healthy.job, healthy.diagnosis.findings) == ("healthy", ())
    assert session.ask(OpenJob("not_entered")).diagnosis.findings == hung.diagnosis.findings
    assert len(session.ask(ListJobs())) == 2
    session.ask(SaveIncident(tmp_path / "one.oncall"))
    with Incident.open(tmp_path / "one.oncall") as one:
        assert one.con.execute("SELECT DISTINCT job FROM ops").fetchall() == [("not_entered",)]
    session.close()
