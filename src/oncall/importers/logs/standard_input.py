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
    more than a recording holds or the disk has room for."""
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
        yield place
