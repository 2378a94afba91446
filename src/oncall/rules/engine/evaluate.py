"""The facts of one rulebook over one incident: each computed once, for all cases, when needed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import Any

from oncall.core.errors import MissingEvidence, OncallError, Problem, RelationFailed
from oncall.core.units import format_quantity
from oncall.evidence.incident import Incident
from oncall.evidence.registry import all_relations, base_tables
from oncall.evidence.schema import BY_NAME
from oncall.rules.engine.confined import Confined
from oncall.rules.engine.sandbox import FACT_TIME_LIMIT_S, Computer, InProcess, QueryFailed
from oncall.rules.language.functions import refused_calls
from oncall.rules.language.load import is_reviewed
from oncall.rules.language.positions import Fault, Source
from oncall.rules.language.rulebook import Rulebook
from oncall.rules.language.rulebook_file import STARTED
from oncall.rules.language.sql import FactSql, SqlFault, read_sql
from oncall.rules.language.template import Rows

Case = tuple[Any, ...]
Having = Sequence[tuple[str, Sequence[str]]]  # columns, and the values wanted in each

MOST_CASES = 100_000  # more are a `case` that is too fine, and no one's reading
MOST_ROWS = 50_000  # rows of one fact that are fetched for one case; counts stay exact


class FactFailed(OncallError):
    """A fact's SQL cannot run; `problem` says why and where it is written."""

    def __init__(self, fact: str, problem: Problem) -> None:
        self.fact = fact
        self.problem = problem
        super().__init__(str(problem))


NotKnown = (MissingEvidence, RelationFailed, FactFailed)  # why a fact's rows are not there


