"""The incident: rows of every kind go in, come back from a file, and bad files are named."""

from __future__ import annotations

import resource
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncall.core.errors import BadInput, UsageError
from oncall.evidence.incident import Incident, Words
from oncall.evidence.schema import SCHEMA_VERSION, TABLES, Column


def values(incident: Incident, table: str, column: str) -> list[Any]:
    rows = incident.con.execute(f'SELECT "{column}" FROM {table} ORDER BY ALL').fetchall()
    return [row[0] for row in rows]


# ---------------------------------------------------------------------- append


@pytest.mark.parametrize(
    ("column", "data", "expected"),
    [
        ("seq", np.array([3, 1, 2]), [1, 2, 3]),
        ("seq", np.arange(6)[::2], [0, 2, 4]),
        ("rank", np.array([1, 2, 3], dtype=np.int16), [1, 2, 3]),
        ("seq", np.ma.MaskedArray([7, 8, 9], mask=[False, True, False]), [7, 9, None]),
        ("seq", np.ma.MaskedArray([7, 8, 9]), [7, 8, 9]),
        ("done", np.ma.MaskedArray([True, False, True], mask=[0, 0, 1]), [False, True, None]),
        ("send_rate", np.ma.MaskedArray([1.5, 0.0, 2.5], mask=[0, 1, 0]), [1.5, 2.5, None]),
        ("op", Words(np.array([1, -1, 0], dtype=np.int32), ["b", "a"]), ["a", "b", None]),
        ("op", ["Send", None, "it's"], ["Send", "it's", None]),
        ("op", np.array(["b", "a", "b"]), ["a", "b", "b"]),
        ("op", np.array(["b", None, "a"], dtype=object), ["a", "b", None]),
        ("op", np.ma.MaskedArray(["b", "x", "a"], mask=[0, 1, 0]), ["a", "b", None]),
        ("op", np.ma.MaskedArray(["b", 0, "a"], mask=[0, 1, 0], dtype=object), ["a", "b", None]),
        ("seq", (5, None, -6), [-6, 5, None]),
        ("send_rate", [0.5, None, 2], [0.5, 2.0, None]),
        ("done", [True, None, False], [False, True, None]),
        ("comm", [2**64 - 1, None, 2**63], [2**63, 2**64 - 1, None]),
        ("comm", np.array([2**64 - 1, 0, 2**63], dtype=np.uint64), [0, 2**63, 2**64 - 1]),
        ("comm", 2**64 - 1, [2**64 - 1] * 3),
        ("seq", np.int64(4), [4] * 3),
        ("job", "llama", ["llama"] * 3),
        ("done", True, [True] * 3),
        ("send_rate", None, [None] * 3),
    ],
)  # fmt: skip
def test_every_kind_of_column_is_stored(
    incident: Incident, column: str, data: Any, expected: list[Any]
) -> None:
    assert incident.append("ops", {"stream": [0, 1, 2], column: data}) == 3
    assert values(incident, "ops", column) == expected
    assert values(incident, "ops", "peer") == [None] * 3


def test_a_column_nobody_declared_is_refused(incident: Incident) -> None:
    with pytest.raises(ValueError, match="ops has no column ranks, seqno"):
        incident.append("ops", {"rank": [1], "seqno": [1], "ranks": [2]})


def test_columns_of_different_lengths_are_refused(incident: Incident) -> None:
    with pytest.raises(ValueError, match="different lengths: rank 0, seq 2"):
        incident.append("ops", {"rank": [], "seq": [1, 2], "job": "j"})
    assert incident.rows("ops") == 0


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(0, 2**64 - 1),
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.text(st.characters(exclude_categories=["Cs"])),
            st.none() | st.floats(allow_nan=False),
            st.none() | st.booleans(),
        )
    )
)
def test_what_goes_in_comes_out(rows: list[tuple[Any, ...]]) -> None:
    names = ("comm", "seq", "op", "send_rate", "done")
    columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    with Incident.empty() as incident:
        assert incident.append("ops", columns | {"rank": list(range(len(rows)))}) == len(rows)
        selected = incident.con.execute(f"SELECT {', '.join(names)} FROM ops ORDER BY rank")
        assert selected.fetchall() == rows


