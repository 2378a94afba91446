"""Lines to read with a cursor, as data: what a `ReadingList` shows; and the roles of what stands in
a line of a rulebook. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
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


Span = tuple[int, int, Role]  # from, to, in characters

_KEY = re.compile(r"^(\s*(?:- )*)([A-Za-z_][\w.-]*)(:)(?=\s|$)")
_INLINE_KEY = re.compile(r"(?<=[{,]) *([A-Za-z_][\w.-]*)(?=:\s)")
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$|--\s.*$")
_TEXT = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:''|[^'])*'")
_SLOT = re.compile(r"\{\{.*?\}\}|\$[A-Za-z_]\w*")
_NUMBER = re.compile(
    r"(?<![\w.$])[0-9][0-9_,.]*(?:\s?(?:ns|us|µs|ms|s|min|h|d|%|[kMGT]?i?B(?:/s)?))?(?![\w.])"
)
_TEST = re.compile(r"\b(?:any|none)\((\w+)\)")
_SQL = re.compile(
    r"\b(?:SELECT|FROM|WHERE|JOIN|LEFT|RIGHT|INNER|OUTER|FULL|CROSS|ASOF|ON|USING|GROUP|ORDER|BY|"
    r"HAVING|QUALIFY|LIMIT|AS|AND|OR|NOT|IN|IS|NULL|CASE|WHEN|THEN|ELSE|END|WITH|RECURSIVE|UNION|"
    r"ALL|DISTINCT|OVER|PARTITION|FILTER|EXISTS|BETWEEN|LIKE|DESC|ASC|EXCLUDE|REPLACE|ROWS|RANGE|"
    r"UNNEST|LATERAL|INTERSECT|EXCEPT|TRUE|FALSE|VALUES|CAST|INTERVAL|WINDOW|PRECEDING|FOLLOWING)\b"
)


def spans(line: str) -> list[Span]:
    """What to colour in a line of YAML with SQL in it; later ones lie above earlier ones. Not a
    parser: it must not fail on text that is half typed."""
    found: list[Span] = []
    found.extend(_all(_SQL, line, "info"))
    found.extend(_all(_NUMBER, line, "value"))
    found.extend(_all(_TEST, line, "command"))
    found.extend(_all(_TEXT, line, "string"))
    if key := _KEY.match(line):
        found.append((key.start(2), key.end(2), "key"))
    found.extend((m.start(1), m.end(1), "key") for m in _INLINE_KEY.finditer(line))
    found.extend(_all(_SLOT, line, "value"))
    found.extend(_comment(line, [(a, b) for a, b, _ in _all(_TEXT, line, "string")]))
    return found


def _all(pattern: re.Pattern[str], line: str, role: Role) -> Iterator[Span]:
    return ((match.start(), match.end(), role) for match in pattern.finditer(line))


def _comment(line: str, texts: list[tuple[int, int]]) -> Iterator[Span]:
    """A comment runs to the end, unless its sign stands within quotes."""
    for match in _COMMENT.finditer(line):
        if not any(start < match.start() < end for start, end in texts):
            yield match.start(), len(line), "comment"
            return
