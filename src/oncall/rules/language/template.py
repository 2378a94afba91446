"""Narratives: sentences with `{{ absent | ranks }}`, `{{ stuck.seq }}` or `{{ hang_after }}`.

The language is names, columns and filters, and nothing else: no statement, call, index or
attribute chain exists in it, so there is nothing to escape from, and every name can be checked
before the night it is needed.

    sentence  = text { "{{" name [ "." column ] { "|" filter [ "('" word "')" ] } "}}" text }
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any

from oncall.core.nodeset import fold_hosts, fold_ranks
from oncall.core.printable import LONGEST_VALUE, clean, shell_word
from oncall.core.units import (
    Quantity,
    counted,
    format_bytes,
    format_duration,
    format_number,
    format_quantity,
    format_rate,
)

UNKNOWN = "unknown"
LONGEST_FOLD = 56  # characters of a folded list that still reads as one phrase
_PLAIN_WORDS = re.compile(r"(?:[\w@%+=:,./][\w@%+=:,./-]*(?: |$))*", re.ASCII)
# A whole command: options may follow its own name, and ssh's host.
_PLAIN_COMMAND = re.compile(
    r"(?:ssh \w[\w.-]* )?(?!ssh )[\w./][\w./-]*(?: [\w@%+=:,./-]+)*", re.ASCII
)
LONGEST_LIST = 5  # distinct values listed before "and 3 more"

_MARK = re.compile(r"\{\{|\{%|\{#")
_SLOT = re.compile(
    r"\s*(?P<name>[A-Za-z_]\w*)(?:\.(?P<column>[A-Za-z_]\w*))?"
    r"(?P<filters>(?:\s*+\|\s*+[A-Za-z_]\w*+(?:\(\s*(?:'[\w ]*'|\"[\w ]*\")\s*\))?+)*+)\s*"
)
_FILTER = re.compile(r"\|\s*([A-Za-z_]\w*)(?:\(\s*['\"]([\w ]*)['\"]\s*\))?")


class TemplateError(Exception):
    """A sentence that cannot be read: what, and where in it (0-based offset and length)."""

    def __init__(self, message: str, offset: int, length: int = 1) -> None:
        super().__init__(message)
        self.offset = offset
        self.length = max(1, length)


@dataclass(frozen=True)
class Rows:
    """The rows of a fact for one case; `count` is exact even if `rows` was cut."""

    columns: Mapping[str, int]
    rows: Sequence[tuple[Any, ...]]
    count: int

    def values(self, column: str) -> list[Any]:
        """A column's values without NULLs, in row order; [] if there is no such column."""
        index = self.columns.get(column)
        return [] if index is None else [r[index] for r in self.rows if r[index] is not None]

    def having(self, column: str, values: Collection[Any]) -> Rows:
        """Those rows that have one of the values in a column."""
        place = self.columns[column]
        rows = [row for row in self.rows if row[place] in values]
        return Rows(self.columns, rows, self.count if len(rows) == len(self.rows) else len(rows))


