"""What people write: rulebooks, their sentences, SQL and tests."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from oncall.core.errors import RulebookError
from oncall.node.store.database import connect
from oncall.rules.language.load import parse_leniently, shipped_folder
from oncall.rules.language.positions import Source
from oncall.rules.language.sql import FactSql, read_sql
from oncall.rules.language.template import Rows, TemplateError, parse_template
from oncall.rules.language.tests_file import read_tests

from ..registry import target

_SENTENCE = re.compile(r'"([^"\n]*\{\{[^"\n]*)"')
_STRANGE = (
    *(None, "", "[red]gpu[0]", "\u202egpu", "\x1b[2J", 2**80, -(2**63), float("nan"), 1e308),
    *(b"\xff", ["a", None], {"x": 1}, True, "gpu001", 3),
)


def _books() -> list[bytes]:
    files = sorted(shipped_folder().glob("*.yaml"))
    return [path.read_bytes() for path in files if ".test." not in path.name]


def _test_files() -> list[bytes]:
    return [path.read_bytes() for path in sorted(shipped_folder().glob("*.test.yaml"))]


def _sentences() -> list[bytes]:
    text = b"\n".join(_books()).decode()
    return [found.encode() for found in _SENTENCE.findall(text)]


def _queries() -> list[bytes]:
    found = []
    for book in _books():
        rulebook, problems = parse_leniently(book.decode(), "book.yaml")
        assert rulebook is not None and not problems
        found += [fact.encode() for fact in rulebook.book.facts.values()]
    return found


@target(_sentences)
def template(data: bytes) -> None:
    """A sentence, parsed and filled with values of every kind."""
    try:
        parsed = parse_template(data.decode("utf-8", "replace"))
    except TemplateError as error:
        assert error.offset >= 0
        return
    columns = {name: 0 for slot in parsed.slots for name in slot.columns}
    rows = Rows(columns, [(value,) for value in _STRANGE], len(_STRANGE))
    for value in (rows, Rows(columns, [], 0), *_STRANGE):
        parsed.render({slot.name: value for slot in parsed.slots})


@target(_books)
def rulebook_yaml(data: bytes) -> None:
    """A rulebook's text: a rulebook, or problems that stand in it."""
    text = data.decode("utf-8", "replace")
    lines = text.count("\n") + text.count("\r") + 10
    _, problems = parse_leniently(text, "book.yaml")
    for problem in problems:
        assert 1 <= problem.line <= lines and problem.column >= 1
        assert len(str(problem)) < 10_000


@target(_test_files)
def rulebook_tests(data: bytes) -> None:
    """The tests beside a rulebook."""
    try:
        read_tests(Source(Path("book.test.yaml"), data.decode("utf-8", "replace")))
    except RulebookError as error:
        assert error.problems


@cache
def _con() -> object:
    return connect()


@target(_queries)
def rule_sql(data: bytes) -> None:
    """A fact's SQL, parsed: what it reads and what it may not, at a place within it."""
    sql = data.decode("utf-8", "replace")
    read = read_sql(_con(), sql)  # type: ignore[arg-type]
    assert isinstance(read, FactSql)
    for fault in read.faults:
        assert 0 <= fault.offset <= len(sql) + 1
