"""A fact reads, and only reads: every way out in escapes.yaml is refused, or contained."""

from __future__ import annotations

import re
import resource
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from ruamel.yaml import YAML

from oncall.core.errors import RulebookError, UsageError
from oncall.core.units import Quantity
from oncall.evidence.incident import Incident
from oncall.evidence.registry import all_relations
from oncall.evidence.schema import BY_NAME
from oncall.rules.engine.check import Checker
from oncall.rules.engine.engine import run
from oncall.rules.engine.sandbox import close_sandbox, compute
from oncall.rules.language.functions import refused_calls
from oncall.rules.language.load import load_rulebooks, parse, shipped_folder
from oncall.rules.language.positions import Source
from oncall.rules.language.rulebook import Rulebook
from oncall.rules.language.rulebook_file import STARTED
from oncall.rules.language.sql import DEEPEST_FACT, LONGEST_FACT, SqlFault, read_sql
from oncall.rules.language.template import TemplateError, parse_template
from oncall.rules.language.tests_file import TestCase, TestFile, evidence, read_tests

Make = Callable[..., Rulebook]
python_secret = [("a Python object by that name",)]

_ALL = YAML(typ="safe", pure=True).load(Path(__file__).with_name("escapes.yaml").read_text())
REFUSED = [sql for group in _ALL["refused"].values() for sql in group]
CONTAINED = [sql for group in _ALL["contained"].values() for sql in group]
QUICK = [
    "SELECT length(repeat('x', 3000000000)) AS comm",
    "SELECT repeat('x', 40000000) AS comm",
]


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with Incident.empty() as incident:
        close_sandbox(incident.con)
        yield incident.con


def faults(con: duckdb.DuckDBPyConnection, sql: str) -> list[SqlFault]:
    read = read_sql(con, sql)
    known = {*BY_NAME, *all_relations(), STARTED}
    return [
        *read.faults,
        *refused_calls(con, read),
        *read.unknown_tables(known),
        *read.unknown_params(()),
    ]


