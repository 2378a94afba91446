"""Archives of recordings are looked into, and bombs and escapes are refused."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from oncall.errors import BadInput
from oncall.evidence import Incident
from oncall.ingest.archives import unpacked
from oncall.ingest.bounds import Bounds
from oncall.ingest.detect import load

DUMPS = Path(__file__).parents[2] / "fixtures" / "flight_recorder" / "not_entered"


def _tar(path: Path, mode: str) -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        tar.add(DUMPS, arcname="dumps")
    return path


def _jobs_and_paths(incident: Incident) -> list[tuple[str, str]]:
    return incident.con.execute("SELECT job, path FROM recordings ORDER BY rank").fetchall()


@pytest.mark.parametrize(
    ("name", "mode"), [("a.tar", "w"), ("a.tgz", "w:gz"), ("a.tar.xz", "w:xz")]
)
def test_a_tar_of_dumps_is_read_and_named(tmp_path: Path, name: str, mode: str) -> None:
    archive = _tar(tmp_path / name, mode)
    with Incident.empty() as incident:
        load([archive], incident, None)
        rows = _jobs_and_paths(incident)
    assert [path for _, path in rows] == [f"{archive}/dumps/rank_{rank}" for rank in range(8)]


def test_a_zip_inside_a_folder_is_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "night.zip", "w") as packed:
        for dump in DUMPS.iterdir():
            packed.write(dump, dump.name)
    with Incident.empty() as incident:
        load([tmp_path], incident, None)
        assert {job for job, _ in _jobs_and_paths(incident)} == {"night"}


def test_a_damaged_archive_is_refused_by_name(tmp_path: Path) -> None:
    archive = _tar(tmp_path / "a.tar.xz", "w:xz")
    archive.write_bytes(archive.read_bytes()[:200])
    with Incident.empty() as incident, pytest.raises(BadInput, match=r"a\.tar\.xz: cannot be unp"):
        load([archive], incident, None)


def test_an_archive_cannot_write_outside_its_folder(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w") as tar:
        entry = tarfile.TarInfo("../../escaped")
        entry.size = 4
        tar.addfile(entry, io.BytesIO(b"evil"))
    with Incident.empty() as incident, pytest.raises(BadInput):
        load([archive], incident, None)
    assert not list(tmp_path.parent.glob("**/escaped"))


@pytest.mark.parametrize("bounds", [Bounds(expanded_bytes=1000), Bounds(files=5)])
def test_an_archive_over_its_bounds_is_unpacked_as_far_as_they_go(
    tmp_path: Path, bounds: Bounds
) -> None:
    archive = _tar(tmp_path / "a.tar", "w")
    with unpacked([archive], bounds) as found:
        assert found.problems.keys() == {archive}
        (folder,) = found.origin
        assert len([file for file in folder.rglob("*") if file.is_file()]) < 6
