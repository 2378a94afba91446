"""A session on a recording: worlds at instants, and questions about the last one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from oncall.console.recording import RecordingSession
from oncall.console.session import Session
from oncall.console.shelf import Shelf
from oncall.console.world import RankState
from oncall.core.errors import BadInput, Interrupted, UsageError
from oncall.core.units import NS_PER_S
from oncall.evidence.incident import Incident

from .conftest import AT_NS, CULPRIT, Open

Recorded = Callable[[str], Path]


def test_a_hang_is_shown_as_it_stands(opened: Open, recorded: Recorded) -> None:
    session: Session = opened(recorded("hang"))
    world = session.world()
    [finding] = world.diagnosis.findings
    assert (finding.verdict, finding.blame[0].where["rank"]) == ("H1", CULPRIT)
    assert world.ranks.state[CULPRIT] == RankState.BLAMED
    # All others wait for it, in whatever communicator: victims are told from the busy.
    others = np.delete(world.ranks.state, CULPRIT)
    assert (others == RankState.HUNG).all()
    assert {"hang", "process", "slow", "waits"} <= set(world.timings_s)
    assert world.communicators[0].comm == int(finding.case["comm"], 16)
    told = world.communicators[0]
    assert 0 < told.waiting <= told.size - told.behind


def test_before_the_fault_all_is_well_and_versions_rise(opened: Open, recorded: Recorded) -> None:
    session = opened(recorded("hang"))
    end = session.world()
    assert end.moment.first_ns is not None
    at_ns = end.moment.first_ns + AT_NS - 10 * NS_PER_S
    before = session.world(at_ns)
    assert before.moment.at_ns == at_ns
    assert (before.moment.first_ns, before.moment.last_ns) == (
        end.moment.first_ns,
        end.moment.last_ns,
    )
    assert not before.diagnosis.findings
    assert (before.ranks.state < RankState.HUNG).all()
    assert before.version > end.version
    # What was cut off is back: each world is a copy of its own.
    assert session.world().diagnosis.findings == end.diagnosis.findings


def test_soon_after_the_fault_the_late_are_told_from_the_waiting(
    opened: Open, recorded: Recorded
) -> None:
    session = opened(recorded("hang"))
    first_ns = session.world().moment.first_ns
    assert first_ns is not None
    world = session.world(first_ns + AT_NS + 60 * NS_PER_S)
    assert not world.diagnosis.findings
    assert world.ranks.state[CULPRIT] == RankState.LATE
    assert RankState.WAITING in world.ranks.state


def test_silent_ranks_are_those_that_left_nothing(opened: Open, recorded: Recorded) -> None:
    world = opened(recorded("silent")).world()
    silent = world.ranks.rank[world.ranks.state == RankState.SILENT]
    assert silent.tolist() == list(range(8, 16))
    assert world.diagnosis.coverage.ranks_seen == 8


def test_groups_number_the_ranks_by_role(opened: Open, recorded: Recorded) -> None:
    groups = opened(recorded("healthy")).world().ranks.groups
    assert groups["tp"].tolist() == [rank // 2 for rank in range(16)]
    assert set(groups["world"].tolist()) == {0}


def test_rows_behind_a_step_are_those_it_counted(opened: Open, recorded: Recorded) -> None:
    for name in ("hang", "slow"):
        session = opened(recorded(name))
        [finding, *_] = session.world().diagnosis.findings
        for number, step in enumerate(finding.story):
            rows = session.step_rows(finding.id, number, limit=1)
            assert (rows.fact, rows.sql, rows.table.total) == (step.fact, step.sql, step.rows)
            assert len(rows.table.rows) == min(1, step.rows)
    with pytest.raises(UsageError, match="no longer has step 99"):
        session.step_rows(finding.id, 98)


def test_the_blamed_rows_name_the_culprit(opened: Open, recorded: Recorded) -> None:
    session = opened(recorded("hang"))
    [finding] = session.world().diagnosis.findings
    table = session.step_rows(finding.id, len(finding.story) - 1).table
    assert [row[table.columns.index("rank")] for row in table.rows] == [CULPRIT]


def test_questions_come_after_a_world(opened: Open, recorded: Recorded) -> None:
    session = opened(recorded("hang"))
    with pytest.raises(UsageError, match="no diagnosis yet"):
        session.rank_card(0)


def test_reports_carry_the_notes_and_no_control_characters(
    opened: Open, recorded: Recorded
) -> None:
    session = opened(recorded("hang"))
    session.world()
    for style in ("text", "markdown"):
        report = session.report(style, "seen \x1b[31mby me\nat night")
        assert "by me\nat night" in report
        assert "\x1b" not in report
    assert json.loads(session.report("json"))["findings"][0]["verdict"] == "H1"
    with pytest.raises(UsageError, match="style"):
        session.report("pdf")


def test_saving_copies_the_whole_evidence(opened: Open, recorded: Recorded, tmp_path: Path) -> None:
    session = opened(recorded("hang"))
    first_ns = session.world().moment.first_ns
    session.world(first_ns)
    session.save(tmp_path / "mine.oncall")
    with Incident.open(tmp_path / "mine.oncall") as mine, Incident.open(recorded("hang")) as all_:
        assert mine.rows("ops") == all_.rows("ops") > 0
    (tmp_path / "letter.oncall").write_text("dear")
    with pytest.raises(UsageError, match="not an incident file"):
        session.save(tmp_path / "letter.oncall")


def test_several_jobs_are_chosen_from(recorded: Recorded, shelf: Shelf, tmp_path: Path) -> None:
    with Incident.open(recorded("healthy")) as both:
        for table in ("jobs", "ranks", "comms", "ops"):
            both.con.execute(f"INSERT INTO {table} SELECT * REPLACE ('other' AS job) FROM {table}")
        both.save(tmp_path / "both.oncall")
    session = RecordingSession([tmp_path / "both.oncall"], shelf)
    assert [(line.job, line.ranks, line.nodes) for line in session.jobs()] == [
        ("other", 16, 2),
        ("simulated", 16, 2),
    ]
    with pytest.raises(UsageError, match="2 jobs"):
        session.world()
    session.choose("other")
    assert session.world().job == "other"
    session.close()


def test_calls_on_an_unknown_communicator_do_not_keep_the_others_from_being_listed(
    opened: Open, tmp_path: Path
) -> None:
    """As Megatrace logs whose recorder named no group, where not all could be found out."""
    with Incident.empty() as incident:
        for comm in (1, None):
            incident.append(
                "ops",
                {"job": "j", "comm": comm, "seq": 0, "rank": [0, 1], "kind": "coll",
                 "op": "AllReduce", "started_ns": 10**18, "ended_ns": 10**18 + 10**6},
            )  # fmt: skip
        incident.save(tmp_path / "partly.oncall")
    world = opened(tmp_path / "partly.oncall").world()
    assert [one.comm for one in world.communicators] == [1]


def test_what_cannot_be_read_says_so(shelf: Shelf, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        RecordingSession([tmp_path / "gone"], shelf)
    broken = tmp_path / "broken.oncall"
    broken.write_bytes(b"\0" * 8 + b"DUCK" + b"\0" * 5000)
    session = RecordingSession([broken], shelf)
    with pytest.raises(BadInput, match="broken"):
        session.world()
    session.close()


def test_cancel_ends_a_world_and_the_next_one_comes(opened: Open, recorded: Recorded) -> None:
    session = opened(recorded("slow"))
    session.world()
    began = threading.Event()
    source = session._source
    real = source.at

    def at(at_ns, task):  # type: ignore[no-untyped-def]
        evidence = real(at_ns, task)
        began.set()
        return evidence

    source.at = at  # type: ignore[method-assign]
    raised: list[BaseException] = []

    def work() -> None:
        try:
            session.world()
        except Interrupted as error:
            raised.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    assert began.wait(60)
    session.cancel()
    worker.join(60)
    assert len(raised) == 1
    assert session.world().diagnosis.findings


def test_a_folder_without_recordings_leaves_nothing_behind(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "cache").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "cache"))
    with pytest.raises(BadInput):
        RecordingSession([tmp_path / "empty"], shelf)
    assert list((tmp_path / "cache").iterdir()) == []
