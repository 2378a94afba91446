"""Lines to read with a cursor, as data: what a `ReadingList` shows. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal[
    "plain", "strong", "faint", "heading", "command", "key", "value", "string", "comment",
    "critical", "warning", "info", "healthy", "unseen",
]  # fmt: skip


@dataclass(frozen=True)
class Paragraph:
    """Text that folds under its lead: `parts` are (text, role); `aside` stands at the right of
    the first line. Not `folds`: cut where the line ends."""

    lead: str
    parts: tuple[tuple[str, Role], ...]
    aside: tuple[str, Role] = ("", "faint")
    folds: bool = True


@dataclass(frozen=True)
class Item:
    """Some paragraphs. `name` is its identity when others come and go; `reads`: the cursor stops.

    step: the step of a story whose rows lie behind it
    copy: what the copy key takes; `kind` says what that is
    rank: somebody to go and see
    """

    name: str
    paragraphs: tuple[Paragraph, ...]
    reads: bool = True
    step: int | None = None
    copy: str = ""
    kind: Literal["text", "command"] = "text"
    rank: int | None = None


def line(text: str, role: Role = "plain", lead: str = "") -> Paragraph:
    """A paragraph of one part."""
    return Paragraph(lead, ((text, role),))


def heading(title: str, name: str = "") -> Item:
    """A title with air above it."""
    return text(name or f"{title.lower()} heading", line(""), line(title, "heading"))


def text(name: str, *paragraphs: Paragraph) -> Item:
    """Something that the cursor passes over."""
    return Item(name, paragraphs, reads=False)


def readable(name: str, said: str, lead: str = " · ", role: Role = "plain") -> Item:
    """A line to stop at and to copy."""
    return Item(name, (line(said, role, lead),), copy=said)
