"""Rows in and out of an archive: once each, whoever writes, whatever is damaged beside them."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from oncall.archive import upkeep
from oncall.archive.history import Wanted, history
from oncall.archive.incidents import component_of, rows_of
from oncall.archive.layout import FINDINGS, Partition, partition_of
from oncall.archive.place import Folder
from oncall.archive.store import Archive
from oncall.core.errors import BadInput, Unreadable, UsageError

from .diagnoses import CABLE, FIRST_NS, added, diagnosis, finding


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(Folder(tmp_path / "archive"))


def incidents(archive: Archive) -> int:
    return history(archive, Wanted()).held.incidents


def times(archive: Archive) -> int:
    return len(history(archive, Wanted()).episodes)


def test_the_same_incident_twice_is_one(archive: Archive) -> None:
    rows = rows_of(diagnosis(0, finding()), "a3", FIRST_NS)
    later = rows_of(diagnosis(0, finding()), "a3", FIRST_NS + 1)

    assert (archive.add(rows), archive.add(later)) == (True, False)
    assert (incidents(archive), times(archive)) == (1, 1)


def test_a_diagnosis_that_changed_replaces_the_former_one_even_if_that_is_compacted(
    archive: Archive,
) -> None:
    added(archive, diagnosis(0, finding()))
    added(archive, diagnosis(1, finding(verdict="CABLE")))
    list(upkeep.compact(archive))

    added(archive, diagnosis(0, finding(verdict="SWITCH")), written_ns=FIRST_NS + 1)

    assert [one.verdict for one in history(archive, Wanted()).episodes] == ["SWITCH", "CABLE"]


def test_a_file_is_there_as_a_whole_or_not_at_all(archive: Archive, tmp_path: Path) -> None:
    added(archive, diagnosis(0, finding()))
    (file,) = tmp_path.glob("archive/**/*.parquet")
    part = file.with_name(f".{file.name}.0a1b.part")  # its writer was killed
    part.write_bytes(file.read_bytes()[:100])
    cut = file.with_name("copied.parquet")  # rsync was killed
    cut.write_bytes(file.read_bytes()[:-30])

    assert incidents(archive) == 1
    assert [Path(one.path).name for one in archive.damaged] == ["copied.parquet"]
    damaged = [one for one in upkeep.verify(archive) if one is not None]
    assert {Path(one.path).name for one in damaged} == {"copied.parquet", part.name}
    assert "half-written" in next(one.why for one in damaged if one.path.endswith(".part"))


def test_verify_reads_every_value(archive: Archive, tmp_path: Path) -> None:
    added(archive, diagnosis(0, finding()))
    (file,) = tmp_path.glob("archive/**/*.parquet")
    content = bytearray(file.read_bytes())
    content[4:200] = bytes(196)
    file.write_bytes(content)

    (found,) = [one for one in upkeep.verify(archive) if one is not None]

    assert archive.place.set_aside(found.path).endswith(".damaged")
    assert list(upkeep.verify(archive)) == []


def test_files_of_an_older_oncall_have_fewer_columns(archive: Archive, tmp_path: Path) -> None:
    added(archive, diagnosis(0, finding()))
    (file,) = tmp_path.glob("archive/**/*.parquet")
    added(archive, diagnosis(2, finding()))
    con = duckdb.connect()
    con.execute(
        f"COPY (SELECT * EXCLUDE (confidence, title, rank), 1 AS of_tomorrow FROM '{file}') "
        f"TO '{file}.new' (FORMAT parquet)"
    )
    Path(f"{file}.new").replace(file)

    before, now = history(archive, Wanted()).episodes

    assert (before.component, before.title) == ("gpu017/mlx5_3", None)
    assert (now.component, now.title) == ("gpu017/mlx5_3", "A NIC fails")
    assert not archive.damaged
    list(upkeep.compact(archive))
    assert times(archive) == 2


WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from diagnoses import added, diagnosis, finding
from oncall.archive import upkeep
from oncall.archive.place import Folder
from oncall.archive.store import Archive
archive = Archive(Folder(Path(sys.argv[2])))
for number in range(10):
    added(archive, diagnosis(number + float(sys.argv[3]), finding()))
    if number % 3 == 0:
        list(upkeep.compact(archive))
"""


def test_several_write_and_compact_at_once(archive: Archive, tmp_path: Path) -> None:
    here = str(Path(__file__).parent)
    where = str(tmp_path / "archive")
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, here, where, str(offset)])
        for offset in (0.0, 0.0, 0.5)  # two of them add the same incidents
    ]

    assert [writer.wait(120) for writer in writers] == [0, 0, 0]
    assert (incidents(archive), times(archive)) == (20, 20)


