"""What texts of rulebooks say, YAML and SQL, kept from one run to the next: reading them is a tenth
of a diagnosis.

One file for each text in $XDG_CACHE_HOME/oncall/rulebooks (~/.cache), named by the hash of the
text and of the program's version: its first line is the hash of the rest, which is JSON. What is
damaged, or not the user's own, counts as not there.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from oncall import __version__

MOST_KEPT = 2000  # files of some 15 KB: five times the rulebooks and facts that ship


def kept(text: str) -> Any:
    """The data of a text that was read before, else None."""
    folder = _folder()
    if folder is None:
        return None
    try:
        with (folder / _name(text)).open("rb") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return None
            digest, _, content = file.read().partition(b"\n")
        return json.loads(content) if digest == _hash(content) else None
    except (OSError, ValueError, RecursionError):
        return None


def keep(text: str, data: Any) -> None:
    """Keep the data of a text, if JSON can say it and there is a place for it."""
    folder = _folder()
    if folder is None:
        return
    with suppress(OSError, TypeError, ValueError, RecursionError):
        content = json.dumps(data).encode()
        if json.loads(content) != data:  # a key that is a number, or NaN
            return
        # Another process may write the same: each a file of its own, and the last one stays.
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as part:
            part.write(_hash(content) + b"\n" + content)
        Path(part.name).replace(folder / _name(text))
        files = list(folder.iterdir())
        if len(files) > MOST_KEPT:
            for path in sorted(files, key=lambda path: path.stat().st_mtime)[: MOST_KEPT // 2]:
                path.unlink(missing_ok=True)


@cache
def _folder() -> Path | None:
    """The folder, made if need be; None if others may write there, or it cannot be made."""
    with suppress(OSError, RuntimeError):  # RuntimeError: the user has no home
        home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        nearest = next(place for place in (home, *home.parents) if place.exists())
        if nearest.stat().st_uid != os.geteuid():  # with sudo, the home of who called it
            return None
        folder = home / "oncall" / "rulebooks"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        own = found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        return folder if own and stat.S_ISDIR(found.st_mode) else None
    return None


def _name(text: str) -> str:
    return sha256(f"{__version__}\n{text}".encode()).hexdigest()


def _hash(content: bytes) -> bytes:
    return sha256(content).hexdigest().encode()
