"""What texts say is kept between runs, and never trusted where it may be another's or damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncall.core import kept_files
from oncall.core.kept_files import KeptFiles
from oncall.evidence.incident import Incident
from oncall.rules.language import load, read_texts, sql
from oncall.rules.language.read_texts import keep, kept

TEXT = "a: [1, 2.5, null, true, 'é']\n"
DATA: dict[str, Any] = {"a": [1, 2.5, None, True, "é"]}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept_files.folder_of.cache_clear()
    yield tmp_path / "oncall" / "rulebooks"
    kept_files.folder_of.cache_clear()


def test_what_was_kept_is_read_again(folder: Path) -> None:
    assert kept(TEXT) is None
    keep(TEXT, DATA)
    assert kept(TEXT) == DATA
    assert kept(TEXT + " ") is None
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(list(folder.iterdir())) == 1


def test_another_version_of_oncall_reads_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(TEXT, DATA)
    monkeypatch.setattr(kept_files, "__version__", "0.0.1")
    assert kept(TEXT) is None


@pytest.mark.parametrize("change", [lambda b: b[:-5], lambda b: b.replace(b"2.5", b"2.6"), bytes])
def test_a_damaged_file_is_ignored_and_written_anew(folder: Path, change: Any) -> None:
    keep(TEXT, DATA)
    (file,) = folder.iterdir()
    sound = file.read_bytes()
    damaged = b"" if change is bytes else change(sound)
    file.write_bytes(damaged)
    assert kept(TEXT) is None
    keep(TEXT, DATA)
    assert file.read_bytes() == sound


def test_a_file_of_another_source_is_not_believed(folder: Path) -> None:
    keep(TEXT, DATA)
    (ours,) = folder.iterdir()
    keep("b: 7\n", {"b": 7})
    (other,) = set(folder.iterdir()) - {ours}
    other.replace(ours)
    assert kept(TEXT) is None


def test_what_json_cannot_say_is_not_kept() -> None:
    for data in ({1: "a number as a key"}, {"a": {1, 2}}, {"a": float("nan")}):
        keep(TEXT, data)
        assert kept(TEXT) is None


def test_a_folder_where_others_may_write_is_not_used(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    keep(TEXT, DATA)
    assert kept(TEXT) is None
    assert not list(folder.iterdir())


def test_without_a_place_nothing_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    kept_files.folder_of.cache_clear()
    keep(TEXT, DATA)
    assert kept(TEXT) is None


def test_the_oldest_are_forgotten(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_texts, "_TEXTS", KeptFiles("rulebooks", most=4))
    for number in range(20):
        keep(f"{TEXT}{number}", DATA)
    assert len(list(folder.iterdir())) <= 4
    assert kept(f"{TEXT}19") == DATA


def test_the_shipped_rulebooks_are_the_same_whether_kept_or_read() -> None:
    load._read_text.cache_clear()
    read = load.load_rulebooks([load.shipped_folder()])
    load._read_text.cache_clear()
    assert load.load_rulebooks([load.shipped_folder()]) == read
    load._read_text.cache_clear()


def test_the_tree_of_a_fact_is_the_same_whether_kept_or_parsed() -> None:
    text = "SELECT job, count(*) FILTER (seq > $few) AS n FROM ops GROUP BY job ORDER BY n"
    with Incident.empty() as incident:
        found = []
        for _ in range(2):
            sql._read.pop(text, None)
            found.append(sql.read_sql(incident.con, text, keep=True))
    sql._read.pop(text, None)
    assert found[0] == found[1]
    assert found[0].node == found[1].node
