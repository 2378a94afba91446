"""A saved incident read in place shows what a copy of it shows, also narrowed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from oncall.evidence import saved as saved_files
from oncall.evidence import window
from oncall.evidence.incident import Incident
from oncall.evidence.schema import TABLES
from oncall_lab import TrainingFault, TrainingScenario, simulate


@pytest.fixture(scope="module")
def two_jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Saved: two jobs, of which one hangs."""
    path = tmp_path_factory.mktemp("saved") / "two.oncall"
    fault = TrainingFault("H1", (2,), at_ns=20 * 10**9)
    scenario = TrainingScenario(tp=2, pp=2, dp=1, duration_ns=40 * 10**9, faults=(fault,))
    with simulate(scenario)[0] as incident:
        for table in TABLES:
            if "job" in table.column_names:
                incident.con.execute(
                    f"INSERT INTO {table.name} "
                    f"SELECT * REPLACE ('it''s another' AS job) FROM {table.name}"
                )
        incident.save(path)
    return path


@pytest.fixture
def saved(two_jobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy that the test may change, of which every table counts as large."""
    monkeypatch.setattr(saved_files, "ROW_GROUP", 1)
    return Path(shutil.copy(two_jobs, tmp_path))


def rows(incident: Incident) -> dict[str, list[tuple[object, ...]]]:
    """Everything, sorted."""
    return {
        table.name: incident.con.execute(
            f"SELECT {', '.join(table.column_names)} FROM {table.name} ORDER BY ALL"
        ).fetchall()
        for table in TABLES
    }


@pytest.mark.parametrize("seconds", [None, 5, 21, 39])
@pytest.mark.parametrize("which", [0, 1])
def test_narrowed_to_a_job_and_a_moment(saved: Path, seconds: int | None, which: int) -> None:
    with Incident.open(saved) as copied, Incident.in_place(saved) as viewed:
        ((kind,),) = viewed.con.execute(
            "SELECT count(*) FROM duckdb_views() WHERE view_name = 'ops'"
        ).fetchall()
        assert kind == 1
        job = window.jobs(copied.con)[which]
        for incident in (copied, viewed):
            assert window.keep_job(incident.con, job) == job
            if seconds is not None:
                first_ns, _ = window.span(incident.con)
                assert first_ns is not None
                window.cut_after(incident.con, first_ns + seconds * 10**9)
        assert rows(copied) == rows(viewed)
        assert copied.rows("ops") == viewed.rows("ops") > 0


def test_impossible_values_are_removed_from_it_too(saved: Path) -> None:
    import duckdb

    with duckdb.connect(str(saved)) as con:
        con.execute("UPDATE ops SET ended_ns = -5 WHERE rank = 1 AND seq = 1")
    with Incident.open(saved) as copied, Incident.in_place(saved) as viewed:
        assert copied.disbelieve() == viewed.disbelieve() != ()
        assert rows(copied) == rows(viewed)
        assert "ops" not in viewed.believed
        assert "comms" in viewed.believed


def test_what_is_saved_again_is_the_same(saved: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.oncall"
    with Incident.in_place(saved, memory_bytes=2**30) as viewed:
        viewed.save(again)
        expected = rows(viewed)
    with Incident.open(again) as copied:
        assert rows(copied) == expected
        assert copied.con.execute("DESCRIBE ops").fetchall()[-1][0] != "rowid"