@dataclass(frozen=True)
class Slot:
    """One `{{ ... }}`: what it names and how it is shown. `offset` is where it starts."""

    name: str
    column: str | None
    filters: tuple[tuple[str, str | None], ...]
    offset: int
    length: int

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads if `name` is a fact."""
        if self.column:
            return (self.column,)
        implied = {"ranks": "rank", "hosts": "node"}
        return tuple(implied[name] for name, _ in self.filters[:1] if name in implied)

    @property
    def noun(self) -> str:
        """What stands in a command for a value that cannot be typed."""
        return next(
            (name for name, _ in self.filters if name in _OF_MANY), self.column or self.name
        )


@dataclass(frozen=True)
class Template:
    """A parsed sentence: literal text and slots in turn."""

    parts: tuple[str | Slot, ...]

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(part for part in self.parts if isinstance(part, Slot))

    def render(self, values: Mapping[str, Any]) -> str:
        """The sentence for one case. `values`: name -> Rows (fact), Quantity (param) or a value."""
        shown = "".join(
            part if isinstance(part, str) else _show(part, values[part.name]) for part in self.parts
        )
        return self._sentence(shown)

    def render_advice(self, values: Mapping[str, Any]) -> str:
        """As `render`; what stands in backticks may be typed into a shell, so there a value is one
        word of a command, and elsewhere no value begins a command."""
        shown = own = ""  # `own`: without values, whose quotes are not the sentence's
        for part in self.parts:
            if isinstance(part, str):
                shown += part
                own += part
                continue
            value = _show(part, values[part.name])
            if own.count("`") % 2 == 0:
                shown += value.replace("`", "'")
            elif part.filters == _OF_A_COMMAND:
                shown += value if own.endswith("`") else _words(value)
            else:
                shown += _argument(value, part.noun, own.rpartition("`")[2])
        return self._sentence(shown)

    def _sentence(self, shown: str) -> str:
        shown = " ".join(shown.split())
        first = self.parts[0] if self.parts else ""
        ranks = isinstance(first, Slot) and first.filters[:1] == (("ranks", None),)
        if ranks or shown.startswith(_UNNAMED["hosts"]):
            shown = shown[:1].upper() + shown[1:]  # "Rank 3 stopped ...": the word is ours
        return shown


@lru_cache(maxsize=4096)
def parse_template(text: str) -> Template:
    """The sentence's template. Raises TemplateError at the first thing that cannot be read."""
    parts: list[str | Slot] = []
    at = 0
    while mark := _MARK.search(text, at):
        if mark[0] != "{{":
            raise TemplateError(
                "a sentence has no statements or comments: put the condition into a fact "
                "and ask for it in the tree",
                mark.start(),
                2,
            )
        end = text.find("}}", mark.end())
        if end < 0:
            raise TemplateError("`{{` is never closed with `}}`", mark.start(), 2)
        parts += [text[at : mark.start()], _slot(text, mark.end(), end)]
        at = end + 2
    parts.append(text[at:])
    return Template(tuple(part for part in parts if part != ""))


def _slot(text: str, start: int, end: int) -> Slot:
    inside = text[start:end]
    match = _SLOT.fullmatch(inside)
    left = len(inside) - len(inside.lstrip())
    if not match:
        raise TemplateError(
            f"`{inside.strip()}` is not a name, a fact.column, or either with filters such as "
            "`absent | ranks`",
            start + left,
            len(inside.strip()),
        )
    filters: list[tuple[str, str | None]] = []
    for found in _FILTER.finditer(match["filters"]):
        name, word = found[1], found[2]
        offset = start + match.start("filters") + found.start(1)
        if name not in FILTERS:
            near = nearest(name, FILTERS)
            raise TemplateError(f"unknown filter `{name}`{near}", offset, len(name))
        if word is not None and name != "count":
            raise TemplateError(f"the filter `{name}` takes no argument", offset, len(name))
        filters.append((name, word))
    if len(filters) > 1:
        raise TemplateError(
            "only one filter is allowed: its result is text", start + left, len(inside.strip())
        )
    length = len(match["name"]) + (len(match["column"]) + 1 if match["column"] else 0)
    return Slot(match["name"], match["column"], tuple(filters), start + left, length)


def nearest(word: str, known: Any) -> str:
    """` (did you mean `x`?)`, or nothing if no known name is near."""
    import difflib

    cutoff = 0.6 if len(word) > 3 else 0.5
    found = difflib.get_close_matches(word, [str(name) for name in known], n=1, cutoff=cutoff)
    return f" (did you mean `{found[0]}`?)" if found else ""


# --------------------------------------------------------------------- showing


def _show(slot: Slot, value: Any) -> str:
    if isinstance(value, Quantity):
        if not slot.filters:
            return format_quantity(value)
        value = value.value
    name, word = slot.filters[0] if slot.filters else (None, None)
    if isinstance(value, Rows):
        if name == "count" and slot.column is None:
            return counted(value.count, word)
        values = value.values(slot.column or (slot.columns[0] if slot.columns else ""))
        if name in _UNNAMED and not values:
            return _UNNAMED[name][value.count > 1]
    else:
        values = [] if value is None else [value]
    if name == "count":
        return counted(len(set(map(_hashable, values))), word)
    if name in _OF_MANY:
        return _try(_OF_MANY[name], values, _listed)
    if not values:
        return UNKNOWN
    if name is None:
        return plain(values[0], slot.column or slot.name)
    return _try(_OF_ONE[name], values[0], plain)


