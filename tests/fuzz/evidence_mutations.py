"""Evidence that is mutated at random, diagnosed and shown in every way there is.

    python tests/fuzz/evidence_mutations.py [--first 0] [--count 1000] [--seconds 3600]

A seed chooses an incident of the shipped rulebooks' tests and damages its tables: values that no
recorder should write, rows lost, doubled, exchanged. Whatever comes of it, `mutate_and_diagnose`
must get a diagnosis with all rulebooks, reports, pictures and the console's views; it raises
AssertionError, or what escaped, where oncall breaks that promise.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import duckdb
import jsonschema

from oncall.core.diagnosis import Diagnosis
from oncall.core.errors import ExitCode, OncallError
from oncall.evidence.incident import Incident
from oncall.evidence.readable import readable
from oncall.evidence.registry import all_relations
from oncall.evidence.schema import BY_NAME, Column
from oncall.render.contract import document, schema, to_json
from oncall.render.markdown import to_markdown
from oncall.render.svg.stages import timeline_svg
from oncall.render.svg.traffic import map_svg
from oncall.render.svg.waiting import waiting_svg
from oncall.render.text.drawings import drawings_of
from oncall.render.text.report import to_text
from oncall.rules.authoring.testing import test_files
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.rules.language.rulebook import Rulebook
from oncall.rules.language.tests_file import evidence, load_tests
from oncall.use_case.diagnose import diagnose, exit_code
from oncall.views import snapshot
from oncall.views.network import collective as network
from oncall.views.network import waiting as network_evidence
from oncall.views.ranks import communicators, ranks
from oncall.views.ranks import rank_card as card
from oncall.views.rates import rates
from oncall.views.stages import iteration as stages
from oncall.views.stages import iterations as stages_evidence
from oncall.views.traffic import operations as traffic

MOST_MUTATIONS = 6
BROKEN_SHARE = 0.2  # of seeds in which a relation fails whatever the evidence
_ALLOWED = {ExitCode.HEALTHY, ExitCode.FINDING, ExitCode.TOO_LITTLE_COVERAGE}


@dataclass(frozen=True)
class Outcome:
    """What a seed did, and what came of it."""

    seed: int
    incident: str
    mutations: tuple[str, ...]
    exit_code: ExitCode
    failed: tuple[str, ...]  # what could not be computed, with the reason


def mutate_and_diagnose(seed: int) -> Outcome:
    """Damage an incident as the seed says and do all with it that oncall does.

    Raises AssertionError for a broken promise, and whatever escapes.
    """
    chance = random.Random(seed)
    names = sorted(_incidents())
    name = chance.choice(names)
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("error")
        incident = stack.enter_context(_incidents()[name]())
        mutations = list(mutate(incident, chance))
        if chance.random() < BROKEN_SHARE:
            broken = chance.choice(sorted(all_relations()))
            stack.enter_context(broken_relation(broken, chance.choice(_ERRORS)))
            mutations.append(f"break {broken}")
        outcome = examine(incident)
    return Outcome(seed, name, tuple(mutations), *outcome)


@contextmanager
def broken_relation(name: str, error: Exception) -> Iterator[None]:
    """Within, a relation cannot be computed."""

    def compute(*_: object, **__: object) -> Mapping[str, Any]:
        raise error

    whole = all_relations()[name]
    all_relations()[name] = replace(whole, sql=None, compute=compute, view=False)
    try:
        yield
    finally:
        all_relations()[name] = whole


def examine(incident: Incident) -> tuple[ExitCode, tuple[str, ...]]:
    """Diagnose with all rulebooks and show everything: the exit code, and what failed."""
    jobs = incident.con.execute("SELECT min(job) FROM jobs").fetchall()
    try:
        diagnosis = diagnose(incident, _rulebooks())
    except OncallError as error:
        # Several jobs: one has to be chosen, as on the command line.
        assert "choose one with --job" in str(error), error
        listed = incident.con.execute("SELECT max(job) FROM ops").fetchall()
        job = next((name for ((name,),) in (listed, jobs) if name is not None), None)
        try:
            diagnosis = diagnose(incident, _rulebooks(), job)
        except OncallError:
            return ExitCode.BAD_INPUT, ()
    _check_diagnosis(incident, diagnosis)
    _show(incident, diagnosis)
    return exit_code(diagnosis), tuple(map(str, incident.failures))


def _check_diagnosis(incident: Incident, diagnosis: Diagnosis) -> None:
    """Failures are gaps, rules that need them are skipped, and nothing of it is called healthy."""
    assert exit_code(diagnosis) in _ALLOWED
    reasons = [gap.reason for gap in diagnosis.coverage.gaps]
    uncomputed = {rule.uncomputed for rule in diagnosis.coverage.skipped_rules} - {""}
    for relation in uncomputed:
        assert any(relation in reason for reason in reasons), (relation, reasons)
    if uncomputed:
        assert not diagnosis.healthy
    if incident.disbelieved:
        assert diagnosis.coverage.contradictions


def _show(incident: Incident, diagnosis: Diagnosis) -> None:
    drawings = drawings_of(incident, diagnosis)
    for explain in (False, True):
        text = to_text(diagnosis, explain=explain, drawings=drawings)
        markdown = to_markdown(diagnosis, explain=explain, drawings=drawings)
        for written in (text, markdown):
            steering = {c for c in written if ord(c) < 32 and c != "\n"}
            assert not steering, steering
        _validator().validate(document(diagnosis, explain=explain) | {})
        assert json.loads(to_json(diagnosis, explain=explain))["schema"] == 2
    shown = snapshot.Snapshot(
        version=1,
        moment=snapshot.Moment(diagnosis.until_ns, diagnosis.since_ns, diagnosis.until_ns),
        job=diagnosis.job,
        diagnosis=diagnosis,
        ranks=ranks.ranks_of(incident, diagnosis),
        communicators=communicators.summaries_of(incident, diagnosis),
    )
    for view in _views(incident, diagnosis, shown):
        with _as_a_message():
            view()


def _views(
    incident: Incident, diagnosis: Diagnosis, shown: snapshot.Snapshot
) -> Iterator[Callable[[], object]]:
    """What the console's screens and `oncall draw` ask for."""
    for rank in shown.ranks.rank[:3].tolist():
        yield lambda rank=rank: card.card_of(incident, shown, rank)
    for summary in shown.communicators[:3]:
        yield lambda one=summary: communicators.view_of(incident, diagnosis, one, 60)
        yield lambda one=summary: traffic.traffic_of(incident, diagnosis, one.comm, None)
    for kind in ("suspects", "ranks", "nics"):
        yield lambda kind=kind: rates.series_of(incident, shown, kind, _rulebooks())
    yield lambda: stages.stages_of(incident, None, None, False)
    yield lambda: network.network_view(incident, None)
    yield lambda: timeline_svg(stages_evidence.timeline(incident))
    yield lambda: _waiting_svg(incident)
    yield (lambda: traffic.has_traffic(incident) and map_svg(traffic.traffic_map(incident)))


