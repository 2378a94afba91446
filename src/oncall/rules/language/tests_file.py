"""Tests of a rulebook (`hang.test.yaml`): the file's model, and evidence from its short rows.

    tests:
      - name: rank 3 never enters
        given: {ops: [{rank: 0-2, seq: 8}, {rank: 3, seq: 7, ended_ns: "2 s"}]}
        expect: {verdict: H1, blame: [3], path: {all_entered: no}}

A row stands for many: `0-2,5` in a whole-number column is a row for each, `{rank}` in any text is
the row's own value, and columns that measure take quantities (`400 s`, `64 MiB`).
"""

# ruff: noqa: RUF009  (`key` makes a dataclass field)
from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path as File
from typing import Any, get_args

from oncall.core.diagnosis import Answer
from oncall.core.errors import Problem, RulebookError, UsageError
from oncall.core.nodeset import expand_ranks
from oncall.core.units import parse_quantity
from oncall.evidence.incident import Incident
from oncall.evidence.schema import BY_NAME, Column
from oncall.lab import simulated_evidence
from oncall.rules.language.load import TEST_SUFFIX, load_file, rulebook_files
from oncall.rules.language.positions import Fault, Path, Source, read_source, read_yaml
from oncall.rules.language.rulebook import Rulebook
from oncall.rules.language.rulebook_file import NO_VERDICT, Question
from oncall.rules.language.rulebook_parts import nodes
from oncall.rules.language.shape import (
    ANYTHING,
    NAME,
    SCALAR,
    TEXT,
    Choice,
    Items,
    Named,
    OneType,
    Scalar,
    key,
    read_record,
    record,
)
from oncall.rules.language.template import nearest

JOB = "test"
SKIPPED = "skipped"
MOST_ROWS = 1_000_000  # that one short row stands for

_SPANS = re.compile(r"\s*\d+\s*(-\s*\d+\s*)?(,\s*\d+\s*(-\s*\d+\s*)?)*")
_REFERENCE = re.compile(r"\{(\w+)\}")
_LABEL = OneType((int, str), ("integer", "string"))


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What one finding must be; `verdict: none` for no finding, `skipped` for no evidence."""

    verdict: str = key(TEXT)
    blame: tuple[int | str, ...] | None = key(Items(_LABEL), default=None)
    path: dict[str, Answer] | None = key(
        Named(Choice(get_args(Answer)), NAME),
        "The questions asked, by name and in order, with their answers.",
        default=None,
    )
    says: str | None = key(TEXT, "A part of a sentence of the report.", default=None)


_ROWS = Named(Items(Named(ANYTHING)))


@dataclass(frozen=True, kw_only=True)
class TestCase:
    """Evidence and what the rulebook must make of it."""

    __test__ = False

    name: str = key(TEXT)
    given: dict[str, Sequence[dict[str, Any]]] = key(_ROWS, default={})
    simulate: dict[str, Any] | None = key(Named(ANYTHING), "A scenario's fields.", default=None)
    params: dict[str, Scalar] = key(Named(SCALAR, NAME), default={})
    expect: tuple[Expected, ...] = key(Items(record(Expected), or_one=True))


@dataclass(frozen=True, kw_only=True)
class TestFile:
    """The tests of one rulebook."""

    __test__ = False

    rulebook: str = key(TEXT)
    defaults: dict[str, dict[str, Any]] = key(Named(Named(ANYTHING)), default={})
    tests: tuple[TestCase, ...] = key(Items(record(TestCase), least=1))


def tests_of(rulebook: File) -> File:
    """The test file that belongs to a rulebook's file: same folder, same stem."""
    return rulebook.with_name(rulebook.name.removesuffix(rulebook.suffix) + TEST_SUFFIX)


def load_tests(path: File) -> tuple[Source, TestFile, Rulebook]:
    """A test file and its rulebook. Raises RulebookError with every problem of either."""
    source, problems = read_source(path)
    if problems:
        raise RulebookError(problems)
    tests = read_tests(source)
    rulebook = _rulebook_named(tests.rulebook, path)
    if rulebook is None:
        message = f"no rulebook `{tests.rulebook}` in this folder"
        raise RulebookError([source.place(Fault(("rulebook",), message))])
    refuse_unknown(source, tests, rulebook)
    return source, tests, rulebook


