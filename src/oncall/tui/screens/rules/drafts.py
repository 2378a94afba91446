"""Rulebooks that are not saved yet, kept in $XDG_STATE_HOME/oncall/drafts: a crash loses no text.

A draft is written while the reader types, and removed when its text is saved or discarded.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from oncall.core.errors import UsageError
from oncall.core.printable import file_name


def drafts_folder() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser() / "oncall" / "drafts"


def draft_file(name: str) -> Path:
    return drafts_folder() / f"{file_name(name)}.yaml"


def keep(name: str, text: str) -> Path:
    """Write the draft, whole or not at all. Raises UsageError where nothing can be written."""
    path = draft_file(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside = path.with_suffix(".part")
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write the draft {path}: {error.strerror}") from None
    return path


def read(name: str) -> str | None:
    """The draft of that name, None if there is none that can be read."""
    try:
        return draft_file(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def names() -> tuple[str, ...]:
    """The rulebooks of which there are drafts."""
    with suppress(OSError):
        return tuple(sorted(path.stem for path in drafts_folder().glob("*.yaml")))
    return ()


def drop(name: str) -> None:
    """Remove the draft, if there is one."""
    with suppress(OSError):
        draft_file(name).unlink(missing_ok=True)