class Evaluation:
    """Materialises facts as temporary tables and hands out their rows by case.

    Facts of a rulebook that was not reviewed are computed in a process with limits: `confined`,
    which may serve other rulebooks too, or one of its own. A context manager: the tables are
    dropped at its end, so that the next rulebook may use the same names. Everything that reads
    facts raises FactFailed, MissingEvidence if the incident has no rows for what a fact reads, or
    RelationFailed if that cannot be computed.
    """

    def __init__(
        self,
        incident: Incident,
        rulebook: Rulebook,
        time_limit_s: float = FACT_TIME_LIMIT_S,
        timings: MutableMapping[str, float] | None = None,
        confined: Confined | None = None,
    ) -> None:
        self.incident = incident
        self.rulebook = rulebook
        self.timings = {} if timings is None else timings
        self._reviewed = is_reviewed(rulebook)
        self._own: Computer | None = None
        if self._reviewed:
            self._own = InProcess(incident, time_limit_s)
        elif confined is None:
            self._own = Confined(incident, time_limit_s)
        computer = confined if self._own is None else self._own
        assert computer is not None
        self._computer: Computer = computer
        self._read: dict[str, FactSql] = {}
        self._sound: set[str] = set()  # facts that can run, with all they read
        self._failed: dict[str, OncallError] = {}
        self._columns: dict[str, dict[str, int]] = {}  # of facts that are materialised
        self._totals: dict[str, int] = {}  # rows, known without materialising if there are none
        self._counts: dict[str, dict[Case, int]] = {}
        self._rows: dict[str, dict[Case, Rows]] = {}

    def __enter__(self) -> Evaluation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._own is not None:
            self._own.close()
        if self._columns:
            self._computer.drop((*self._columns, STARTED))

    # ------------------------------------------------------------------ cases

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """The cases that start, in order; `started` holds them for the facts that come after."""
        book = self.rulebook.book
        if self.total(book.start_fact) == 0:
            return ()
        distinct = f'SELECT DISTINCT {self._case_list} FROM "{book.start_fact}"'
        try:
            _, started = self._computer.compute(STARTED, distinct, {})
        except QueryFailed as error:
            raise self._failure(book.start_fact, SqlFault(str(error))) from error
        if started > MOST_CASES:
            too_many = f"it starts {started:,} cases, more than {MOST_CASES:,}"
            fault = SqlFault(f"{too_many}: `case` has too many columns")
            raise self._failure(book.start_fact, fault)
        query = f"SELECT * FROM {STARTED} ORDER BY ALL NULLS LAST"
        return tuple(self._by_case(book.start_fact, query))

    @property
    def _case_list(self) -> str:
        return ", ".join(f'"{column}"' for column in self.rulebook.book.case)

    @property
    def lacks(self) -> tuple[str, ...]:
        """Of tables of which any one lets the rulebook start, those that are empty and without
        which something that it would read says nothing; "a or b": either would do."""
        found: dict[str, None] = {}
        for name in self._evidence(self.sql(self.rulebook.book.start_fact)):
            relation = all_relations().get(name)
            if relation is not None:
                either = {one for read in relation.reads if "|" in read for one in read.split("|")}
                known = base_tables(either)
                gone = (self.incident.missing(one) for one in relation.optional)
                wants = dict.fromkeys(clause for clauses in gone for clause in clauses)
                found |= {one: None for one in wants if known.issuperset(one.split(" or "))}
        return tuple(found)

    # ------------------------------------------------------------------ facts

    def sql(self, fact: str) -> FactSql:
        """The fact's SQL, parsed."""
        if fact not in self._read:
            sql = self.rulebook.book.facts[fact]
            self._read[fact] = read_sql(self.incident.con, sql)
        return self._read[fact]

    def params(self, fact: str) -> dict[str, str]:
        """The parameters that the fact itself uses, as an engineer writes their values."""
        return {
            name: format_quantity(self.rulebook.params[name]) for name in self.sql(fact).param_names
        }

    @property
    def computed(self) -> tuple[str, ...]:
        """The facts that were needed so far."""
        return tuple(self._columns)

    @property
    def tables_read(self) -> frozenset[str]:
        """The tables of evidence that facts were asked of so far, if only to be found empty."""
        return base_tables(name for fact in self._read.values() for name in self._evidence(fact))

    def counts(self, fact: str) -> Mapping[Case, int]:
        """How many rows each case has in the fact; cases without rows are absent."""
        if fact not in self._counts:
            self.materialise(fact)
            rows = self._by_case(
                fact, f'SELECT {self._case_list}, count(*) FROM "{fact}" GROUP BY ALL'
            )
            self._counts[fact] = {row[:-1]: row[-1] for row in rows}
        return self._counts[fact]

    def values_of(
        self, fact: str, column: str, having: Having = ()
    ) -> Mapping[Case, frozenset[Any]]:
        """The values that a column has in each case's rows, of those that have one of some values
        in other columns; cases without such rows are absent."""
        self.materialise(fact)
        where = "".join(f' AND list_contains(?, "{other}")' for other, _ in having)
        rows = self._query(
            fact,
            f'SELECT {self._case_list}, list(DISTINCT "{column}") FROM "{fact}" '
            f"WHERE true{where} GROUP BY ALL",
            tuple(list(values) for _, values in having),
        )
        return {row[:-1]: frozenset(row[-1] or ()) for row in rows}

    def total(self, fact: str) -> int:
        """How many rows the fact has, of whatever case."""
        if fact not in self._totals:
            self.materialise(fact)
        return self._totals[fact]

    def rows(self, fact: str) -> Mapping[Case, Rows]:
        """The rows of started cases, with only the columns that the rulebook shows or blames.

        In the order of the fact's own ORDER BY, or of all those columns if it has none.
        """
        if fact not in self._rows:
            counts = self.counts(fact)
            used = self.rulebook.columns_used[fact]
            shown = [column for column in self._columns.get(fact, ()) if column in used]
            grouped: dict[Case, list[tuple[Any, ...]]] = {}
            if shown and counts:
                width = len(self.rulebook.book.case)
                for row in self._fetch(fact, shown):
                    grouped.setdefault(row[:width], []).append(row[width:])
            index = {column: place for place, column in enumerate(shown)}
            self._rows[fact] = {
                case: Rows(index, grouped.get(case, ()), count) for case, count in counts.items()
            }
        return self._rows[fact]

    def distinct(self, fact: str, column: str) -> set[Any]:
        """The values that a column of a fact has; none without that column."""
        self.materialise(fact)
        if column not in self._columns[fact]:
            return set()
        query = f'SELECT DISTINCT "{column}" FROM "{fact}" WHERE "{column}" IS NOT NULL'
        return {value for (value,) in self._query(fact, query)}

    def sample(self, fact: str, limit: int = 20) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """Columns and first rows of a fact, all cases together: for people looking at it."""
        order = self._order(fact, "ALL NULLS LAST")
        self.materialise(fact)
        rows = self._query(fact, f'SELECT * FROM "{fact}" ORDER BY {order} LIMIT {limit:d}')
        return tuple(self._columns[fact]), rows

    def sample_of(
        self, fact: str, case: Case, limit: int, having: Having = ()
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]], int]:
        """All columns, the first rows of one case of a fact, and how many it has in all; `having`
        as in `values_of`."""
        same = [f'"{column}" IS NOT DISTINCT FROM ?' for column in self.rulebook.book.case]
        same += [f'list_contains(?, "{column}")' for column, _ in having]
        wanted = f'FROM "{fact}" WHERE {" AND ".join(same)}'
        values = (*case, *(list(codes) for _, codes in having))
        order = self._order(fact, "ALL NULLS LAST")
        self.materialise(fact)
        rows = self._query(fact, f"SELECT * {wanted} ORDER BY {order} LIMIT {limit:d}", values)
        ((total,),) = self._query(fact, f"SELECT count(*) {wanted}", values)
        return tuple(self._columns[fact]), rows, total

    def _fetch(self, fact: str, shown: Iterable[str]) -> list[tuple[Any, ...]]:
        columns = ", ".join(f'"{column}"' for column in shown)
        order = self._order(fact, f"{self._case_list}, {columns}")
        cut = ""
        if max(self.counts(fact).values(), default=0) > MOST_ROWS:
            cut = (
                f"QUALIFY row_number() OVER (PARTITION BY {self._case_list} ORDER BY {order}) "
                f"<= {MOST_ROWS}"
            )
        return self._by_case(
            fact, f'SELECT {self._case_list}, {columns} FROM "{fact}" {cut} ORDER BY {order}'
        )

    def _by_case(self, fact: str, sql: str) -> list[tuple[Any, ...]]:
        """Rows of a fact that is there, each beginning with its case."""
        rows = self._query(fact, sql)
        try:
            for row in rows[:1]:
                hash(row[: len(self.rulebook.book.case)])
        except TypeError as error:
            raise self._failure(fact, SqlFault("a column of the case is a list")) from error
        return rows

    def _query(self, fact: str, sql: str, values: Case = ()) -> list[tuple[Any, ...]]:
        """Rows of a fact that is there."""
        try:
            return self._computer.query(sql, values)
        except QueryFailed as error:
            raise self._failure(fact, SqlFault(str(error))) from error

    def _order(self, fact: str, otherwise: str) -> str:
        return "rowid" if self.sql(fact).ordered else otherwise

    # -------------------------------------------------------- materialisation

    def materialise(self, fact: str) -> None:
        """Compute the fact and what it reads, once; a failure is remembered too."""
        if fact in self._columns:
            return
        read = self._checked(fact)
        try:
            self._prepare(fact, read)
            self._compute(fact)
        except NotKnown as error:
            self._failed[fact] = error
            raise

    def _checked(self, fact: str) -> FactSql:
        """The fact's SQL, once it and all that it reads can run; a failure is remembered."""
        if fact in self._failed:
            raise self._failed[fact]
        if fact not in self._sound:
            try:
                self._check(fact)
            except NotKnown as error:
                self._failed[fact] = error
                raise
            self._sound.add(fact)
        return self.sql(fact)

    def _check(self, fact: str) -> None:
        read = self.sql(fact)
        facts = list(self.rulebook.book.facts)
        known = {*BY_NAME, *all_relations(), *facts[: facts.index(fact)], STARTED}
        started = "cases" in self.__dict__
        for fault in (
            *read.faults,
            *(() if self._reviewed else refused_calls(self.incident.con, read)),
            *read.unknown_tables(known),
            *read.unknown_params(self.rulebook.params),
            *(() if started else read.started_too_early()),
            # A temporary table would hide the relation from other relations too.
            *([SqlFault("a relation already has this name")] if fact in all_relations() else []),
        ):
            raise self._failure(fact, fault)
        missing = dict.fromkeys(
            m for name in self._evidence(read) for m in self.incident.missing(name)
        )
        if missing:
            raise MissingEvidence(fact, tuple(missing))
        for name in read.tables:
            if name in self.rulebook.book.facts:
                self._checked(name)

    def _evidence(self, read: FactSql) -> list[str]:
        """The tables and relations among what a fact reads."""
        return [name for name in read.tables if name in BY_NAME or name in all_relations()]

    def _prepare(self, fact: str, read: FactSql) -> None:
        """Make ready everything a fact reads."""
        for name in read.tables:
            if name in self.rulebook.book.facts:
                self.materialise(name)
        try:
            self._computer.provide(self._evidence(read))
        except QueryFailed as error:
            raise self._failure(fact, SqlFault(f"a relation that it reads: {error}")) from error

    def _compute(self, fact: str) -> None:
        read = self.sql(fact)
        values = {name: self.rulebook.params[name].value for name in read.param_names}
        began = time.perf_counter()
        try:
            columns, total = self._computer.compute(fact, read.sql, values)
        except QueryFailed as error:
            raise self._failure(fact, SqlFault(str(error))) from error
        finally:
            self.timings[f"{self.rulebook.name}.{fact}"] = time.perf_counter() - began
        self._columns[fact] = {column: place for place, column in enumerate(columns)}
        for column in self.rulebook.book.case:
            if fact in self.rulebook.reported and column not in self._columns[fact]:
                raise self._failure(fact, SqlFault(f"the fact lacks the case's column `{column}`"))
        self._totals[fact] = total

    def _failure(self, fact: str, fault: SqlFault) -> FactFailed:
        source = Source(self.rulebook.path, self.rulebook.text)
        where = Fault(
            ("facts", fact), f"{fact}: {fault.message}", offset=fault.offset, length=fault.length
        )
        return FactFailed(fact, source.place(where))