def _try(show: Callable[[Any], str], value: Any, otherwise: Callable[[Any], str]) -> str:
    """A check refuses what a filter cannot show; unchecked or not finite, it is shown as it is."""
    try:
        return show(value)
    except (TypeError, ValueError, ArithmeticError):
        return otherwise(value)


def plain(value: Any, column: str = "") -> str:
    """A value as text without a filter: ids as they are, communicators in hex."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return hex_id(value) if column == "comm" else str(value)
    if isinstance(value, (float, Decimal)):
        return format_number(float(value))
    if isinstance(value, (list, tuple)):
        return _listed(list(value))
    return clean(str(value), LONGEST_VALUE)


def _argument(value: str, noun: str, command: str) -> str:
    """A value as one argument in `command`, or `noun` in capitals where that cannot be or nothing
    is known. What the sentence itself quotes, and what ssh hands to another shell, takes only what
    needs no quotes."""
    word = noun.upper() if value == UNKNOWN else shell_word(value, noun)
    in_quotes = any(command.count(mark) % 2 for mark in "'\"")
    as_it_is = in_quotes or command.lstrip().startswith("ssh ")
    return noun.upper() if "`" in word or (as_it_is and word != value) else word


def _command(value: Any) -> str:
    """Words of a command as they are; nothing if a shell would read anything into them."""
    return str(value) if _PLAIN_COMMAND.fullmatch(str(value)) else _words(value)


def _words(value: Any) -> str:
    """The same of words behind others, which may then not be options."""
    return str(value) if _PLAIN_WORDS.fullmatch(str(value)) else ""


def hex_id(value: Any) -> str:
    """A 64-bit id as NCCL prints it: 0x and 16 digits; anything else as it is."""
    return f"{value:#018x}" if isinstance(value, int) else plain(value)


def _folded(values: list[Any], word: str, fold: Callable[[Any], str], no_word: bool = False) -> str:
    distinct = set(values)
    if not distinct:
        return f"no {word}"
    text = fold(distinct)
    if len(text) > LONGEST_FOLD:
        cut = text.rfind(",", 0, LONGEST_FOLD)
        kept = text[: cut if cut > 0 else LONGEST_FOLD]
        # A cut inside brackets must not leave them open.
        kept += ",…" + ("]" if kept.count("[") > kept.count("]") else "")
        text = f"{kept} ({format_number(len(distinct))} {word}s)"
    return text if no_word else f"{word}{'s' if len(distinct) > 1 else ''} {text}"


def _listed(values: list[Any]) -> str:
    once: dict[Any, Any] = {}
    for value in values:
        once.setdefault(_hashable(value), value)
    distinct = [plain(value) for value in once.values()]
    if not distinct:
        return "none"
    more = len(distinct) - LONGEST_LIST
    if more > 0:
        return f"{', '.join(distinct[:LONGEST_LIST])} and {more} more"
    *most, last = distinct
    return f"{', '.join(most)} and {last}" if most else last


def _flat(values: list[Any]) -> list[Any]:
    """The values, of those that are lists their members."""
    return [one for value in values for one in (value if isinstance(value, list) else [value])]


def _hashable(value: Any) -> Any:
    """What distinguishes a value of SQL from others: lists, structs and maps come as what has no
    hash."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_hashable, value))
    if isinstance(value, dict):
        return dict, tuple((_hashable(key), _hashable(each)) for key, each in value.items())
    return value


def _fold_nodes(names: Any) -> str:
    return fold_hosts(plain(name) for name in names)


_OF_MANY: dict[str, Callable[[list[Any]], str]] = {
    "ranks": lambda values: _folded(_flat(values), "rank", fold_ranks),
    "hosts": lambda values: _folded(values, "host", _fold_nodes, no_word=True),
    "list": _listed,
}
_OF_ONE: dict[str, Callable[[Any], str]] = {
    "duration": format_duration,
    "bytes": format_bytes,
    "rate": format_rate,
    "hex": hex_id,
    "percent": lambda value: f"{format_number(round(value * 100, 1))} %",
    "number": format_number,
    "command": _command,
}
_OF_A_COMMAND = (("command", None),)
# Of one row, of several.
_UNNAMED = {"hosts": ("its host", "their hosts"), "ranks": ("a process", "processes")}

NUMERIC = frozenset(_OF_ONE) - {"hex", "command"}
FILTERS = frozenset(_OF_MANY) | frozenset(_OF_ONE) | {"count"}
