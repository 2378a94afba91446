"""Evidence that contradicts itself: what two records say that cannot both be.

An operation that was never launched and yet completed, a communicator with more members than its
size: whatever the cause (two jobs mixed, a ring overwritten, a clock stepped), what is concluded
from such evidence may be wrong, and "no fault found" above all. Each check compares records that
one process or one node wrote, or that hold whatever the clocks say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import duckdb

from oncall.core.units import format_duration, format_number
from oncall.evidence import Param, relation

_MOST_NAMED = 1_000  # ranks
_TABLES = ("ops", "launches", "comms", "ranks")


_Check: TypeAlias = "Callable[[duckdb.DuckDBPyConnection, Allowed], Iterator[Found]]"


@dataclass(frozen=True)
class Allowed:
    """What records may differ by without a contradiction: the relation's parameters."""

    clock_slack_ns: int
    birth_slack_ns: int
    board_slack: int
    restart_ns: int
    apart_ns: int
    clocks_ns: int


@dataclass(frozen=True)
class Found:
    """One kind of contradiction of one job."""

    job: str | None
    what: str
    count: int
    example: str
    tables: tuple[str, ...]
    ranks: list[int] | None = None
    nodes: list[str] | None = None


@relation(
    "contradictions",
    reads=["ops|launches|comms|ranks"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("what", "VARCHAR", "", "what cannot be true, with its count"),
        ("count", "BIGINT", "", "how often"),
        ("example", "VARCHAR", "", "one example"),
        ("tables", "VARCHAR[]", "", "the tables that contradict themselves or each other"),
        ("ranks", "INTEGER[]", "", "the ranks concerned; NULL: of none in particular"),
        ("nodes", "VARCHAR[]", "", "their hosts; NULL: of none in particular"),
    ],
    source="DESIGN 1: missing data is evidence, never health",
    params={
        "clock_slack": Param(
            "100 ms",
            "a device's times are converted to the host's clock, and a watchdog sees an end late",
        ),
        "birth_slack": Param(
            "10 s",
            "a process is registered when it initialises NCCL, by a clock that may be set at boot",
        ),
        "board_slack": Param(
            16,
            "a board is read while its process writes it: one number may be a few operations older",
        ),
        "restart": Param(
            "60 s", "a rank whose process starts elsewhere so much later was restarted there"
        ),
        "apart": Param("3650 d", "no job runs for so long: clocks are apart"),
        "clocks": Param("5 s", "clocks of one cluster are not farther apart"),
    },
)
def contradictions(
    con: duckdb.DuckDBPyConnection,
    *,
    clock_slack: int,
    birth_slack: int,
    board_slack: int,
    restart: int,
    apart: int,
    clocks: int,
) -> Mapping[str, Any]:
    """What the evidence says and what contradicts it, a row for each kind."""
    allowed = Allowed(clock_slack, birth_slack, board_slack, restart, apart, clocks)
    asked = ", ".join(f"EXISTS (FROM {table})" for table in _TABLES)
    (answers,) = con.execute(f"SELECT {asked}").fetchall()
    there = {table for table, has_rows in zip(_TABLES, answers, strict=True) if has_rows}
    needless = _needless(con, allowed) if "ops" in there else set()
    found = [
        one
        for check, needs in _CHECKS.items()
        if needs <= there and check not in needless
        for one in check(con, allowed)
    ]
    names = ("job", "what", "count", "example", "tables", "ranks", "nodes")
    return {name: [getattr(one, name) for one in found] for name in names}


def _needless(con: duckdb.DuckDBPyConnection, allowed: Allowed) -> set[_Check]:
    """The checks of times that cannot find anything, by one look at all operations: of sound
    evidence that is each of them."""
    ((early, wide, unborn),) = con.execute(
        f"""
        SELECT bool_or(ended_ns < greatest(enqueued_ns, started_ns) - {allowed.clock_slack_ns}),
            max(greatest(enqueued_ns, started_ns, ended_ns))
                - min(least(enqueued_ns, started_ns, ended_ns)) > {allowed.apart_ns},
            min(least(enqueued_ns, started_ns))
                < (SELECT max(started_ns) FROM ranks) - {allowed.birth_slack_ns}
        FROM ops
        """
    ).fetchall()
    checks = {_ended_early: early, _apart: wide, _before_birth: unborn}
    return {check for check, is_met in checks.items() if not is_met}


