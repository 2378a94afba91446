"""Everything that can be known to be wrong with a rulebook before the night it is needed.

Facts are bound against an empty incident that has every table and relation, so a misspelt column
is found here, with its line, column and the name that was probably meant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb

from oncall.core.errors import Problem, RulebookError
from oncall.evidence.registry import all_relations
from oncall.evidence.schema import BY_NAME
from oncall.rules.engine.confined import DESCRIBE, Confined
from oncall.rules.engine.sandbox import QueryFailed, close_sandbox
from oncall.rules.language.condition import Term, parse_condition
from oncall.rules.language.functions import refused_calls
from oncall.rules.language.load import (
    is_override,
    load_rulebooks,
    parse_leniently,
    rulebook_files,
    shipped_folder,
)
from oncall.rules.language.positions import Fault, Source, read_source
from oncall.rules.language.rulebook import Rulebook
from oncall.rules.language.rulebook_file import STARTED, Question, Switch
from oncall.rules.language.rulebook_parts import (
    IDENTIFYING,
    ROLE_COLUMNS,
    conditions,
    nodes,
    roles,
    sentences,
)
from oncall.rules.language.sql import FactSql, SqlFault, character, read_sql
from oncall.rules.language.template import NUMERIC, Slot, TemplateError, nearest, parse_template
from oncall.rules.language.tests_file import test_problems

LONGEST_SENTENCE = 140
_SHOWN = 10  # characters a value takes, as good as any guess
_BIND_TIME_LIMIT_S = 5.0
_WHOLE = frozenset(
    f"{sign}{size}INT" for sign in ("", "U") for size in ("TINY", "SMALL", "", "BIG", "HUGE")
) | {"INTEGER", "UINTEGER"}


class Checker:
    """Checks rulebooks against the evidence schema and the registered relations."""

    def __init__(self) -> None:
        self._con = duckdb.connect(":memory:")
        close_sandbox(self._con)
        # To bind a fact, DuckDB computes what is constant in it.
        self._confined = Confined(None, _BIND_TIME_LIMIT_S)

    def __enter__(self) -> Checker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._confined.close()
        self._con.close()

    def check(self, text: str, path: str) -> list[Problem]:
        """Every problem of the rulebook's text, in the order of the file."""
        rulebook, problems = parse_leniently(text, path)
        if rulebook is not None:
            placed = Source(path, text).place_all(self.faults(rulebook))
            problems += [problem for problem in placed if problem not in problems]
        return sorted(problems, key=lambda problem: (problem.line, problem.column))

    def check_file(self, path: Path) -> list[Problem]:
        """Every problem of the rulebook's file."""
        source, problems = read_source(path)
        return problems or self.check(source.text, source.path)

    def faults(self, rulebook: Rulebook) -> list[Fault]:
        """Faults of SQL, of what sentences and leaves read from facts, and of style."""
        binding, faults = self._bound(rulebook)
        return [*faults, *_unused(rulebook, binding.read), *_style(rulebook, binding.read)]

    def breaking(self, rulebook: Rulebook) -> list[Problem]:
        """What keeps the rulebook from running or its findings from being written; style does
        not."""
        _, faults = self._bound(rulebook)
        return Source(rulebook.path, rulebook.text).place_all(faults)

    def _bound(self, rulebook: Rulebook) -> tuple[_Binding, list[Fault]]:
        binding = _Binding(self._con, self._confined, rulebook)
        with binding:
            faults = [*binding.faults()]
        faults += _named_columns(rulebook, binding.columns)
        faults += _compared(rulebook, binding.columns)
        faults += _roles(rulebook, binding.columns)
        return binding, faults