def test_a_compaction_that_is_killed_counts_nothing_twice(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for day in range(3):
        added(archive, diagnosis(day, finding()))
    with monkeypatch.context() as killed:
        killed.setattr(Folder, "remove", lambda *_: None)
        assert [count for _, count in upkeep.compact(archive)] == [3]

    assert len(list(tmp_path.glob("archive/**/*.parquet"))) == 4
    assert (incidents(archive), times(archive)) == (3, 3)


def test_old_months_are_deleted(archive: Archive) -> None:
    for day in (0, 40, 80):
        added(archive, diagnosis(day, finding()))

    would = list(upkeep.expire(archive, "2026-11", "2026-12", dry_run=True))
    assert (len(would), incidents(archive)) == (2, 3)
    assert list(upkeep.expire(archive, "2026-11", "2026-12")) == would
    assert incidents(archive) == 1


def write(sql: str) -> Callable[[Path], object]:
    return lambda path: duckdb.execute(f"COPY ({sql}) TO '{path}'")


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (os.mkfifo, None),
        (Path.mkdir, None),
        (write("SELECT range AS a, 'x' AS b FROM range(100)"), "100 rows that no archive wrote"),
        (write("SELECT {'a': 1} AS until_ns, 1 AS written_ns"), "failed to cast"),
        (write("SELECT 'x' AS written_ns, 'i' AS incident"), "failed to cast"),
        (
            write("SELECT 1 AS written_ns FROM range(2000001)"),
            "2,000,001 rows, more than a file of an archive has",
        ),
    ],
    ids=["pipe", "folder", "foreign", "other types", "text for a time", "too many rows"],
)
def test_one_odd_file_stops_no_other(
    odd: Callable[[Path], object], said: str | None, archive: Archive, tmp_path: Path
) -> None:
    added(archive, diagnosis(0, finding()))
    added(archive, diagnosis(1, finding()))
    (folder,) = tmp_path.glob("archive/findings/*/*/*")
    odd(folder / "x.parquet")

    assert (incidents(archive), times(archive)) == (2, 2)
    verified = [one for one in upkeep.verify(archive) if one is not None]
    assert [count for _, count in upkeep.compact(archive)] == [2]
    assert (incidents(Archive(archive.place)), times(archive)) == (2, 2)
    assert (folder / "x.parquet").exists()
    if said is not None:
        assert [one.path.rpartition("/")[2] for one in verified] == ["x.parquet"]
        assert said in verified[0].why


@pytest.mark.parametrize("letters", [28, 300])
def test_a_long_name_is_cut_and_distinguished(
    letters: int, archive: Archive, tmp_path: Path
) -> None:
    for job in ("漢" * letters, "漢" * (letters - 1) + "字", "a" * letters):
        added(archive, diagnosis(0, finding(), job=job))
        added(archive, diagnosis(1, finding(), job=job))
    assert len(list(tmp_path.glob("archive/findings/*/*/*"))) == 3
    assert len(list(upkeep.compact(archive))) == 3
    assert incidents(archive) == 6


def test_no_job_leaves_the_archive(archive: Archive, tmp_path: Path) -> None:
    added(archive, diagnosis(0, finding(), job="../../x/%2e='1'"), cluster="../b")

    (file,) = tmp_path.glob("archive/findings/*/*/*/*.parquet")
    found = partition_of(file.relative_to(tmp_path / "archive").as_posix())
    assert found == Partition(FINDINGS.name, "2026-09", "../b", "../../x/%2e='1'")
    assert history(archive, Wanted()).episodes[0].job == "../../x/%2e='1'"
    list(upkeep.compact(archive))
    assert incidents(archive) == 1


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"schema": 99}, "schema 99"),
        ({"findings": [{}]}, "damaged"),
        ({"findings": 7}, "damaged"),
        ({"window": {"since_ns": None, "until_ns": None}}, "no times"),
        ({"window": {"since_ns": None, "until_ns": 2**80}}, "no instant"),
    ],
)
def test_what_is_no_diagnosis_is_refused(damage: dict[str, Any], said: str) -> None:
    document = copy.deepcopy(diagnosis(0, finding())) | damage

    with pytest.raises(Unreadable, match=said):
        rows_of(document, "a3", FIRST_NS)
    with pytest.raises(Unreadable, match="not a diagnosis"):
        rows_of([document], "a3", FIRST_NS)


def test_hardware_has_a_name() -> None:
    assert component_of(CABLE, "gpu017") == "gpu017/mlx5_3"
    assert component_of({"kind": "gpu", "gpu": 3}, "gpu017") == "gpu017/gpu3"
    assert component_of({"kind": "port", "nic": "mlx5_3", "port": 1}, "gpu017") == "gpu017/mlx5_3"
    assert component_of({"kind": "link", "link": "leaf1-spine2"}, None) == "leaf1-spine2"
    assert component_of({"kind": "rank", "rank": 5}, "gpu017") == "gpu017"
    assert component_of({"kind": "rank", "rank": 5}, None) is None
    assert component_of({"kind": "group", "comm": "0x1"}, None) is None


def test_an_archive_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such folder"):
        Archive.at(str(tmp_path / "archive"))
    with pytest.raises(UsageError, match="no incident feed"):
        Archive.at(str(tmp_path)).solved("feed", "luck", FIRST_NS)
