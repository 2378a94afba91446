"""The index declares what the modules declare, and never holds longer than their files do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oncall.core import kept_files
from oncall.core.kept_files import KeptFiles
from oncall.evidence import relation_index
from oncall.evidence.registry import checked, found_below
from oncall.evidence.relation_index import Imported, indexed
from oncall.evidence.relations import Relation

MODULE = '''
from oncall.evidence import relation
from oncall.evidence.relations import Param

@relation("late", reads=["ops"], columns=[("rank", "INTEGER", "", "r")], source="s",
          params={"long": Param("5 min", "why")})
def late():
    """Late ranks."""
    return "SELECT rank FROM ops WHERE duration_ns > $long"

@relation("twice", reads=["late"], columns=[("rank", "INTEGER", "", "r")], source="s")
def twice(con):
    return {"rank": [FACTOR]}
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    kept_files.folder_of.cache_clear()
    yield tmp_path / "cache" / "oncall" / "relations"
    kept_files.folder_of.cache_clear()


def same(one: Relation, other: Relation) -> bool:
    """Alike but for how the function is reached."""
    return replace(one, compute=None) == replace(other, compute=None) and (
        (one.compute is None) == (other.compute is None)
    )


def test_the_index_of_all_relations_declares_what_their_modules_declare(folder: Path) -> None:
    found = checked(found_below("oncall.analysis"))
    assert indexed("oncall.analysis", lambda: found) == found
    read = indexed("oncall.analysis", dict)
    assert list(read) == list(found)
    assert all(same(one, read[name]) for name, one in found.items())
    assert len(list(folder.iterdir())) == 1


def test_a_function_is_imported_when_it_is_called_and_a_change_is_seen(tmp_path: Path) -> None:
    def names() -> list[str]:
        """As in a new process, with what it imported and found."""
        run = (
            "import sys, oncall.evidence.registry as registry\n"
            "from oncall.evidence.relation_index import indexed\n"
            "find = lambda: registry.checked(registry.found_below('house'))\n"
            "found = indexed('house', find)\n"
            "print(*found, 'house.rules' in sys.modules, found['twice'].compute(None)['rank'][0])"
        )
        printed = subprocess.run(
            [sys.executable, "-c", run],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )
        return printed.stdout.split()

    house = tmp_path / "house"
    house.mkdir()
    (house / "__init__.py").write_text("")
    (house / "rules.py").write_text(MODULE.replace("FACTOR", "2"))
    assert names() == ["late", "twice", "True", "2"]
    assert names() == ["late", "twice", "False", "2"]
    (house / "rules.py").write_text(MODULE.replace("FACTOR", "33").replace('"late"', '"slow"'))
    assert names() == ["slow", "twice", "True", "33"]
    (house / "more.py").write_text(MODULE.replace('"late"', '"more"').replace('"twice"', '"most"'))
    assert sorted(names()) == ["33", "True", "more", "most", "slow", "twice"]


def test_files_that_change_while_they_are_imported_are_not_indexed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = tmp_path / "moving"
    house.mkdir()
    (house / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))

    def find() -> dict[str, Relation]:
        (house / "__init__.py").write_text("# installed meanwhile\n")
        return {}

    assert indexed("moving", find) == {}
    assert not list(folder.iterdir())


def test_a_function_that_is_gone_is_an_error() -> None:
    gone = Imported("oncall.evidence.schema", "ops")
    with pytest.raises(ImportError, match="no longer declares the relation ops"):
        gone(None)


def test_without_a_place_all_is_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    kept_files.folder_of.cache_clear()
    found = checked(found_below("oncall.analysis"))
    for _ in range(2):
        assert indexed("oncall.analysis", lambda: found) == found


def test_few_indexes_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relation_index, "_INDEX", KeptFiles("relations", most=2))
    for version in range(5):
        monkeypatch.setattr(kept_files, "__version__", str(version))
        indexed("oncall.analysis", dict)
    assert len(list(folder.iterdir())) <= 2