# ------------------------------------------------------------------- save, open


def example(column: Column) -> Any:
    """A value that only a faithful copy of this column's type keeps."""
    largest = {
        "UBIGINT": 2**64 - 1,
        "BIGINT": 2**63 - 1,
        "INTEGER": -(2**31),
        "UINTEGER": 2**32 - 1,
    }
    other = {"VARCHAR": "gpu'017 µ", "DOUBLE": 0.1, "BOOLEAN": True}
    lists = {"VARCHAR[]": ["f", "g"], "INTEGER[]": [0, 1]}
    return (largest | other | lists)[column.type]


@pytest.fixture
def saved(incident: Incident, tmp_path: Path) -> Path:
    """Two rows in every table, one of them NULL throughout, saved."""
    for table in TABLES:
        row = {column.name: [example(column), None] for column in table.columns}
        assert incident.append(table.name, row) == 2
    path = tmp_path / "it's.oncall"
    incident.save(path)
    return path


def edit(path: Path, sql: str) -> None:
    with duckdb.connect(str(path)) as con:
        con.execute(sql)


def test_an_opened_file_is_neither_held_nor_changed(saved: Path) -> None:
    before = saved.read_bytes()
    with Incident.open(saved) as opened, Incident.open(saved) as again:
        opened.append("jobs", {"job": "more"})
        saved.unlink()
        assert (opened.rows("jobs"), again.rows("jobs")) == (3, 2)
        opened.save(saved)
    assert saved.read_bytes() != before
    with Incident.open(saved) as reopened:
        assert reopened.rows("jobs") == 3


def test_saving_leaves_one_file_and_replaces_the_old_one(saved: Path) -> None:
    with Incident.empty() as fresh:
        fresh.save(saved)
    assert list(saved.parent.iterdir()) == [saved]
    with Incident.open(saved) as opened:
        assert opened.rows("ops") == 0


def test_a_relative_path_that_looks_like_a_store_is_a_file(
    incident: Incident, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    incident.append("jobs", {"job": "j"})
    incident.save(Path("sqlite:x"))
    with Incident.open(Path("sqlite:x")) as opened:
        assert opened.rows("jobs") == 1


def test_an_older_schema_is_read(saved: Path) -> None:
    edit(saved, "DROP TABLE clocks; ALTER TABLE ops DROP COLUMN peer; CREATE TABLE later (x INT)")
    with Incident.open(saved) as opened:
        assert opened.rows("clocks") == 0
        assert values(opened, "ops", "peer") == [None, None]
        assert values(opened, "ops", "comm") == [2**64 - 1, None]
        assert opened.missing("clocks") == ("clocks",)


def test_a_newer_schema_is_refused(saved: Path) -> None:
    edit(saved, f"UPDATE meta SET schema_version = {SCHEMA_VERSION + 1}, oncall_version = '9.9'")
    with pytest.raises(BadInput, match=r"it's.oncall: written by oncall 9\.9 .* upgrade oncall"):
        Incident.open(saved)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("DROP TABLE meta; DROP TABLE ops", "a DuckDB file, but not an oncall incident"),
        ("DROP TABLE meta; CREATE TABLE meta (key TEXT)", "not an oncall incident"),
        ("DROP TABLE meta; DROP TABLE ops; CREATE VIEW meta AS SELECT 1 AS schema_version",
         "not an oncall incident"),
        ("DELETE FROM meta", "an incident without its version"),
        ("UPDATE meta SET schema_version = NULL", "an incident without its version"),
        ("ALTER TABLE meta ALTER schema_version TYPE TEXT", "an incident without its version"),
        ("DROP TABLE jobs; CREATE TABLE jobs AS SELECT 'many' AS world_size", "damaged: .*'many'"),
    ],
)  # fmt: skip
def test_what_is_no_incident_is_named(saved: Path, damage: str, message: str) -> None:
    edit(saved, damage)
    with pytest.raises(BadInput, match=message):
        Incident.open(saved)