def _waiting_svg(incident: Incident) -> str:
    wanted = network_evidence.find_collective(incident, None, None)
    return waiting_svg(network_evidence.waiting_graph(incident, wanted))


@contextmanager
def _as_a_message() -> Iterator[None]:
    """What a question may raise: the console and the command line show its message."""
    try:
        with readable("this cannot be shown"):
            yield
    except OncallError as error:
        assert str(error).strip()


# ------------------------------------------------------------------- incidents


@cache
def _rulebooks() -> Sequence[Rulebook]:
    return tuple(load_rulebooks([shipped_folder()]))


@cache
def _validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema())


@cache
def _incidents() -> dict[str, Callable[[], Incident]]:
    """The incidents of the shipped rulebooks' tests that are written down row by row."""
    found: dict[str, Callable[[], Incident]] = {}
    for file in test_files(shipped_folder()):
        _, tests, rulebook = load_tests(file)
        for number, test in enumerate(tests.tests):
            if test.simulate is None and test.given:
                found[f"{rulebook.name}-{number:02d}"] = lambda tests=tests, test=test: evidence(
                    tests, test
                )
    return found


# ------------------------------------------------------------------- mutations


def mutate(incident: Incident, chance: random.Random) -> Iterator[str]:
    """Damage some of the tables that hold rows; says what was done."""
    for _ in range(chance.randint(1, MOST_MUTATIONS)):
        # Of most tables nothing is there; now and then something comes to be.
        tables = [name for name in BY_NAME if incident.rows(name)] or ["ops"]
        table = chance.choice(tables)
        kind = chance.choices(list(_MUTATIONS), [weight for _, weight in _MUTATIONS.values()])[0]
        yield f"{kind} {_MUTATIONS[kind][0](incident.con, table, chance)}"