@pytest.mark.parametrize("sql", REFUSED)
def test_no_fact_does_anything_else(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    found = faults(con, sql)
    assert found
    for fault in found:
        assert 0 <= fault.offset <= len(sql), fault


@pytest.mark.parametrize("sql", [sql for sql in CONTAINED if "random" not in sql])
def test_limits_are_for_what_may_be_written(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    assert not faults(con, sql)


def test_the_place_of_a_write_is_named(con: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT * FROM ops WHERE rank IN (WITH x AS (DELETE FROM ops RETURNING rank) FROM x)"
    fault = faults(con, sql)[0]
    assert "may not use DELETE" in fault.message
    assert sql.index("WITH") - 2 <= fault.offset <= sql.index("RETURNING") + 10


def test_what_rules_are_written_with_is_allowed(con: duckdb.DuckDBPyConnection) -> None:
    """A list of what is allowed is worth nothing if it stands in the way."""
    allowed = """
        WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 3),
          m AS MATERIALIZED (SELECT * EXCLUDE (job) REPLACE (rank + 1 AS rank) FROM ops)
        SELECT DISTINCT ON (m.rank) m.*, COLUMNS('s.*'), {'a': 1}.a,
          [x + 1 FOR x IN [1, 2] IF x > 1],
          list_transform([1], lambda x: x), CASE WHEN true THEN 1 ELSE 2 END, 'x'::VARCHAR[3],
          count(*) FILTER (rank > 0) OVER w, lag(rank, 1, 0) OVER (ORDER BY seq),
          (SELECT max(i) FROM r),
          quantile_cont(rank, 0.5), string_agg(node, ',' ORDER BY node DESC NULLS LAST),
          list_aggregate([1], 'sum'), array_to_string(['a'], ','),
          date_trunc('day', to_timestamp(0)),
          EXISTS (SELECT 1), rank IN (1, 2), (rank, seq) IN (SELECT 1, 2),
          grouping(rank), TRY(1 / 0),
          INTERVAL 3 DAYS, 'a' COLLATE nocase, a[1:2], upper(node) LIKE 'x%' ESCAPE '!', #1
        FROM m LEFT JOIN ranks USING (rank) ASOF JOIN ops AS o ON o.started_ns >= m.started_ns
          POSITIONAL JOIN unnest([1]) AS u(v), LATERAL (SELECT m.rank), range(3) WITH ORDINALITY
        WHERE m.rank BETWEEN 0 AND 2 GROUP BY ROLLUP (rank) HAVING count(*) > 1
        WINDOW w AS (ORDER BY rank ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES)
        QUALIFY row_number() OVER (PARTITION BY seq ORDER BY rank) = 1
        UNION ALL BY NAME (VALUES (1, 2)) ORDER BY ALL LIMIT 10% OFFSET 1
    """
    assert not faults(con, allowed)


def test_every_fact_that_ships_is_allowed(con: duckdb.DuckDBPyConnection) -> None:
    for book in load_rulebooks([shipped_folder()]):
        for name, sql in book.book.facts.items():
            read = read_sql(con, sql)
            assert not [*read.faults, *refused_calls(con, read)], (book.name, name)


def test_words_that_are_calls_are_all_known(con: duckdb.DuckDBPyConnection) -> None:
    """DuckDB takes some bare words for calls: whichever it takes, a fact may not use."""
    functions = con.execute("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()
    words = {name for (name,) in functions if name.isidentifier()}
    words |= {"localtime", "localtimestamp", "current_time", "current_timestamp"}
    calls = set()
    for word in words:
        with suppress(
            duckdb.BinderException, duckdb.ParserException, duckdb.NotImplementedException
        ):
            con.execute(f"DESCRIBE SELECT {word}")
            calls.add(word)
    assert {"current_date", "localtime", "user"} <= calls
    assert [word for word in calls if not faults(con, f"SELECT {word}")] == []


@pytest.mark.parametrize("sql", _ALL["refused"]["writes"])
def test_what_slipped_through_could_not_write(unchanged_hang: Incident, sql: str) -> None:
    """The second wall: the transaction only reads."""
    before = unchanged_hang.con.execute("FROM ops ORDER BY ALL").fetchall()
    tables = unchanged_hang.con.execute(
        "SELECT table_name FROM duckdb_tables() ORDER BY 1"
    ).fetchall()
    with suppress(duckdb.Error):
        compute(unchanged_hang.con, "fact", sql, {})
    unchanged_hang.con.execute("DROP TABLE IF EXISTS temp.fact")
    assert unchanged_hang.con.execute("FROM ops ORDER BY ALL").fetchall() == before
    found = unchanged_hang.con.execute(
        "SELECT table_name FROM duckdb_tables() ORDER BY 1"
    ).fetchall()
    assert found == tables


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "(" * (DEEPEST_FACT + 1) + "1" + ")" * (DEEPEST_FACT + 1),
        "SELECT " + "[" * 5000,
        "SELECT " + "1 + " * LONGEST_FACT + "1",
        "SELECT 1" + " UNION SELECT 1" * (LONGEST_FACT // 16),
        "SELECT " + "NOT " * (LONGEST_FACT // 5) + "true",
        "SELECT " + "CASE WHEN a THEN " * 500 + "1" + " END" * 500,
        "SELECT 1" + "::INT" * 1900,
    ],
)
def test_nothing_overruns_the_parser(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    read = read_sql(con, sql)
    assert read.faults or (read.sql == sql and not read.reads)


# ----------------------------------------------------------------------- limits


def contained(hang: Incident, book: Make, sql: str, limits: dict[str, Any]) -> str:
    """Why a rulebook with that fact was skipped, the other one having run."""
    hostile = book(("rulebook: tiny", "rulebook: hostile"))
    facts = dict(hostile.book.facts) | {"stuck": sql}
    hostile = replace(hostile, book=replace(hostile.book, facts=facts, case=("comm",)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = run(hang, [hostile, book()], **limits)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert [finding.rulebook for finding in outcome.findings] == ["tiny"]
    (skipped,) = outcome.skipped
    assert skipped.rule == "hostile"
    assert grown_kib < 256 * 2**10, grown_kib
    return skipped.why


def test_a_value_that_is_too_large_is_said_to_be(hang: Incident, book: Make) -> None:
    why = contained(hang, book, QUICK[0], {"memory_limit_bytes": 256 * 2**20})
    assert "more than 256 MiB of memory" in why


def test_an_answer_that_is_too_large_does_not_come(hang: Incident, book: Make) -> None:
    assert "larger than" in contained(hang, book, QUICK[1], {})


@pytest.mark.slow
@pytest.mark.parametrize("sql", CONTAINED)
def test_no_fact_takes_more_than_it_may(hang: Incident, book: Make, sql: str) -> None:
    limits = {"memory_limit_bytes": 512 * 2**20, "fact_time_limit_s": 10.0}
    why = contained(hang, book, sql, limits)
    assert re.search("longer than 10 s|more than|larger than", why), why


# ------------------------------------------------- around SQL: names, values, sentences


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("newest: SELECT", '"new\\"; DROP TABLE ops; --": SELECT'),
        ("newest: SELECT", "'n(SELECT 1)': SELECT"),
        ("newest: SELECT", '"ops": SELECT'),
        ("newest: SELECT", '"started": SELECT'),
        ("case: [job, comm]", 'case: [job, "comm\\" FROM (DELETE FROM ops)"]'),
        ("case: [job, comm]", "case: [job, '1; DROP TABLE ops']"),
        ("start_when: any(stuck)", "start_when: any(stuck; DROP TABLE ops)"),
        ("test: none(absent)", "test: none(absent) OR (DELETE FROM ops)"),
        ("blame: absent", 'blame: "absent\\"; DROP TABLE ops"'),
        ("hang_after:", '"hang_after) OR (1=1":'),
    ],
)
def test_names_are_names(tiny: str, old: str, new: str) -> None:
    assert old in tiny
    rulebook, problems = parse(tiny.replace(old, new), "tiny.yaml")
    assert rulebook is None and problems


@pytest.mark.parametrize("value", ["x'); DROP TABLE ops; --", "$hang_after", "{{ stuck }}", "\0"])
def test_values_are_bound_not_written(hang: Incident, book: Make, value: str) -> None:
    rulebook = book(("rank, observed_ns", "rank, $word AS word, observed_ns"))
    rulebook = replace(rulebook, params={**rulebook.params, "word": Quantity(value, "text")})
    before = hang.rows("ops")
    run(hang, [rulebook])
    assert hang.rows("ops") == before


@pytest.mark.parametrize(
    "sentence",
    [
        "{{ (DELETE FROM ops) }}",
        "{{ stuck.seq; DROP TABLE ops }}",
        "{{ stuck['seq'] }}",
        "{{ stuck.__class__.__mro__ }}",
        "{{ stuck | count('1; DROP TABLE ops') }}",
        "{{ stuck | sql }}",
        "{{ SELECT 1 }}",
        "{% for x in stuck %}",
        "{# stuck #}",
        "{{ {{ stuck }} }}",
    ],
)
def test_sentences_hold_no_code(sentence: str) -> None:
    with pytest.raises(TemplateError):
        parse_template(sentence)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nrulebook: *c\n", "alias"),
        ("rulebook: x\nfacts: {a: '" + "x" * 1_000_001 + "'}\n", "larger than 1,000,000"),
        ("rulebook: " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("rulebook:\n" + "".join(" " * n + "-\n" for n in range(1000)), "nested too deeply"),
        ("- " * 3000 + "x", "nested too deeply"),
        ("rulebook: !!python/object/apply:os.system ['true']\n", "a tag"),
        ("rulebook: !!binary aGk=\n", "rulebook"),
        ("<<: {rulebook: x}\nrulebook: y\n", "<<"),
        ("rulebook: \"\\ud800\"\n", "rulebook"),
        ("? [a, b]\n: x\n", ""),
    ],
)  # fmt: skip
def test_yaml_is_bounded(text: str, message: str) -> None:
    rulebook, problems = parse(text, "x.yaml")
    assert rulebook is None
    assert any(message in str(problem) for problem in problems), problems[:3]


def test_a_file_without_end_is_not_read(tmp_path: Path) -> None:
    endless = tmp_path / "x.yaml"
    with endless.open("wb") as file:
        file.truncate(100 * 2**30)  # sparse: it takes no room
    with Checker() as checker:
        (problem,) = checker.check_file(endless)
    assert "larger than 1,000,000 characters" in problem.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "rulebook: tiny\ndefaults: {ops: {a0: &a0 [x, x]"
            + "".join(f", a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60))
            + "}}\ntests: [{name: x, expect: [], given: {ops: [{job: *a59}]}}]\n",
            "aliases that stand for more than",
        ),
        ("tests: &a [*a]\n", "aliases that stand for more than"),
    ],
)
def test_aliases_of_tests_are_bounded(text: str, message: str) -> None:
    with pytest.raises(RulebookError, match=message):
        read_tests(Source("x.test.yaml", text))


def test_a_row_of_a_test_stands_for_so_many_and_no_more() -> None:
    row = {"rank": "0-99999", "seq": "0-99999"}
    case = TestCase(name="x", given={"ops": [row]}, expect=())
    with pytest.raises(UsageError, match="more than 1,000,000 rows"):
        evidence(TestFile(rulebook="x", tests=(case,)), case)


def test_a_check_computes_nothing_that_takes_for_ever(tiny: str) -> None:
    """To bind a call, DuckDB computes the constants in it."""
    bound = "quantile_cont(seq, length(repeat('x', 3000000000)) / 1e12)"
    text = tiny.replace("max(seq) AS seq FROM ops", f"{bound} AS seq FROM ops")
    assert text != tiny
    with Checker() as checker:
        problems = checker.check(text, "tiny.yaml")
        assert any("of memory" in problem.message for problem in problems), problems
        assert not [p for p in checker.check(tiny, "tiny.yaml") if "bare number" not in p.message]
