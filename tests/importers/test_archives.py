"""Archives of recordings are looked into, and bombs and escapes are refused."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from oncall.core.errors import BadInput
from oncall.evidence import Incident
from oncall.importers.archives import unpacked
from oncall.importers.bounds import DEFAULT, Bounds
from oncall.importers.detect import load

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
        rows = _jobs_and_paths(incident)
    assert {job for job, _ in rows} == {tmp_path.name}
    assert rows[0][1] == f"{tmp_path}/night.zip/rank_0"


def test_archives_inside_an_archive_are_read(tmp_path: Path) -> None:
    for node, dumps in enumerate((sorted(DUMPS.iterdir())[:4], sorted(DUMPS.iterdir())[4:])):
        with tarfile.open(tmp_path / f"node{node}.tar.gz", "w:gz") as tar:
            for dump in dumps:
                tar.add(dump, arcname=dump.name)
    with zipfile.ZipFile(tmp_path / "case.zip", "w") as packed:
        for node in range(2):
            packed.write(tmp_path / f"node{node}.tar.gz", f"node{node}.tar.gz")
        packed.writestr("__MACOSX/._node0.tar.gz", b"\0\5\26\7")
        packed.writestr(".DS_Store", b"\0\0\0\1Bud1")
    with Incident.empty() as incident:
        load([tmp_path / "case.zip"], incident, None)
        rows = _jobs_and_paths(incident)
    assert rows == [
        ("case", f"{tmp_path}/case.zip/node{rank // 4}.tar.gz/rank_{rank}") for rank in range(8)
    ]


def test_archives_nested_without_end_are_unpacked_a_few_times(tmp_path: Path) -> None:
    inner = b""
    for _ in range(20):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            entry = tarfile.TarInfo("a.tar")
            entry.size = len(inner)
            tar.addfile(entry, io.BytesIO(inner))
        inner = packed.getvalue()
    (tmp_path / "a.tar").write_bytes(inner)
    with unpacked([tmp_path / "a.tar"]) as found:
        (folder,) = found.origin
        assert len(list(folder.rglob("*"))) < 6


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


# -------------------------------------------------------------------- attacks


def _problems(path: Path, bounds: Bounds = DEFAULT) -> str:
    with unpacked([path], bounds) as found:
        return "; ".join(found.problems.values())


def test_a_tar_that_claims_gigabytes_is_refused_by_its_header(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("rank_0")
    entry.size = 6 << 30
    archive = tmp_path / "a.tar"
    archive.write_bytes(entry.tobuf() + bytes(10240))
    assert "unpacks to more" in _problems(archive)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_and_so_is_one_whose_header_goes_on_for_gigabytes(tmp_path: Path, kind: bytes) -> None:
    entry = tarfile.TarInfo("rank_0")
    entry.size, entry.type = 6 << 30, kind
    archive = tmp_path / "a.tar"
    archive.write_bytes(entry.tobuf() + bytes(10240))
    assert "a header of 6 GiB" in _problems(archive)


def test_folders_count_as_files_do(tmp_path: Path) -> None:
    places = tmp_path / "a.tar", tmp_path / "a.zip"
    with tarfile.open(places[0], "w") as tar, zipfile.ZipFile(places[1], "w") as packed:
        for number in range(50):
            folder = tarfile.TarInfo(f"d{number}")
            folder.type = tarfile.DIRTYPE
            tar.addfile(folder)
            packed.writestr(f"d{number}/", b"")
    for place in places:
        assert "more than 20 files" in _problems(place, Bounds(files=20))


def test_a_long_table_of_contents_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        for number in range(50):
            packed.writestr(f"{number}", b"")
    monkeypatch.setattr(zipfile, "ZipFile", None)
    assert "more than 20 files" in _problems(tmp_path / "a.zip", Bounds(files=20))


def test_a_zip_that_lies_about_its_sizes_is_stopped_as_it_grows(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("rank_0", bytes(10**6))
    assert "unpacks to more" in _problems(archive, Bounds(freely_expanded_bytes=1, expansion=10))


def test_a_damaged_zip_is_a_stated_problem(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("rank_0", b"some text " * 20)
    sound = archive.read_bytes()
    with Incident.empty() as incident:
        for at in range(0, len(sound), 7):
            data = bytearray(sound)
            data[at : at + 7] = bytes(byte ^ 0xFF for byte in data[at : at + 7])
            archive.write_bytes(data)
            _problems(archive)
            with pytest.raises(BadInput, match=r"a\.zip"):
                load([archive], incident, None)


def test_a_damaged_archive_beside_dumps_is_stated_and_the_rest_is_read(tmp_path: Path) -> None:
    for dump in DUMPS.iterdir():
        (tmp_path / dump.name).write_bytes(dump.read_bytes())
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04 damaged")
    with Incident.empty() as incident:
        load([tmp_path], incident, None)
        rows = incident.con.execute(
            "SELECT path, problem FROM recordings WHERE problem IS NOT NULL"
        )
        assert rows.fetchall() == [
            (f"{tmp_path}/a.zip", "cannot be unpacked: File is not a zip file")
        ]


def test_what_precedes_the_damage_is_read(tmp_path: Path) -> None:
    archive = _tar(tmp_path / "a.tar", "w")
    data = archive.read_bytes()
    archive.write_bytes(data[: len(data) // 2])
    with Incident.empty() as incident:
        load([archive], incident, None)
        rows = incident.con.execute("SELECT problem FROM recordings ORDER BY path").fetchall()
    assert (None,) in rows
    assert ("cannot be unpacked further: it ends within a file",) in rows or any(
        "unexpected end" in str(problem) for (problem,) in rows
    )