def _value(con: duckdb.DuckDBPyConnection, table: str, chance: random.Random) -> str:
    """Another value in one column of some rows."""
    column = chance.choice(BY_NAME[table].columns)
    value = chance.choice([None, *_values(column)])
    share = chance.choice((0.05, 0.5, 1.0))
    con.execute(
        f'UPDATE {table} SET "{column.name}" = ?::{column.type} WHERE {_some(chance, share)}',
        [value],
    )
    return f"{table}.{column.name} = {str(value)[:30]} in {share:.0%}"


def _shift(con: duckdb.DuckDBPyConnection, table: str, chance: random.Random) -> str:
    """All numbers of a column of some rows, far away, as a clock or a counter is off."""
    whole = [column for column in BY_NAME[table].columns if column.type in ("BIGINT", "INTEGER")]
    if not whole:
        return f"nothing in {table}"
    column = chance.choice(whole)
    by = chance.choice((-1, 1, 1_000, -(10**9), 10**12, 10**17, 3 * 10**18, -(10**18)))
    limits = _LIMITS[column.type]
    con.execute(
        f'UPDATE {table} SET "{column.name}" = '
        f'greatest({limits[0]}, least({limits[1]}, "{column.name}"::HUGEINT + {by})) '
        f"WHERE {_some(chance, 0.5)}"
    )
    return f"{table}.{column.name} by {by}"


