"""Archives of recordings: what engineers mail each other is unpacked for the time of the import."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from oncall.errors import BadInput

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".zip")
# An archive may hold far more than its size tells; a job's dumps are well below this.
MOST_BYTES = 16 * 2**30
MOST_FILES = 200_000


@contextmanager
def unpacked(paths: Sequence[Path]) -> Iterator[tuple[list[Path], dict[Path, Path]]]:
    """The paths with every archive among them, or inside their folders, unpacked beside the rest.

    Yields the paths to read and, for each temporary folder, the archive it stands for; the
    folders are gone afterwards. Raises BadInput for an archive that is damaged, too large, or
    would write outside its folder.
    """
    archives = [archive for path in paths for archive in _archives(path)]
    if not archives:
        yield list(paths), {}
        return
    with tempfile.TemporaryDirectory(prefix="oncall-") as room:
        origin: dict[Path, Path] = {}
        for number, archive in enumerate(archives):
            # The folder is called after the archive, because a job is called after its folder.
            folder = Path(room, str(number), _stem(archive))
            folder.mkdir(parents=True)
            _unpack(archive, folder)
            origin[folder] = archive
        yield [path for path in paths if path not in archives] + list(origin), origin


def _archives(path: Path) -> Iterator[Path]:
    if path.is_dir():
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            inside = (Path(folder, name) for name in sorted(names))
            yield from (file for file in inside if _is_archive(file))
    elif _is_archive(path):
        yield path


def _is_archive(path: Path) -> bool:
    return path.name.lower().endswith(SUFFIXES) and path.is_file()


def _stem(archive: Path) -> str:
    suffix = max((s for s in SUFFIXES if archive.name.lower().endswith(s)), key=len)
    return archive.name[: -len(suffix)] or "archive"


def _unpack(archive: Path, folder: Path) -> None:
    try:
        if archive.name.lower().endswith(".zip"):
            _unzip(archive, folder)
        else:
            _untar(archive, folder)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, RuntimeError) as error:
        raise BadInput(str(archive), f"cannot be unpacked: {error}") from error


def _untar(archive: Path, folder: Path) -> None:
    budget = _Budget(archive)
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isfile():
                budget.take(member.size)
                tar.extract(member, folder, filter="data")


def _unzip(archive: Path, folder: Path) -> None:
    budget = _Budget(archive)
    with zipfile.ZipFile(archive) as packed:
        for entry in packed.infolist():
            if not entry.is_dir() and not stat.S_ISLNK(entry.external_attr >> 16):
                budget.take(entry.file_size)
                packed.extract(entry, folder)


class _Budget:
    """Counts what an archive unpacks to, and stops a bomb before it fills the disk."""

    def __init__(self, archive: Path) -> None:
        self.archive = archive
        self.bytes = min(MOST_BYTES, shutil.disk_usage(tempfile.gettempdir()).free // 2)
        self.files = MOST_FILES

    def take(self, size: int) -> None:
        self.bytes -= size
        self.files -= 1
        if self.bytes < 0 or self.files < 0:
            raise BadInput(
                str(self.archive),
                "unpacks to more than the disk or a recording should hold; unpack it yourself",
            )