def _ended_early(con: duckdb.DuckDBPyConnection, allowed: Allowed) -> Iterator[Found]:
    """One process's record of one operation, by one clock."""
    for job, count, ranks, (early_ns, *key) in con.execute(
        f"""
        SELECT job, count(*), {_RANKS}, max((early_ns, op, seq, rank)) FROM (
            SELECT job, rank, op, seq, greatest(enqueued_ns, started_ns) - ended_ns AS early_ns
            FROM ops WHERE ended_ns < greatest(enqueued_ns, started_ns) - {allowed.clock_slack_ns})
        GROUP BY job
        """
    ).fetchall():
        what = f"{_many(count, 'operation')} ended before {_they(count)} began"
        example = f"{_call(*key)} {format_duration(early_ns)} before"
        yield Found(job, what, count, example, ("ops",), ranks)


def _ended_twice(con: duckdb.DuckDBPyConnection, allowed: Allowed) -> Iterator[Found]:
    """The same record twice is harmless; two that end at different times are not."""
    for job, count, ranks, (apart_ns, *key) in con.execute(
        f"""
        SELECT job, count(*), {_RANKS}, max((apart_ns, op, seq, rank)) FROM (
            SELECT job, comm, seq, rank, min(op) AS op, max(ended_ns) - min(ended_ns) AS apart_ns
            FROM ops WHERE kind = 'coll' AND ended_ns IS NOT NULL AND seq IS NOT NULL
            GROUP BY job, comm, seq, rank HAVING count(*) > 1)
        WHERE apart_ns > {allowed.clock_slack_ns} GROUP BY job
        """
    ).fetchall():
        what = f"{_many(count, 'operation')} completed twice"
        example = f"{_call(*key)}, {format_duration(apart_ns)} apart"
        yield Found(job, what, count, example, ("ops",), ranks)


def _completed_unlaunched(con: duckdb.DuckDBPyConnection, allowed: Allowed) -> Iterator[Found]:
    """A rank's own counters, read at one instant."""
    for job, count, ranks, (completed, launched, rank) in con.execute(
        f"""
        SELECT job, count(*), {_RANKS}, max((completed, launched, rank))
        FROM launches
        WHERE completed > launched
            + CASE WHEN source = 'board' THEN {allowed.board_slack} ELSE 0 END
        GROUP BY job
        """
    ).fetchall():
        what = f"{_many(count, 'rank')} completed more operations than {_they(count)} launched"
        example = f"rank {rank} launched {launched} and completed {completed}"
        yield Found(job, what, count, example, ("launches",), ranks)


def _recorded_unlaunched(con: duckdb.DuckDBPyConnection, allowed: Allowed) -> Iterator[Found]:
    """A rank's counters against its operations that had completed when they were read."""
    for job, count, ranks, (seq, launched, rank) in con.execute(
        f"""
        WITH counted AS (
            SELECT job, comm, rank, max(launched) AS launched, max(at_ns) AS at_ns
            FROM launches WHERE state IS NULL OR state = 'running' GROUP BY ALL),
        recorded AS (
            SELECT o.job, o.comm, o.rank, max(o.seq) AS seq, any_value(c.launched) AS launched
            FROM ops o JOIN counted c USING (job, comm, rank)
            WHERE o.kind = 'coll' AND (o.done OR o.ended_ns IS NOT NULL)
                AND coalesce(c.at_ns > greatest(o.enqueued_ns, o.started_ns, o.ended_ns)
                    + {allowed.clock_slack_ns}, true)
            GROUP BY ALL)
        SELECT job, count(*), {_RANKS}, max((seq, launched, rank))
        FROM recorded WHERE seq > launched GROUP BY job
        """
    ).fetchall():
        what = f"{_many(count, 'rank')} completed operations that {_they(count)} never launched"
        example = f"rank {rank} launched {launched} and completed number {seq}"
        yield Found(job, what, count, example, ("launches", "ops"), ranks)