def _swap(con: duckdb.DuckDBPyConnection, table: str, chance: random.Random) -> str:
    """A column's values turned by one row: every row has another's."""
    column = chance.choice(BY_NAME[table].columns).name
    con.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE turned AS SELECT rowid AS row, lag("{column}", 1, NULL)
            OVER (ORDER BY rowid) AS value FROM {table};
        UPDATE {table} SET "{column}" = t.value FROM temp.turned t WHERE t.row = {table}.rowid;
        DROP TABLE temp.turned
        """
    )
    return f"{table}.{column}"


def _exchange(con: duckdb.DuckDBPyConnection, table: str, chance: random.Random) -> str:
    """Two columns of one type exchanged: began for ended, sent for received."""
    by_type: dict[str, list[str]] = {}
    for column in BY_NAME[table].columns:
        by_type.setdefault(column.type, []).append(column.name)
    pairs = [pair for names in by_type.values() for pair in itertools.combinations(names, 2)]
    if not pairs:
        return f"nothing in {table}"
    one, other = chance.choice(pairs)
    con.execute(
        f'UPDATE {table} SET "{one}" = "{other}", "{other}" = "{one}" WHERE {_some(chance, 0.5)}'
    )
    return f"{table}.{one} and {other}"


def _double(con: duckdb.DuckDBPyConnection, table: str, chance: random.Random) -> str:
    con.execute(f"INSERT INTO {table} SELECT * FROM {table} WHERE {_some(chance, 0.5)}")
    return table


def _double_changed(con: duckdb.DuckDBPyConnection, table: str, chance: random.Random) -> str:
    """The same rows again, but for one value: two records that contradict each other."""
    column = chance.choice(BY_NAME[table].columns)
    value = chance.choice(_values(column))
    con.execute(
        f'INSERT INTO {table} SELECT * REPLACE (?::{column.type} AS "{column.name}") FROM {table} '
        f"WHERE {_some(chance, 0.3)}",
        [value],
    )
    return f"{table} with {column.name} = {str(value)[:30]}"


def _truncate(con: duckdb.DuckDBPyConnection, table: str, chance: random.Random) -> str:
    con.execute(f"DELETE FROM {table} WHERE {_some(chance, chance.choice((0.1, 0.5, 0.9)))}")
    return table


def _empty(con: duckdb.DuckDBPyConnection, table: str, chance: random.Random) -> str:  # noqa: ARG001
    con.execute(f"DELETE FROM {table}")
    return table


def _shuffle(con: duckdb.DuckDBPyConnection, table: str, chance: random.Random) -> str:
    order = f"hash(rowid, {chance.getrandbits(30)})"
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE shuffled AS SELECT * FROM {table} ORDER BY {order}; "
        f"DELETE FROM {table}; INSERT INTO {table} FROM temp.shuffled; DROP TABLE temp.shuffled"
    )
    return table


def _nothing_known(con: duckdb.DuckDBPyConnection, table: str, chance: random.Random) -> str:  # noqa: ARG001
    """A row of nothing but NULL."""
    con.execute(f'INSERT INTO {table} ("{BY_NAME[table].column_names[0]}") VALUES (NULL)')
    return table


_ERRORS = (
    duckdb.OutOfRangeException("Out of Range Error: Overflow in subtraction of INT64"),
    duckdb.OutOfMemoryException("Out of Memory Error: failed to allocate"),
    OverflowError("cannot convert float infinity to integer"),
    FloatingPointError("invalid value encountered in cast"),
    IndexError("index 7 is out of bounds for axis 0 with size 7"),
    KeyError(None),
    MemoryError(),
    RecursionError("maximum recursion depth exceeded"),
    TypeError("'<' not supported between instances of 'NoneType' and 'int'"),
    ValueError(""),
)
_Mutation = Callable[[duckdb.DuckDBPyConnection, str, random.Random], str]
_MUTATIONS: dict[str, tuple[_Mutation, int]] = {
    "value": (_value, 10),
    "shift": (_shift, 6),
    "swap": (_swap, 2),
    "exchange": (_exchange, 3),
    "double": (_double, 2),
    "contradict": (_double_changed, 3),
    "truncate": (_truncate, 2),
    "empty": (_empty, 1),
    "shuffle": (_shuffle, 1),
    "null row": (_nothing_known, 1),
}

_LIMITS = {"BIGINT": (-(2**63), 2**63 - 1), "INTEGER": (-(2**31), 2**31 - 1)}
_WORDS = (
    "",
    " ",
    "x" * 10_000,
    "9" * 5_000,
    "a\x00b",
    "\x1b[31m\r\n\u202e",
    "[/]{{ x }}'\"--",
    "Ω\U0010ffff",
)
_YEAR_NS = 365 * 24 * 3600 * 10**9


def _values(column: Column) -> Sequence[object]:
    """Values that the column's type holds, and evidence should not."""
    match column.type:
        case "BIGINT":
            instants = (0, 156 * _YEAR_NS, 56 * _YEAR_NS, 100 * _YEAR_NS, 2**62, 2**61)
            return (-(2**63), 2**63 - 1, -1, 1, 2**53, 2**31, *instants)
        case "INTEGER":
            return (-(2**31), 2**31 - 1, -1, 0, 1, 7, 999_999, 2**20, 2**30)
        case "UBIGINT":
            return (0, 1, 2**64 - 1, 2**63)
        case "UINTEGER":
            return (0, 2**32 - 1)
        case "DOUBLE":
            infinite = (float("nan"), float("inf"), float("-inf"))
            return (*infinite, 0.0, -0.0, -1.0, 1e308, -1e308, 5e-324, 1e17)
        case "BOOLEAN":
            return (True, False)
        case "VARCHAR":
            return _WORDS
        case "VARCHAR[]":
            return ([], [None], list(_WORDS), ["f at a.py:1"] * 2_000)
        case _:
            return ([], [None], [-1, 2**31 - 1])


def _some(chance: random.Random, share: float) -> str:
    """SQL: true of about that share of a table's rows, the same ones for the same seed."""
    return f"hash(rowid, {chance.getrandbits(30)}) % 1000 < {int(share * 1000)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1_000, help="how many seeds")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="at most")
    arguments = parser.parse_args()
    began, done, broken, mutations, failed = time.monotonic(), 0, 0, 0, 0
    for seed in range(arguments.first, arguments.first + arguments.count):
        if time.monotonic() - began > arguments.seconds:
            break
        done += 1
        try:
            outcome = mutate_and_diagnose(seed)
        except Exception:
            broken += 1
            print(f"seed {seed}:\n{traceback.format_exc()}", flush=True)
            continue
        mutations += len(outcome.mutations)
        failed += bool(outcome.failed)
        for failure in outcome.failed if "break" not in str(outcome.mutations) else ():
            print(f"seed {seed}: {failure}: {outcome.mutations}", flush=True)
    seconds = time.monotonic() - began
    print(
        f"{done} incidents with {mutations} mutations in {seconds:.0f} s: {broken} broke oncall, "
        f"{failed} had a relation that could not be computed"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