def read_tests(source: Source) -> TestFile:
    """The tests that a text spells. Raises RulebookError."""
    data, problems = read_yaml(source)
    if problems:
        raise RulebookError(problems)
    if not isinstance(data, dict):
        raise RulebookError(
            [source.at(0, 0, "not a test file: it must hold `rulebook:`, `tests:`")]
        )
    faults: list[Fault] = []
    tests: TestFile = read_record(TestFile, data, (), faults)
    if faults:
        raise RulebookError(source.place_all(faults))
    return tests


def refuse_unknown(source: Source, tests: TestFile, rulebook: Rulebook) -> None:
    """Raises RulebookError for what tests name and neither rulebook nor schema has."""
    problems = source.place_all(_faults(tests, rulebook))
    if problems:
        raise RulebookError(problems)


def test_problems(rulebook: File) -> list[Problem]:
    """What is wrong with a rulebook's tests: missing, unreadable, or leaving a verdict untested."""
    path = tests_of(rulebook)
    if not path.is_file():
        return [Problem(str(rulebook), 1, 1, f"no tests: {path.name} is missing")]
    try:
        source, tests, book = load_tests(path)
    except RulebookError as error:
        return list(error.problems)
    expected = {one.verdict for test in tests.tests for one in test.expect}
    expected |= {NO_VERDICT for test in tests.tests if not test.expect}
    untested = [name for name in (*book.book.verdicts, NO_VERDICT) if name not in expected]
    return [
        source.place(Fault(("tests",), f"no test expects `verdict: {name}`", on_key=True))
        for name in untested
    ]


test_problems.__test__ = False  # type: ignore[attr-defined]


def _rulebook_named(name: str, path: File) -> Rulebook | None:
    beside = path.with_name(path.name.removesuffix(TEST_SUFFIX) + ".yaml")
    others = [file for file in rulebook_files(path.parent or File()) if file != beside]
    for file in (beside, *others):
        if file.is_file() and re.search(
            rf"(?m)^rulebook:\s*['\"]?{re.escape(name)}\b", read_source(file)[0].text
        ):
            return load_file(file)
    return None


def _faults(tests: TestFile, rulebook: Rulebook) -> Iterator[Fault]:
    """Tables, columns, parameters and verdicts that do not exist."""
    verdicts = [*rulebook.book.verdicts, NO_VERDICT, SKIPPED]
    for table, row in tests.defaults.items():
        if table in BY_NAME:
            yield from _row_faults(("defaults", table), table, row)
        else:
            yield _unknown_table(("defaults", table), table)
    for index, test in enumerate(tests.tests):
        where = ("tests", index)
        for table, rows in test.given.items():
            if table not in BY_NAME:
                yield _unknown_table((*where, "given", table), table)
                continue
            for number, row in enumerate(rows):
                yield from _row_faults((*where, "given", table, number), table, row)
        for name in test.params:
            if name not in rulebook.params:
                near = nearest(name, rulebook.params)
                message = f"{rulebook.name} has no parameter `{name}`{near}"
                yield Fault((*where, "params", name), message, on_key=True)
        for number, one in enumerate(test.expect):
            if one.verdict not in verdicts:
                near = nearest(one.verdict, verdicts)
                message = f"{rulebook.name} has no verdict `{one.verdict}`{near}"
                yield Fault((*where, "expect", number, "verdict"), message)
            place = (*where, "expect", number, "path")
            yield from _path_faults(place, list(one.path or {}), rulebook)


def _path_faults(where: Path, names: list[str], rulebook: Rulebook) -> Iterator[Fault]:
    """Names of a path that no question has."""
    questions = [node.name for _, node in nodes(rulebook.book.tree) if isinstance(node, Question)]
    for name in names:
        if name not in questions:
            near = nearest(name, questions)
            message = f"{rulebook.name} asks no question `{name}`{near}"
            yield Fault((*where, name), message, on_key=True)