class _Binding:
    """Binds a rulebook's facts one after the other, each as an empty table for the next."""

    def __init__(
        self, con: duckdb.DuckDBPyConnection, confined: Confined, rulebook: Rulebook
    ) -> None:
        self.con = con
        self.confined = confined
        self.rulebook = rulebook
        self.book = rulebook.book
        self.read = {name: read_sql(con, sql) for name, sql in self.book.facts.items()}
        self.columns: dict[str, dict[str, str]] = {}  # of the facts that bind: name -> type

    def __enter__(self) -> _Binding:
        return self

    def __exit__(self, *failure: Any) -> None:
        self.confined.drop((*self.columns, STARTED))

    def faults(self) -> Iterator[Fault]:
        before = self._before_start()
        earlier: list[str] = []
        for name, read in self.read.items():
            known = {*BY_NAME, *all_relations(), *earlier, STARTED}
            static = [
                *read.faults,
                *refused_calls(self.con, read),
                *read.unknown_tables(known),
                *read.unknown_params(self.rulebook.params),
            ]
            if name in before:
                static += read.started_too_early()
            if name in all_relations():
                yield Fault(("facts", name), f"`{name}` is already a relation", on_key=True)
            yield from (self._fault(name, fault) for fault in static)
            unbound = [table for table in read.tables if table in self.book.facts]
            if not static and all(table in self.columns for table in unbound):
                yield from self._bind(name, read)
            earlier.append(name)
            if name == self.book.start_fact and name in self.columns:
                self._start(name)

    def _before_start(self) -> set[str]:
        """The start fact and the facts it is made of."""
        found: set[str] = set()
        waiting = [self.book.start_fact]
        while waiting:
            name = waiting.pop()
            if name in self.read and name not in found:
                found.add(name)
                waiting += self.read[name].tables
        return found

    def _start(self, fact: str) -> None:
        columns = self.columns[fact]
        if all(column in columns for column in self.book.case):
            self.confined.pretend(STARTED, {column: columns[column] for column in self.book.case})

    def _bind(self, name: str, read: FactSql) -> Iterator[Fault]:
        if STARTED in read.tables and not self._has_started():
            return
        values = {param: self.rulebook.params[param].value for param in read.param_names}
        try:
            self.confined.provide(
                table for table in read.tables if table in BY_NAME or table in all_relations()
            )
            columns = self.confined.describe(read.sql, values)
            self.confined.pretend(name, columns)
        except QueryFailed as error:
            yield self._fault(name, _sql_fault(error, read.sql))
            return
        self.columns[name] = columns
        for column in self.book.case:
            message = None
            if name in self.rulebook.reported and column not in columns:
                message = f"the fact lacks the case's column `{column}`"
            elif re.match(r"STRUCT|MAP|UNION|.*\]$", columns.get(column, "")):
                message = (
                    f"`{column}` is {columns[column]}: a column of `case` must hold single values"
                )
            if message:
                yield Fault(("facts", name), message, on_key=True)

    def _has_started(self) -> bool:
        start = self.columns.get(self.book.start_fact, {})
        return all(column in start for column in self.book.case)

    @staticmethod
    def _fault(fact: str, fault: SqlFault) -> Fault:
        return Fault(("facts", fact), fault.message, offset=fault.offset, length=fault.length)


def _sql_fault(error: QueryFailed, sql: str) -> SqlFault:
    """DuckDB's message in one line, at its place in the fact, with what was probably meant."""
    text = error.details
    try:
        error_fields = json.loads(text[text.index("{") :])
    except ValueError:
        return SqlFault(text.splitlines()[0])
    message = str(error_fields.get("exception_message", text)).splitlines()[0].replace('""', '"')
    name, subtype = error_fields.get("name", ""), error_fields.get("error_subtype")
    if subtype == "COLUMN_NOT_FOUND":
        message = f"unknown column `{name}`"
    elif subtype == "MISSING_ENTRY":
        message = f"unknown {error_fields.get('type', 'name').lower()} `{name}`"
    candidates = re.findall(r"[^\s,\"]+", str(error_fields.get("candidates", "")))
    if candidates:
        near = nearest(name, [candidate.split(".")[-1] for candidate in candidates])
        message += near or f" (did you mean `{candidates[0]}`?)"
    start, length = json.loads(error_fields.get("location", "[0,1]"))
    return SqlFault(message, character(sql, max(0, start - len(DESCRIBE))), length)


# ------------------------------------------------- what is read from the facts


