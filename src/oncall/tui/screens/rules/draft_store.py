"""The rulebooks being edited: what is typed of each, and its draft on the disk."""

from __future__ import annotations

from oncall.tui.screens.rules import drafts
from oncall.tui.screens.rules.buffer import Buffer


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
        return sorted(typed | (set(drafts.names()) - known))

    def put(self, buffer: Buffer) -> bool:
        """What is known of a rulebook has changed; returns whether it is saved or not anew."""
        before = self._buffers.get(buffer.name)
        self._buffers[buffer.name] = buffer
        return before is None or before.unsaved != buffer.unsaved

    def read(self, name: str, saved: str | None) -> Buffer | None:
        """A rulebook that was just read, or (saved None) of which there is only a draft. A draft
        that was kept goes before; None if there is neither."""
        draft = drafts.read(name)
        said = saved if draft is None else draft
        return None if said is None else Buffer(name, saved, said)

    def keep_draft(self) -> None:
        """What is typed is on the disk before anything else is done with it. Raises UsageError."""
        if (buffer := self.buffer) is None:
            return
        if buffer.unsaved:
            drafts.keep(buffer.name, buffer.text)
        else:
            drafts.drop(buffer.name)

    def forget(self, name: str) -> None:
        """Discard the typed text; the text on disk may be read again."""
        drafts.drop(name)
        self._buffers.pop(name, None)
        if self.open == name:
            self.open = None
