"""Where in a YAML file something is wrong: from a path of keys to line, column and caret.

Reading with positions is slow, so it happens only once something is wrong, or for
`oncall rules check`. ruamel.yaml is imported where it reads, as most runs read no YAML at all.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path as File
from typing import TYPE_CHECKING, Any, Literal

from oncall.core.errors import Problem

if TYPE_CHECKING:
    from ruamel.yaml.error import MarkedYAMLError
    from ruamel.yaml.nodes import ScalarNode

Path = tuple[str | int, ...]

LARGEST_BYTES = 1_000_000
DEEPEST = 100
MOST_VALUES = 1_000_000  # with every alias written out: a hundred times the largest that ships


@dataclass(frozen=True)
class Fault:
    """Something wrong at `where` (a path of keys), not yet placed in the file.

    `offset` is a 0-based character offset into the string value at `where`.
    """

    where: Path
    message: str
    on_key: bool = False
    offset: int | None = None
    length: int = 1


class Source:
    """A YAML text that can say where its parts are."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.lines = text.splitlines() or [""]

    @cached_property
    def root(self) -> Any:
        from ruamel.yaml.error import YAMLError

        try:
            return _in_python(self.text, "compose")
        except (YAMLError, RecursionError, ValueError):
            return None

    def at(self, line: int, column: int, message: str, length: int = 1) -> Problem:
        """A problem at a 0-based line and column."""
        line = min(line, len(self.lines) - 1)
        return Problem(self.path, line + 1, column + 1, message, self.lines[line], max(1, length))

    def place(self, fault: Fault) -> Problem:
        """The fault as a problem; a path that does not exist is placed at its nearest parent."""
        key, value, depth = self._find(fault.where)
        if fault.offset is not None and depth == len(fault.where) and _is_text(value):
            line, column = self._inside(value, fault.offset)
            return self.at(line, column, fault.message, fault.length)
        node = key if key is not None and (fault.on_key or depth < len(fault.where)) else value
        if node is None:
            return self.at(0, 0, fault.message)
        mark, end = node.start_mark, node.end_mark
        one_line = end.line == mark.line and _is_text(node)
        length = end.column - mark.column if one_line else 1
        return self.at(mark.line, mark.column, fault.message, length)

    def place_all(self, faults: Iterable[Fault]) -> list[Problem]:
        """All faults as problems, in the order of the file."""
        placed = [self.place(fault) for fault in faults]
        return sorted(placed, key=lambda problem: (problem.line, problem.column))

    def duplicates(self) -> list[Problem]:
        """Every key that is written twice in one mapping."""
        found: list[Problem] = []
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            if _is_list(node):
                waiting += node.value
            elif _is_mapping(node):
                first: dict[str, int] = {}
                for key, value in node.value:
                    waiting.append(value)
                    if not _is_text(key):
                        continue
                    if key.value in first:
                        where = key.start_mark
                        message = f"`{key.value}` is given twice (first on line {first[key.value]})"
                        found.append(self.at(where.line, where.column, message, len(key.value)))
                    first.setdefault(key.value, key.start_mark.line + 1)
        return found

    def _find(self, where: Path) -> tuple[Any, Any, int]:
        """Key node, value node and how many steps of the path exist."""
        key, node = None, self.root
        for depth, step in enumerate(where):
            pair = _child(node, step)
            if pair is None:
                return key, node, depth
            key, node = pair
        return key, node, len(where)

    def _inside(self, node: ScalarNode, offset: int) -> tuple[int, int]:
        """The file's line and column of a character of a scalar.

        YAML's folding changes white space only, so the n-th other character of the value is the
        n-th other character of the source, in every style.
        """
        wanted = len(re.sub(r"\s", "", node.value[:offset]))
        line, column = node.start_mark.line, node.start_mark.column
        if node.style in ("|", ">"):
            line, column = line + 1, 0
        elif node.style in ("'", '"'):
            column += 1
        while line < len(self.lines):
            text = self.lines[line]
            while column < len(text):
                if not text[column].isspace():
                    if wanted == 0:
                        return line, column
                    wanted -= 1
                    if (node.style == '"' and text[column] == "\\") or (
                        node.style == "'" and text[column : column + 2] == "''"
                    ):
                        column += 1  # an escaped character is two in the file, one in the value
                column += 1
            line, column = line + 1, 0
        return node.start_mark.line, node.start_mark.column


def _child(node: Any, step: str | int) -> tuple[Any, Any] | None:
    if _is_mapping(node):
        for key, value in node.value:
            if _is_text(key) and key.value == str(step):
                return key, value
    if isinstance(step, int):
        if not _is_list(node):
            return (None, node) if node is not None and step == 0 else None  # one, without a list
        return (None, node.value[step]) if step < len(node.value) else None
    if step == "text" and _is_text(node):
        return None, node  # one without a condition
    return None


def _is_text(node: Any) -> bool:
    return getattr(node, "id", None) == "scalar"


def _is_list(node: Any) -> bool:
    return getattr(node, "id", None) == "sequence"


def _is_mapping(node: Any) -> bool:
    return getattr(node, "id", None) == "mapping"


# --------------------------------------------------------------------- reading