def _named_columns(rulebook: Rulebook, columns: dict[str, dict[str, str]]) -> Iterator[Fault]:
    """Columns that sentences name and facts do not have, or that a filter cannot show."""
    for where, text in sentences(rulebook.book):
        try:
            slots = parse_template(text).slots
        except TemplateError:
            continue  # already a fault of the sentence itself
        for slot in slots:
            message = None
            if slot.name in columns:
                message = _slot_message(slot, columns[slot.name])
            elif slot.name in rulebook.params and slot.filters:
                dimension = rulebook.params[slot.name].dimension
                if dimension == "text" and slot.filters[0][0] in NUMERIC:
                    message = f"`{slot.name}` is text, `{slot.filters[0][0]}` needs numbers"
            if message:
                yield Fault(where, message, offset=slot.offset, length=slot.length)


def _slot_message(slot: Slot, columns: dict[str, str]) -> str | None:
    name = slot.filters[0][0] if slot.filters else None
    for column in slot.columns:
        if column not in columns:
            if slot.column is None:
                return f"the fact `{slot.name}` has no column `{column}`, which `{name}` shows"
            return f"the fact `{slot.name}` has no column `{column}`{nearest(column, columns)}"
        kind = columns[column]
        if name in NUMERIC and not _is_number(kind):
            return f"`{column}` is {kind}, `{name}` needs numbers"
        if name == "ranks" and kind.removesuffix("[]") not in _WHOLE:
            return f"`{column}` is {kind}, `ranks` needs whole numbers"
    return None


def _is_number(kind: str) -> bool:
    return kind.split("(")[0] in _WHOLE | {"DOUBLE", "FLOAT", "DECIMAL"} and kind[-1] != "]"


def _compared(rulebook: Rulebook, columns: dict[str, dict[str, str]]) -> Iterator[Fault]:
    """Columns of conditions, tables and weights that facts do not have, or of another type."""
    for where, node in nodes(rulebook.book.tree):
        if isinstance(node, Switch) and node.fact in columns:
            message = _switch_message(node, columns[node.fact])
            if message:
                yield Fault((*where, "switch"), message)
    for where, when in conditions(rulebook.book):
        with suppress(TemplateError):
            for term in parse_condition(when).terms:
                if term.column is not None and term.fact in columns:
                    message = _term_message(rulebook, term, columns[term.fact])
                    if message:
                        length = len(f"{term.fact}.{term.column}")
                        yield Fault(where, message, offset=term.offset, length=length)
    for name, weight in rulebook.book.weights.items():
        for n, one in enumerate(weight):
            fact, _, column = one.value.partition(".")
            message = None
            if column and fact in columns and column not in columns[fact]:
                near = nearest(column, columns[fact])
                message = f"the fact `{fact}` has no column `{column}`{near}"
            elif column and fact in columns and not _is_number(columns[fact][column]):
                message = f"`{column}` is {columns[fact][column]}, a weight must be a number"
            if message:
                yield Fault(("weights", name, n, "value"), message)


def _switch_message(table: Switch, columns: dict[str, str]) -> str | None:
    if table.column not in columns:
        near = nearest(table.column, columns)
        return f"the fact `{table.fact}` has no column `{table.column}`{near}"
    kind = columns[table.column]
    return None if kind == "VARCHAR" else f"`{table.column}` is {kind}: a code is text"


def _term_message(rulebook: Rulebook, term: Term, columns: dict[str, str]) -> str | None:
    assert term.column is not None
    if term.column not in columns:
        return (
            f"the fact `{term.fact}` has no column `{term.column}`{nearest(term.column, columns)}"
        )
    if not term.sign:
        return None
    kind = columns[term.column]
    value = term.literal
    if term.param in rulebook.params:
        value = rulebook.params[str(term.param)].value
    wanted = "BOOLEAN" if isinstance(value, bool) else "VARCHAR" if isinstance(value, str) else ""
    fits = kind == wanted if wanted else _is_number(kind)
    return None if fits else f"`{term.column}` is {kind}: it cannot be compared with `{value}`"


def _roles(rulebook: Rulebook, columns: dict[str, dict[str, str]]) -> Iterator[Fault]:
    """Leaves whose blame or confidence has not the columns it needs."""
    for where, node in nodes(rulebook.book.tree):
        for role, place, fact in roles(node):
            if fact in columns and fact not in rulebook.book.weights:
                message = _role_message(role, columns[fact])
                if message:
                    yield Fault((*where, *place), f"`{fact}` {message}")


