"""Logs that are no file yet, as one: what grows, over rotation and truncation; standard input."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from oncall.core.errors import BadInput, Unreadable
from oncall.importers.bounds import DEFAULT, size
from oncall.importers.files import open_file

_CHUNK_BYTES = 1 << 20


class Followed:
    """A growing log; `copy` is what was seen of it so far."""

    def __init__(self, path: Path, copy: Path) -> None:
        self.path = path
        self.copy = copy
        self._offset = 0
        self._file_id: int | None = None
        self._left = min(DEFAULT.expanded_bytes, shutil.disk_usage(copy.parent).free // 2)
        self._most = self._left

    def read_on(self) -> bool:
        """Add what was written since the last call; whether there was anything. A log that is gone
        for the moment, as while it is rotated, gives nothing. Raises BadInput for more than a
        recording holds or the disk has room for, OSError where the copy cannot be written; the next
        call then goes on from where this one began."""
        try:
            file = open_file(self.path)
        except Unreadable:
            return False
        with file:
            state = os.fstat(file.fileno())
            if state.st_ino != self._file_id or state.st_size < self._offset:
                self._file_id, self._offset = state.st_ino, 0
            file.seek(self._offset)
            before = left = self._left
            with self.copy.open("ab") as copy:
                copy.truncate(self._most - left)  # a disk that was full may have taken a part
                while data := file.read(_CHUNK_BYTES):
                    left -= len(data)
                    if left < 0:
                        raise BadInput(str(self.path), f"more than {size(self._most)} to follow")
                    copy.write(data)
            self._left, self._offset = left, self._offset + before - left
        # Years that stamps leave out are taken from when the log was written.
        os.utime(self.copy, ns=(state.st_mtime_ns, state.st_mtime_ns))
        return self._left < before


@contextmanager
def followed(path: Path) -> Iterator[Followed]:
    """The log at `path` from its beginning; its copy is gone afterwards. Raises BadInput where
    there is no file."""
    try:
        open_file(path).close()
    except Unreadable as error:
        raise BadInput(str(path), str(error)) from error
    with tempfile.TemporaryDirectory(prefix="oncall-") as room:
        # A job is called after the folder of its recordings.
        place = Path(room, path.resolve().parent.name or "job", path.name)
        place.parent.mkdir()
        place.touch()
        yield Followed(path, place)


@contextmanager
def as_file(stream: BinaryIO) -> Iterator[Path]:
    """What the stream gives to its end, as a file that is gone afterwards. Raises BadInput for
    nothing, and for more than a recording holds or the disk has room for; errors within name
    standard input, not the file."""
    with tempfile.TemporaryDirectory(prefix="oncall-") as room:
        # A job is called after the folder of its recordings.
        place = Path(room, "stdin", "stdin.log")
        place.parent.mkdir()
        left = most = min(DEFAULT.expanded_bytes, shutil.disk_usage(room).free // 2)
        with place.open("wb") as file:
            while data := stream.read(_CHUNK_BYTES):
                left -= len(data)
                if left < 0:
                    raise BadInput("-", f"more than {size(most)}; give a file instead")
                file.write(data)
            if not file.tell():
                raise BadInput("standard input", "empty")
        try:
            yield place
        except BadInput as error:
            where = error.place.replace(str(place), "standard input")
            if where == error.place:
                raise
            raise BadInput(where, error.problem) from error