def test_a_view_in_a_file_from_elsewhere_reads_nothing(saved: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("password")
    edit(
        saved,
        f"DROP TABLE jobs; CREATE VIEW jobs AS SELECT content AS job FROM read_text('{secret}')",
    )
    with Incident.open(saved) as opened:
        assert opened.rows("jobs") == 0


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_a_truncated_file_is_refused(saved: Path, share: float) -> None:
    content = saved.read_bytes()
    saved.write_bytes(content[: 100 + int(share * len(content))])
    with pytest.raises(BadInput, match=r"not an incident file|damaged"):
        Incident.open(saved)


def test_a_place_without_a_file_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.oncall", tmp_path):
        with pytest.raises(BadInput, match="no such file"):
            Incident.open(path)


def test_a_place_that_cannot_be_written_is_named(incident: Incident, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("kept")
    folder = tmp_path / "folder"
    folder.mkdir()
    for path in (tmp_path / "absent" / "x.oncall", file / "x.oncall", folder):
        with pytest.raises(UsageError, match=rf"cannot save .*{path.name}: "):
            incident.save(path)
    assert sorted(tmp_path.iterdir()) == [file, folder]
    assert (file.read_text(), list(folder.iterdir())) == ("kept", [])
    incident.save(tmp_path / "x.oncall")  # the incident itself is none the worse


def test_a_full_disk_leaves_the_old_file_and_nothing_else(saved: Path) -> None:
    before = saved.read_bytes()
    program = textwrap.dedent("""
        import resource, sys
        from pathlib import Path
        from oncall.core.errors import UsageError
        from oncall.evidence.incident import Incident
        with Incident.empty() as incident:
            incident.append("ops", {"seq": list(range(200_000))})
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
            try:
                incident.save(Path(sys.argv[1]))
            except UsageError as error:
                print(error)
    """)
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 100_000
    done = subprocess.run(
        [sys.executable, "-c", program, str(saved)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "cannot save" in done.stdout
    assert "File too large" in done.stdout
    assert list(saved.parent.iterdir()) == [saved]
    assert saved.read_bytes() == before


# ----------------------------------------------------------------- small things


def test_a_misspelt_table_is_an_error_not_a_python_variable(incident: Incident) -> None:
    opps = {"rank": np.array([1])}
    assert opps
    with pytest.raises(duckdb.CatalogException, match="opps"):
        incident.con.execute("SELECT * FROM opps")


def test_a_file_written_to_the_schema_by_another_tool_is_read(saved: Path) -> None:
    edit(saved, "DROP TABLE meta")
    with Incident.open(saved) as incident:
        assert incident.rows("ops") > 0


def test_an_incident_of_too_many_rows_is_refused_by_its_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "many.oncall"
    with Incident.empty() as incident:
        incident.append("ranks", {"job": "j", "rank": list(range(1000))})
        incident.save(path)
    monkeypatch.setattr("oncall.core.room.most_rows", lambda: 999)
    with pytest.raises(BadInput, match="holds 1,000 rows; 999 can be opened"):
        Incident.open(path)


@pytest.mark.parametrize("rows", [2, 100])
def test_text_that_utf8_cannot_hold_is_stored_with_a_mark(rows: int) -> None:
    with Incident.empty() as incident:
        incident.append("ranks", {"rank": list(range(rows)), "node": ["gpu\udce9"] * rows})
        assert incident.con.execute("SELECT DISTINCT node FROM ranks").fetchall() == [("gpu?",)]
