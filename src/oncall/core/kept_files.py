"""What takes long to work out, kept from one run of the program to the next.

One file for each thing in a folder of $XDG_CACHE_HOME/oncall (~/.cache), named by the hash of what
it was worked out from and of the program's version: its first line is the hash of that name and of
the rest, which is JSON. What is damaged, another's, or not the user's own counts as not there.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from oncall import __version__
from oncall.core.json_text import json_of


@dataclass(frozen=True)
class KeptFiles:
    """The files of one kind: their folder, and how many there may be before the oldest go."""

    folder: str
    most: int

    def get(self, source: str) -> Any:
        """What was kept of this source, else None."""
        folder = folder_of(self.folder)
        if folder is None:
            return None
        try:
            with (folder / _name(source)).open("rb") as file:
                if os.fstat(file.fileno()).st_uid != os.geteuid():
                    return None
                digest, _, content = file.read().partition(b"\n")
            return json_of(content) if digest == _hash(source, content) else None
        except (OSError, ValueError):
            return None

    def keep(self, source: str, data: Any) -> None:
        """Keep the data of a source, if JSON can say it and there is a place for it."""
        folder = folder_of(self.folder)
        if folder is None:
            return
        with suppress(OSError, TypeError, ValueError, RecursionError):
            content = json.dumps(data).encode()
            if json.loads(content) != data:  # a key that is a number, or NaN
                return
            # Another process may write the same: each a file of its own, and the last one stays.
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as part:
                part.write(_hash(source, content) + b"\n" + content)
            Path(part.name).replace(folder / _name(source))
            files = list(folder.iterdir())
            if len(files) > self.most:
                for path in sorted(files, key=lambda path: path.stat().st_mtime)[: -self.most // 2]:
                    path.unlink(missing_ok=True)


@cache
def folder_of(kind: str) -> Path | None:
    """The folder, made if need be; None if others may write there, or it cannot be made."""
    with suppress(OSError, RuntimeError):  # RuntimeError: the user has no home
        home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        nearest = next(place for place in (home, *home.parents) if place.exists())
        if nearest.stat().st_uid != os.geteuid():  # with sudo, the home of who called it
            return None
        folder = home / "oncall" / kind
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        own = found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        return folder if own and stat.S_ISDIR(found.st_mode) else None
    return None


def _name(source: str) -> str:
    return sha256(f"{__version__}\n{source}".encode()).hexdigest()


def _hash(source: str, content: bytes) -> bytes:
    """Of both: a file that came under the name of another source is not believed."""
    return sha256(_name(source).encode() + content).hexdigest().encode()
