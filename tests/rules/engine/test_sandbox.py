"""Rule SQL can reach nothing but evidence, and cannot run for ever."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import duckdb
import pytest

from oncall.evidence.incident import Incident
from oncall.rules.engine.engine import run
from oncall.rules.engine.sandbox import Watchdog, close_sandbox
from oncall.rules.language.rulebook import Rulebook

Make = Callable[..., Rulebook]

OUTSIDE = [
    "SELECT 'j' AS job, 1 AS comm FROM read_csv('/etc/passwd')",
    "SELECT 'j' AS job, 1 AS comm FROM '/etc/passwd'",
    "SELECT 'j' AS job, 1 AS comm FROM read_text('/etc/passwd')",
    "SELECT 'j' AS job, 1 AS comm FROM glob('/etc/*')",
    "SELECT 'j' AS job, 1 AS comm FROM query('SELECT 1')",
    "SELECT 'j' AS job, 1 AS comm FROM duckdb_settings()",
    "SELECT 'j' AS job, 1 AS comm FROM duckdb_secrets()",
    "SELECT 'j' AS job, 1 AS comm FROM information_schema.tables",
    "SELECT 'j' AS job, 1 AS comm FROM sqlite_master",
    "SELECT 'j' AS job, 1 AS comm FROM python_secret",
    "SELECT current_setting('memory_limit') AS job, 1 AS comm",
    "SELECT getenv('HOME') AS job, 1 AS comm",
    "SELECT getvariable('x') AS job, 1 AS comm",
    "SELECT current_user AS job, 1 AS comm",
    "SELECT 'j' AS job, random() AS comm",
    "COPY ops TO '/tmp/stolen.csv'",
    "ATTACH '/tmp/other.db'",
    "SET threads = 1",
    "INSTALL httpfs",
    "LOAD json",
    "PRAGMA database_list",
    "DELETE FROM ops",
    "CREATE TABLE x AS SELECT 1",
    "SELECT 1 AS job, 1 AS comm; DROP TABLE ops",
    "SHOW TABLES",
    "CALL pragma_version()",
]

python_secret = [("a Python object by that name",)]


def hostile(book: Make, sql: str) -> Rulebook:
    """TINY as `hostile`, its start fact replaced."""
    rulebook = book(("rulebook: tiny", "rulebook: hostile"))
    facts = dict(rulebook.book.facts) | {"stuck": sql}
    return Rulebook(
        "hostile.yaml",
        rulebook.text,
        replace(rulebook.book, facts=facts),
        rulebook.params,
    )


@pytest.mark.parametrize("sql", OUTSIDE)
def test_what_is_not_evidence_is_out_of_reach(hang: Incident, book: Make, sql: str) -> None:
    before = hang.rows("ops")
    outcome = run(hang, [hostile(book, sql), book()])
    (skipped,) = outcome.skipped
    assert skipped.rule == "hostile"
    assert re.match(r"hostile\.yaml:11:\d+: stuck: ", skipped.why), skipped.why
    assert [finding.rulebook for finding in outcome.findings] == ["tiny"]
    assert hang.rows("ops") == before


@pytest.mark.parametrize(
    "sql",
    [
        "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) "
        "SELECT 'j' AS job, i AS comm FROM r",
        "SELECT 'j' AS job, count(*) AS comm FROM range(1000000000000) a, range(1000000000000) b",
        "SELECT 'j' AS job, a.range AS comm FROM range(1000000000000) a, range(1000000000000) b",
    ],
)
def test_sql_that_never_ends_is_stopped(hang: Incident, book: Make, sql: str) -> None:
    limits = {"fact_time_limit_s": 0.25, "memory_limit_bytes": 256 * 2**20}
    outcome = run(hang, [hostile(book, sql), book()], **limits)
    (skipped,) = outcome.skipped
    assert "longer than 250 ms" in skipped.why or "more than 256 MiB of memory" in skipped.why
    assert [finding.rulebook for finding in outcome.findings] == ["tiny"]


def test_the_connection_stays_closed_behind_the_engine(hang: Incident) -> None:
    close_sandbox(hang.con)
    close_sandbox(hang.con)
    with pytest.raises(Exception, match="disabled by configuration"):
        hang.con.execute("SELECT * FROM read_text('/etc/hostname')")
    with pytest.raises(Exception, match="locked"):
        hang.con.execute("SET enable_external_access = true")


def test_a_limit_that_was_kept_interrupts_nothing_later(hang: Incident) -> None:
    watchdog = Watchdog(hang.con)
    for _ in range(20):
        with watchdog.limit(0.0):
            pass
        assert hang.con.execute("SELECT sum(range) FROM range(100000)").fetchone() is not None
    watchdog.close()
    assert not watchdog.barked


def test_an_overrun_is_interrupted_and_the_next_query_is_not(hang: Incident) -> None:
    watchdog = Watchdog(hang.con)
    with pytest.raises(duckdb.InterruptException), watchdog.limit(0.1):
        hang.con.execute("SELECT count(*) FROM range(10000000000000) a").fetchall()
    assert watchdog.barked
    with watchdog.limit(60):
        assert hang.con.execute("SELECT 1").fetchone() == (1,)
    assert not watchdog.barked
    watchdog.close()