def _unknown_table(where: Path, table: str) -> Fault:
    return Fault(where, f"no evidence table `{table}`{nearest(table, BY_NAME)}", on_key=True)


def _row_faults(where: Path, table: str, row: Mapping[str, Any]) -> Iterator[Fault]:
    known = {column.name: column for column in BY_NAME[table].columns}
    for name, value in row.items():
        if name not in known:
            message = f"{table} has no column `{name}`{nearest(name, known)}"
            yield Fault((*where, name), message, on_key=True)
            continue
        if isinstance(value, str) and _REFERENCE.search(value):
            continue
        try:
            _values(known[name], value)
        except UsageError as error:
            yield Fault((*where, name), str(error))


# -------------------------------------------------------------------- evidence


def evidence(tests: TestFile, test: TestCase) -> Incident:
    """The incident that a test gives: simulated, from its rows, or rows added to a simulation.

    Raises UsageError for a row or scenario that cannot be.
    """
    incident = Incident.empty() if test.simulate is None else simulated_evidence(test.simulate)
    for table, rows in test.given.items():
        declared = BY_NAME[table].columns
        default = {"job": JOB} | tests.defaults.get(table, {})
        columns: dict[str, list[Any]] = {column.name: [] for column in declared}
        for row in rows:
            for expanded in _expand(declared, default | row):
                for column in declared:
                    columns[column.name].append(expanded.get(column.name))
        if rows:
            incident.append(table, columns)
    return incident


def _expand(declared: tuple[Column, ...], row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every row that one short row stands for."""
    columns = {column.name: column for column in declared}
    plain: dict[str, Any] = {}
    referring: dict[str, str] = {}
    for name, value in row.items():
        if name not in columns:
            continue
        refers = isinstance(value, str) and _REFERENCE.search(value)
        (referring if refers else plain)[name] = value
    choices = [_values(columns[name], value) for name, value in plain.items()]
    if math.prod(map(len, choices)) > MOST_ROWS:
        raise UsageError(f"a row that stands for more than {MOST_ROWS:,} rows")
    for chosen in product(*choices):
        values = dict(zip(plain, chosen, strict=True))
        for name, text in referring.items():
            for other, value in values.items():
                text = text.replace(f"{{{other}}}", str(value))
            values[name] = _values(columns[name], text)[0]
        yield values


_LIMITS = {
    "INTEGER": (-(2**31), 2**31 - 1),
    "BIGINT": (-(2**63), 2**63 - 1),
    "UINTEGER": (0, 2**32 - 1),
    "UBIGINT": (0, 2**64 - 1),
}


def _values(column: Column, value: Any) -> list[Any]:
    """The values that one written value stands for. Raises UsageError if it fits no way."""
    values = _written(column, value)
    if not all(one is None or _fits(column.type, one) for one in values):
        raise UsageError(f"`{value}` is not a value for {column.name} ({column.type})")
    return values


def _written(column: Column, value: Any) -> list[Any]:
    if not isinstance(value, str) or column.type in ("VARCHAR", "VARCHAR[]", "BOOLEAN"):
        return [value]
    if column.name == "comm":
        return [communicator(value)]
    if column.unit not in ("ns", "bytes") and _SPANS.fullmatch(value):
        return list(expand_ranks(value))
    return [parse_quantity(value).value]


def _fits(type_: str, value: Any) -> bool:
    """Whether a column of that type holds the value as it is."""
    if type_.endswith("[]"):
        return isinstance(value, list) and all(_fits(type_[:-2], one) for one in value)
    if type_ in ("VARCHAR", "BOOLEAN"):
        return isinstance(value, str if type_ == "VARCHAR" else bool)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    least, most = _LIMITS.get(type_, (-math.inf, math.inf))
    return least <= value <= most and (type_ == "DOUBLE" or float(value).is_integer())


def communicator(name: str) -> int:
    """A communicator's 64-bit id: hex as it is, any other name hashed."""
    if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", name):
        return int(name, 16)
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
