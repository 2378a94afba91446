"""Which characters of a rulebook's line are what: YAML with SQL in it, a line at a time. Pure.

Not a parser: it must not fail on text that is half typed. Within SQL a word is a keyword or it
is not; that is enough to find one's way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from oncall.tui.models.reading import Role

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
    """What to colour in a line; later ones lie above earlier ones."""
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