def _role_message(role: str, columns: dict[str, str]) -> str | None:
    if role == "confidence":
        missing = [column for column in ("value", "why") if column not in columns]
        if not missing and not _is_number(columns["value"]):
            return f"has a column value that is {columns['value']}, not a number"
        return f"lacks column {' and column '.join(missing)}" if missing else None
    wanted = IDENTIFYING if role == "blame" else ROLE_COLUMNS[role]
    if not set(wanted) & set(columns):
        return f"has none of the columns {', '.join(wanted)}"
    return None


# ----------------------------------------------------------------------- style


def _unused(rulebook: Rulebook, read: dict[str, FactSql]) -> Iterator[Fault]:
    book = rulebook.book
    filled = set()
    for _, text in sentences(book):
        try:
            filled |= {slot.name for slot in parse_template(text).slots}
        except TemplateError:
            return  # what it names is unknown, so nothing can be said to be unused
    bound = {name for one in read.values() for name in one.param_names}
    bound |= {one.value for weight in book.weights.values() for one in weight}
    for _, when in conditions(book):
        with suppress(TemplateError):
            bound |= {term.param or "" for term in parse_condition(when).terms}
    # What sets a relation's parameter need not appear: the relation uses it.
    for name in sorted(rulebook.params.keys() - rulebook.references.keys()):
        if name not in bound | filled:
            yield Fault(("params", name), f"no fact or sentence uses `{name}`", on_key=True)
    used = rulebook.reported | {table for one in read.values() for table in one.tables}
    for name in book.facts:
        if name not in used:
            yield Fault(("facts", name), f"nothing uses the fact `{name}`", on_key=True)


def _style(rulebook: Rulebook, read: dict[str, FactSql]) -> Iterator[Fault]:
    for where, text in sentences(rulebook.book):
        length = len(re.sub(r"\{\{[^{}]*\}\}", "x" * _SHOWN, text))
        if where[-3:-2] == ("say",) and length >= LONGEST_SENTENCE:
            message = f"about {length} characters; a sentence may have at most"
            yield Fault(where, f"{message} {LONGEST_SENTENCE}")
    leaves = [node for _, node in nodes(rulebook.book.tree) if not isinstance(node, Question)]
    weighed = {name for leaf in leaves for name in leaf.confidence}  # each says why itself
    for name, one in read.items():
        factors = () if name in weighed else one.bare_factors
        for number, offset in sorted({*one.bare_numbers, *factors}, key=lambda found: found[1]):
            message = f"a bare number `{number}`: make it a parameter that says why this value"
            yield Fault(("facts", name), message, offset=offset, length=len(number))


def problems_of(paths: Sequence[Path]) -> list[Problem]:
    """Every problem of the rulebooks in these files and folders; tests and overrides left out."""
    files = dict.fromkeys(file for path in paths for file in rulebook_files(path))
    if not files:
        return []
    with Checker() as checker:
        return [
            problem
            for file in files
            if not is_override(file)
            for problem in checker.check_file(file)
        ]


def check_paths(paths: Sequence[Path]) -> list[Problem]:
    """Every problem of the rulebooks and overrides in these files and folders, tests included."""
    problems: list[Problem] = []
    files = dict.fromkeys(file for path in paths for file in rulebook_files(path))
    with Checker() as checker:
        for file in files:
            if not is_override(file):
                problems += checker.check_file(file) or test_problems(file)
    if not problems:
        try:
            problems += _claimed_twice(load_rulebooks([shipped_folder(), *paths]))
        except RulebookError as error:
            problems += error.problems
    return problems


def _claimed_twice(books: Sequence[Rulebook]) -> Iterator[Problem]:
    """Rulebooks that took the place of one whose place another took: its name would mean both."""
    owners: dict[str, Rulebook] = {}
    for book in books:
        for former in book.book.was:
            owner = owners.setdefault(former, book)
            if owner is not book:
                message = f"`{former}` is already what `{owner.name}` was called ({owner.path})"
                yield Source(book.path, book.text).place(Fault(("was",), message, on_key=True))