def _before_birth(con: duckdb.DuckDBPyConnection, allowed: Allowed) -> Iterator[Found]:
    """By the clock of one node."""
    for job, count, ranks, (early_ns, rank) in con.execute(
        f"""
        WITH born AS (
            SELECT job, rank, min(started_ns) AS started_ns FROM ranks GROUP BY ALL
            HAVING count(*) = count(started_ns)),
        called AS (
            SELECT job, rank, min(least(enqueued_ns, started_ns)) AS called_ns FROM ops
            GROUP BY ALL)
        SELECT job, count(*), {_RANKS}, max((b.started_ns - called_ns, rank))
        FROM born b JOIN called USING (job, rank)
        WHERE called_ns < b.started_ns - {allowed.birth_slack_ns} GROUP BY job
        """
    ).fetchall():
        what = f"{_many(count, 'rank')} called operations before {_their(count)} process started"
        example = f"rank {rank} {format_duration(early_ns)} before"
        yield Found(job, what, count, example, ("ops", "ranks"), ranks)


def _apart(con: duckdb.DuckDBPyConnection, allowed: Allowed) -> Iterator[Found]:
    """Ranks whose times are years from the others'."""
    for job, count, ranks, (apart_ns, rank) in con.execute(
        f"""
        WITH each AS (
            SELECT job, rank, min(least(enqueued_ns, started_ns, ended_ns)) AS first_ns,
                max(greatest(enqueued_ns, started_ns, ended_ns)) AS last_ns
            FROM ops GROUP BY ALL),
        -- The lower of the two in the middle: that of the majority, if there is one.
        middle AS (SELECT job, quantile_disc(first_ns, 0.5) AS at_ns FROM each GROUP BY job)
        SELECT job, count(*), {_RANKS},
            max((greatest(abs(first_ns - at_ns), abs(last_ns - at_ns)), rank))
        FROM each JOIN middle USING (job)
        WHERE greatest(abs(first_ns - at_ns), abs(last_ns - at_ns)) > {allowed.apart_ns}
        GROUP BY job
        """
    ).fetchall():
        what = f"{_many(count, 'rank')} recorded times years from the other ranks'"
        example = f"rank {rank}, {format_duration(apart_ns)} away"
        yield Found(job, what, count, example, ("ops",), ranks)


def _of_another_run(con: duckdb.DuckDBPyConnection, allowed: Allowed) -> Iterator[Found]:
    """Ranks that called on after others had completed what they never called.

    Who completes such a collective has seen all members call it, so a rank that is behind was
    recorded earlier, and made its last call earlier.
    """
    for job, count, ranks, (rank, seq, done_seq, later_ns) in con.execute(
        f"""
        WITH fronts AS (
            SELECT job, comm, rank, max(seq) AS seq,
                max(seq) FILTER ((done OR ended_ns IS NOT NULL) AND op IN (
                    'AllReduce', 'AllGather', 'ReduceScatter', 'AllToAll', 'Barrier')) AS done_seq,
                max(greatest(enqueued_ns, started_ns)) AS at_ns
            FROM ops WHERE kind = 'coll' AND comm IS NOT NULL AND rank IS NOT NULL GROUP BY ALL),
        first AS (
            SELECT job, comm, max(done_seq) AS done_seq, arg_max(at_ns, done_seq) AS at_ns
            FROM fronts GROUP BY job, comm)
        SELECT job, count(DISTINCT rank), {_RANKS},
            max((rank, f.seq, a.done_seq, f.at_ns - a.at_ns))
        FROM fronts f JOIN first a USING (job, comm)
        WHERE f.seq < a.done_seq AND f.at_ns > a.at_ns + {allowed.clocks_ns} GROUP BY job
        """
    ).fetchall():
        what = f"{_many(count, 'rank')} made {_their(count)} last calls after others had gone on "
        what += "without them: files of different runs, or clocks that are wrong"
        example = (
            f"rank {rank} came to number {seq}, {format_duration(later_ns)} after others had "
            f"completed number {done_seq}"
        )
        yield Found(job, what, count, example, ("ops",), ranks)


