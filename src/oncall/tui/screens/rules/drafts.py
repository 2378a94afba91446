"""Rulebooks being edited: the text on disk, the typed text and its known errors; and what is typed
of each kept as a draft in $XDG_STATE_HOME/oncall/drafts, so that a crash loses no text.

A draft is written while the reader types, and removed when its text is saved or discarded.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from oncall.core.errors import UsageError
from oncall.core.printable import file_name
from oncall.views.snapshot import DryRun, Problem


@dataclass(frozen=True)
class Buffer:
    """One rulebook. `saved` is the text in force, None if there is no such rulebook yet.

    problems: of `text`, None while not known
    tried: the dry run of exactly this `text`, None if there was none
    """

    name: str
    saved: str | None
    text: str
    problems: tuple[Problem, ...] | None = None
    tried: DryRun | None = None

    @property
    def unsaved(self) -> bool:
        return self.text != self.saved

    @property
    def may_be_saved(self) -> bool:
        """It has been shown what saving would change."""
        return self.tried is not None and not self.tried.problems

    def typed(self, text: str) -> Buffer:
        """With another text, that is unknown."""
        return self if text == self.text else replace(self, text=text, problems=None, tried=None)

    def checked(self, text: str, problems: tuple[Problem, ...]) -> Buffer:
        """What was found wrong with `text`; with what has been typed since, it says nothing."""
        return replace(self, problems=problems) if text == self.text else self

    def dry_run(self, text: str, run: DryRun) -> Buffer:
        return replace(self, tried=run, problems=run.problems) if text == self.text else self

    def written(self, text: str) -> Buffer:
        """`text` is what is on the disk now."""
        return replace(self, saved=text, tried=None)


class DraftStore:
    """Buffers by name; `open` is the one in the editor."""

    def __init__(self) -> None:
        self._buffers: dict[str, Buffer] = {}
        self.open: str | None = None

    @property
    def buffer(self) -> Buffer | None:
        """The rulebook in the editor."""
        return self._buffers.get(self.open) if self.open is not None else None

    def of(self, name: str) -> Buffer | None:
        return self._buffers.get(name)

    def unsaved(self) -> list[str]:
        """Rulebooks with a text that is not saved, of earlier sessions too."""
        typed = {name for name, buffer in self._buffers.items() if buffer.unsaved}
        known = {name for name, buffer in self._buffers.items() if not buffer.unsaved}
        return sorted(typed | (set(drafts()) - known))

    def put(self, buffer: Buffer) -> bool:
        """What is known of a rulebook has changed; returns whether it is saved or not anew."""
        before = self._buffers.get(buffer.name)
        self._buffers[buffer.name] = buffer
        return before is None or before.unsaved != buffer.unsaved

    def read(self, name: str, saved: str | None) -> Buffer | None:
        """A rulebook that was just read, or (saved None) of which there is only a draft. A draft
        that was kept goes before; None if there is neither."""
        draft = read_file(name)
        said = saved if draft is None else draft
        return None if said is None else Buffer(name, saved, said)

    def keep_draft(self) -> None:
        """What is typed is on the disk before anything else is done with it. Raises UsageError."""
        if (buffer := self.buffer) is None:
            return
        if buffer.unsaved:
            keep_file(buffer.name, buffer.text)
        else:
            drop_file(buffer.name)

    def forget(self, name: str) -> None:
        """Discard the typed text; the text on disk may be read again."""
        drop_file(name)
        self._buffers.pop(name, None)
        if self.open == name:
            self.open = None


# ----------------------------------------------------------------- files of drafts


def drafts_folder() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser() / "oncall" / "drafts"


def draft_file(name: str) -> Path:
    return drafts_folder() / f"{file_name(name)}.yaml"


def keep_file(name: str, text: str) -> Path:
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


def read_file(name: str) -> str | None:
    """The draft of that name, None if there is none that can be read."""
    try:
        return draft_file(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def drafts() -> tuple[str, ...]:
    """The rulebooks of which there are drafts."""
    with suppress(OSError):
        return tuple(sorted(path.stem for path in drafts_folder().glob("*.yaml")))
    return ()


def drop_file(name: str) -> None:
    """Remove the draft, if there is one."""
    with suppress(OSError):
        draft_file(name).unlink(missing_ok=True)