def read_source(path: File) -> tuple[Source, list[Problem]]:
    """A file's text, and why it cannot be read if it cannot."""
    reason, text = "", ""
    try:
        if path.exists() and not path.is_file():  # reading a pipe would wait for ever
            reason = "not a file"
        else:
            with path.open("rb") as file:
                content = file.read(4 * LARGEST_BYTES + 1)  # a character has at most 4 bytes
            if len(content) > 4 * LARGEST_BYTES:
                reason = f"larger than {LARGEST_BYTES:,} characters"
            else:
                text = content.decode("utf-8")
    except UnicodeDecodeError:
        reason = "not UTF-8 text"
    except OSError as error:
        reason = error.strerror or str(error)
    problems = [Problem(str(path), 1, 1, f"cannot be read: {reason}")] if reason else []
    # As a text file is read: a line may end as on Windows.
    return Source(str(path), text.replace("\r\n", "\n").replace("\r", "\n")), problems


def read_yaml(source: Source) -> tuple[Any, list[Problem]]:
    """The document as plain Python, and every problem YAML itself has with it."""
    refused = _too_deep(source.text)
    if refused:
        return None, [source.at(0, 0, refused)]
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        data = YAML(typ="safe", pure=False).load(source.text)
    except (YAMLError, ValueError, RecursionError) as error:
        return _read_slowly(source, error)
    if _has_alias(source.text) and _values(data, {}) > MOST_VALUES:
        return None, [source.at(0, 0, f"aliases that stand for more than {MOST_VALUES:,} values")]
    return data, []


def _values(data: Any, known: dict[int, float]) -> float:
    """How many values there are with every alias written out; one within itself is endless."""
    parts: Iterable[Any] = ()
    if isinstance(data, dict):
        parts = data.values()
    elif isinstance(data, list):
        parts = data
    else:
        return 1
    if id(data) not in known:
        known[id(data)] = inf  # until it is counted
        known[id(data)] = 1 + sum(_values(part, known) for part in parts)
    return known[id(data)]


def _in_python(text: str, how: Literal["compose", "load"]) -> Any:
    """The text by ruamel.yaml's own parser, which knows places; what is written twice is allowed,
    an anchor without a warning, as by the parser in C."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.allow_duplicate_keys = True
    with warnings.catch_warnings(action="ignore"):
        return getattr(yaml, how)(text)


def _read_slowly(source: Source, error: Exception) -> tuple[Any, list[Problem]]:
    """After a failure: all duplicate keys at once, or the place of the one syntax error."""
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    duplicates = source.duplicates()
    if duplicates:
        try:
            return _in_python(source.text, "load"), duplicates
        except (YAMLError, ValueError, RecursionError):
            return None, duplicates
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if isinstance(error, MarkedYAMLError) and mark is not None:
        # Where nothing follows, the mark lies behind the last line: point at what was left open.
        opened = error.context_mark
        if mark.line >= len(source.lines) and opened is not None:
            mark = opened
        message = _yaml_message(source, error, mark)
        return None, [source.at(mark.line, mark.column, message)]
    return None, [source.at(0, 0, f"not YAML: {str(error).splitlines()[0]}")]


def _yaml_message(source: Source, error: MarkedYAMLError, mark: Any) -> str:
    line = source.lines[min(mark.line, len(source.lines) - 1)]
    if line[mark.column : mark.column + 1] == "\t" or re.match(r" *\t", line):
        return "a tab: YAML is indented with spaces"
    if re.search(r"[:\-]\s+\{\{", line):
        return "YAML reads `{{` as a mapping: text that begins with it must be in quotes"
    if "could not determine a constructor" in str(error.problem):
        return "a tag: a rulebook holds plain text, numbers, lists and mappings only"
    context = f" {error.context}" if error.context else ""
    begun = error.context_mark
    if begun is not None and begun.line != mark.line:
        context += f" that begins on line {begun.line + 1}"
    return f"not YAML: {error.problem}{context}"


def _too_deep(text: str) -> str | None:
    """Why a text must not reach the C parser, whose stack a hostile nesting would overrun."""
    if len(text) > LARGEST_BYTES:
        return f"larger than {LARGEST_BYTES:,} characters: not a rulebook"
    depth = deepest = 0
    for match in re.finditer(r"[\[{\]}]", text):
        depth += 1 if match[0] in "[{" else -1
        deepest = max(deepest, depth)
    indented = max((len(m[0]) for m in re.finditer(r"(?m)^[ ]*(?:[-?:] +)*", text)), default=0)
    if deepest > DEEPEST or indented > 4 * DEEPEST:
        return "nested too deeply: not a rulebook"
    return None


def aliases(source: Source) -> list[Problem]:
    """Every YAML alias. A shared branch would be drawn, shown and counted several times over."""
    if not _has_alias(source.text):
        return []
    from ruamel.yaml import YAML

    found = []
    for event in YAML(typ="safe", pure=True).parse(source.text):
        if type(event).__name__ == "AliasEvent":
            message = "an alias: write the part out where it is used"
            found.append(source.at(event.start_mark.line, event.start_mark.column, message))
    return found


def _has_alias(text: str) -> bool:
    return "&" in text and re.search(r"(?:^|[\s\[{,:-])\*\w", text) is not None