def _crowded(con: duckdb.DuckDBPyConnection, allowed: Allowed) -> Iterator[Found]:  # noqa: ARG001
    """A communicator's members against its size, and their sizes against one another."""
    rows = con.execute(
        """
        SELECT job, comm, any_value(coalesce(name, role)), count(DISTINCT rank), max(size),
            min(size)
        FROM comms WHERE comm IS NOT NULL AND rank IS NOT NULL GROUP BY job, comm
        HAVING count(DISTINCT rank) > max(size) OR min(size) < max(size)
            OR count(DISTINCT (comm_rank, rank)) FILTER (comm_rank IS NOT NULL) > least(
                count(DISTINCT comm_rank), count(DISTINCT rank) FILTER (comm_rank IS NOT NULL))
        ORDER BY ALL
        """
    ).fetchall()
    kinds: dict[tuple[Any, str], list[str]] = {}
    for job, comm, name, members, size, least in rows:
        label = f"{name or 'communicator'} {comm:#018x}"
        if size is not None and least < size:
            key, example = "with members of different sizes", f"{label}: {least} and {size}"
        elif size is not None and members > size:
            key, example = "with more members than the size", f"{label}: {members} of {size}"
        else:
            key, example = "with two members in one place", label
        kinds.setdefault((job, key), []).append(example)
    for (job, key), examples in kinds.items():
        what = f"{_many(len(examples), 'communicator')} {key}"
        yield Found(job, what, len(examples), examples[0], ("comms",))


def _two_homes(con: duckdb.DuckDBPyConnection, allowed: Allowed) -> Iterator[Found]:
    """A rank is one process on one node; one that was restarted started later."""
    for job, count, ranks, (rank, nodes) in con.execute(
        f"""
        SELECT job, count(*), {_RANKS}, min((rank, nodes)) FROM (
            SELECT job, rank, list(DISTINCT node ORDER BY node) AS nodes FROM ranks
            WHERE node IS NOT NULL AND rank IS NOT NULL GROUP BY job, rank
            HAVING count(DISTINCT node) > 1
                AND coalesce(max(started_ns) - min(started_ns), 0) < {allowed.restart_ns})
        GROUP BY job
        """
    ).fetchall():
        what = f"{_many(count, 'rank')} on two nodes at once"
        example = f"rank {rank} on {' and '.join(nodes[:2])}"
        yield Found(job, what, count, example, ("ranks",), ranks)


_RANKS = f"list(DISTINCT rank ORDER BY rank)[:{_MOST_NAMED}]"
_CHECKS: Mapping[_Check, set[str]] = {
    _ended_early: {"ops"},
    _ended_twice: {"ops"},
    _completed_unlaunched: {"launches"},
    _recorded_unlaunched: {"launches", "ops"},
    _before_birth: {"ops", "ranks"},
    _apart: {"ops"},
    _of_another_run: {"ops"},
    _crowded: {"comms"},
    _two_homes: {"ranks"},
}


def _many(count: int, word: str) -> str:
    return f"{format_number(count)} {word}" + ("" if count == 1 else "s")


def _they(count: int) -> str:
    return "it" if count == 1 else "they"


def _their(count: int) -> str:
    return "its" if count == 1 else "their"


def _call(op: str | None, seq: int | None, rank: int | None) -> str:
    return f"{op or 'operation'} {'?' if seq is None else seq} of rank {rank}"
