"""Standard input as a file: `kubectl logs ... | oncall diagnose -`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from oncall.core.errors import BadInput
from oncall.importers.bounds import DEFAULT, Bounds, size

_CHUNK_BYTES = 1 << 20


@contextmanager
def as_file(stream: BinaryIO, bounds: Bounds = DEFAULT) -> Iterator[Path]:
    """What the stream gives to its end, as a file that is gone afterwards. Raises BadInput for
    nothing, and for more than a recording holds or the disk has room for; errors within name
    standard input, not the file."""
    with tempfile.TemporaryDirectory(prefix="oncall-") as room:
        # A job is called after the folder of its recordings.
        place = Path(room, "stdin", "stdin.log")
        place.parent.mkdir()
        left = most = min(bounds.expanded_bytes, shutil.disk_usage(room).free // 2)
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
