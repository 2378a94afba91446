"""Where an archive lies: a folder, often on a shared file system, or a bucket of S3."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import duckdb

from oncall.core.errors import BadInput, UsageError
from oncall.evidence.statements import connect

_S3 = "s3://"


class Place(Protocol):
    """What an archive needs of a store. Paths are relative to the archive, with `/`."""

    def listed(self, below: str = "") -> Iterator[tuple[str, int]]:
        """The files below a folder, with their sizes in bytes; nothing that is no file."""

    def put(self, file: Path, path: str) -> None:
        """Copy a file there, at once or not at all; what has that path is replaced."""

    def remove(self, path: str) -> None:
        """Delete a file; one that is already gone is no error."""

    def set_aside(self, path: str) -> str:
        """Rename a file so that it is no longer read; its new path."""

    def address(self, path: str) -> str:
        """How DuckDB names the file."""


class Folder:
    """A folder, shared or not."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    def listed(self, below: str = "") -> Iterator[tuple[str, int]]:
        for folder, _, names in os.walk(self._root / below):
            for name in sorted(names):
                path = Path(folder, name)
                with suppress(OSError):  # another writer compacts
                    found = path.stat()
                    if stat.S_ISREG(found.st_mode):  # a pipe would be waited for
                        yield path.relative_to(self._root).as_posix(), found.st_size

    def put(self, file: Path, path: str) -> None:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
        try:
            with part.open("xb") as out:
                out.write(file.read_bytes())
                out.flush()
                os.fsync(out.fileno())
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)

    def remove(self, path: str) -> None:
        (self._root / path).unlink(missing_ok=True)
        for folder in list((self._root / path).parents)[:4]:
            with suppress(OSError):  # not empty
                folder.rmdir()

    def set_aside(self, path: str) -> str:
        (self._root / path).rename(self._root / f"{path}.damaged")
        return f"{path}.damaged"

    def address(self, path: str) -> str:
        return str(self._root / path)


class Bucket:
    """A bucket of S3, or a prefix in one. Credentials and endpoint are boto's: AWS_* variables."""

    def __init__(self, url: str) -> None:
        self._root = url.removeprefix(_S3).rstrip("/")
        self._files = _s3()

    def listed(self, below: str = "") -> Iterator[tuple[str, int]]:
        found: dict[str, Any] = self._files.find(f"{self._root}/{below}", detail=True)
        for name, one in found.items():
            yield name.removeprefix(f"{self._root}/"), one["size"]

    def put(self, file: Path, path: str) -> None:
        # An object appears whole when its upload is complete.
        self._files.pipe_file(f"{self._root}/{path}", file.read_bytes())

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._files.rm_file(f"{self._root}/{path}")

    def set_aside(self, path: str) -> str:
        self._files.mv(f"{self._root}/{path}", f"{self._root}/{path}.damaged")
        return f"{path}.damaged"

    def address(self, path: str) -> str:
        return f"{_S3}{self._root}/{path}"


def _s3() -> Any:
    try:
        import s3fs
    except ImportError:
        raise UsageError("archives on S3 need s3fs: pip install 'oncall-console[s3]'") from None
    return s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)


def place_at(where: str, *, create: bool = False) -> Place:
    """The archive at a folder or `s3://BUCKET/PREFIX`. Raises BadInput if the folder is none."""
    if where.startswith(_S3):
        return Bucket(where)
    folder = Path(where).expanduser()
    if not folder.is_dir() and not (create and not folder.exists() and folder.parent.is_dir()):
        raise BadInput(where, "no such folder; `oncall archive add` makes one")
    return Folder(folder)


def connection(files: Sequence[str]) -> duckdb.DuckDBPyConnection:
    """A connection that can read these files; tables on it must be temporary ones."""
    con = _database(any(file.startswith(_S3) for file in files)).cursor()
    con.execute("SET enable_progress_bar = false")
    return con


@cache
def _database(with_s3: bool) -> duckdb.DuckDBPyConnection:
    """One database a process: making one takes longer than most queries."""
    con = connect()
    con.execute("SET GLOBAL preserve_insertion_order = false")
    if with_s3:
        con.register_filesystem(_s3())
    return con


Rows = list[tuple[Any, ...]]
Select = Callable[[Sequence[str]], str]  # of the addresses of files


def computed_here(sql: str, files: Sequence[str], threads: int | None = None) -> Rows:
    """The rows of one group, by so many threads; all cores by default. Raises duckdb.Error if a
    file cannot be read."""
    with connection(files) as con:
        if threads is not None:
            con.execute(f"SET threads = {threads}")
        return con.execute(sql).fetchall()
