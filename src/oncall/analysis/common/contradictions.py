"""Evidence that contradicts itself: what two records say that cannot both be.

An operation that was never launched and yet completed, a communicator with more members than its
size: whatever the cause (two jobs mixed, a ring overwritten, a clock stepped), what is concluded
from such evidence may be wrong, and "no fault found" above all. Each check compares records that
one process or one node wrote, or that hold whatever the clocks say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from oncall.core.units import counted, format_duration
from oncall.evidence import Param, relation

_MOST_NAMED = 1_000  # ranks
_COLUMNS = [
    "job",
    ("what", "VARCHAR", "", "what cannot be true, with its count"),
    ("count", "BIGINT", "", "how often"),
    ("example", "VARCHAR", "", "one example"),
    ("tables", "VARCHAR[]", "", "the tables that contradict themselves or each other"),
    ("ranks", "INTEGER[]", "", "the ranks concerned; NULL: of none in particular"),
]


@dataclass(frozen=True)
class _Check:
    """`sql` has a row (job, rank, key) for each contradiction; the greatest key is the example.
    `what` counts operations or ranks: a word in braces, and it/they and its/their after it."""

    tables: tuple[str, ...]
    what: str
    example: Callable[..., str]
    sql: str


def _call(op: str | None, seq: int | None, rank: int | None) -> str:
    return f"{op or 'operation'} {'?' if seq is None else seq} of rank {rank}"


_CHECKS = (
    # One process's record of one operation, by one clock.
    _Check(
        ("ops",),
        "{operation} ended before {they} began",
        lambda early_ns, *call: f"{_call(*call)} {format_duration(early_ns)} before",
        """SELECT job, rank, (greatest(enqueued_ns, started_ns) - ended_ns, op, seq, rank) AS key
           FROM ops WHERE ended_ns < greatest(enqueued_ns, started_ns) - $clock_slack""",
    ),
    # The same record twice is harmless; two that end at different times are not.
    _Check(
        ("ops",),
        "{operation} completed twice",
        lambda apart_ns, *call: f"{_call(*call)}, {format_duration(apart_ns)} apart",
        """SELECT job, rank, (max(ended_ns) - min(ended_ns), min(op), seq, rank) AS key
           FROM ops WHERE kind = 'coll' AND ended_ns IS NOT NULL AND seq IS NOT NULL
           GROUP BY job, comm, seq, rank
           HAVING count(*) > 1 AND max(ended_ns) - min(ended_ns) > $clock_slack""",
    ),
    # A rank's own counters, read at one instant.
    _Check(
        ("launches",),
        "{rank} completed more operations than {they} launched",
        lambda done, launched, rank: f"rank {rank} launched {launched} and completed {done}",
        """SELECT job, rank, (completed, launched, rank) AS key FROM launches
           WHERE completed > launched + CASE WHEN source = 'board' THEN $board_slack ELSE 0 END""",
    ),
    # A rank's counters against its operations that had completed when they were read.
    _Check(
        ("launches", "ops"),
        "{rank} completed operations that {they} never launched",
        lambda seq, launched, rank: f"rank {rank} launched {launched} and completed number {seq}",
        """WITH counted AS (
               SELECT job, comm, rank, max(launched) AS launched, max(at_ns) AS at_ns
               FROM launches WHERE state IS NULL OR state = 'running' GROUP BY ALL)
           SELECT o.job, o.rank, (max(o.seq), any_value(c.launched), o.rank) AS key
           FROM ops o JOIN counted c USING (job, comm, rank)
           WHERE o.kind = 'coll' AND (o.done OR o.ended_ns IS NOT NULL)
               AND coalesce(c.at_ns > greatest(o.enqueued_ns, o.started_ns, o.ended_ns)
                   + $clock_slack, true)
           GROUP BY o.job, o.comm, o.rank HAVING max(o.seq) > any_value(c.launched)""",
    ),
    # By the clock of one node.
    _Check(
        ("ops", "ranks"),
        "{rank} called operations before {their} process started",
        lambda early_ns, rank: f"rank {rank} {format_duration(early_ns)} before",
        """WITH born AS (
               SELECT job, rank, min(started_ns) AS started_ns FROM ranks GROUP BY ALL
               HAVING count(*) = count(started_ns))
           SELECT job, rank, (b.started_ns - min(least(enqueued_ns, o.started_ns)), rank) AS key
           FROM ops o JOIN born b USING (job, rank) GROUP BY job, rank, b.started_ns
           HAVING min(least(enqueued_ns, o.started_ns)) < b.started_ns - $clocks""",
    ),
    # From the lower of the two in the middle: that of the majority, if there is one.
    _Check(
        ("ops",),
        "{rank} recorded times years from the other ranks'",
        lambda apart_ns, rank: f"rank {rank}, {format_duration(apart_ns)} away",
        """WITH each AS (
               SELECT job, rank, min(least(enqueued_ns, started_ns, ended_ns)) AS first_ns,
                   max(greatest(enqueued_ns, started_ns, ended_ns)) AS last_ns
               FROM ops GROUP BY ALL)
           SELECT job, rank, (greatest(abs(first_ns - at_ns), abs(last_ns - at_ns)), rank) AS key
           FROM each JOIN (SELECT job, quantile_disc(first_ns, 0.5) AS at_ns FROM each GROUP BY job)
               USING (job)
           WHERE greatest(abs(first_ns - at_ns), abs(last_ns - at_ns)) > $apart""",
    ),
    # Who completes such a collective has seen all members call it, so a rank that is behind was
    # recorded earlier, and made its last call earlier.
    _Check(
        ("ops",),
        "{rank} made {their} last calls after others had gone on without them: files of different "
        "runs, or clocks that are wrong",
        lambda rank, seq, done_seq, later_ns: (
            f"rank {rank} came to number {seq}, {format_duration(later_ns)} after others had "
            f"completed number {done_seq}"
        ),
        """WITH fronts AS (
               SELECT job, comm, rank, max(seq) AS seq,
                   max(seq) FILTER ((done OR ended_ns IS NOT NULL) AND op IN ('AllReduce',
                       'AllGather', 'ReduceScatter', 'AllToAll', 'Barrier')) AS done_seq,
                   max(greatest(enqueued_ns, started_ns)) AS at_ns
               FROM ops WHERE kind = 'coll' AND comm IS NOT NULL AND rank IS NOT NULL GROUP BY ALL),
           first AS (
               SELECT job, comm, max(done_seq) AS done_seq, arg_max(at_ns, done_seq) AS at_ns
               FROM fronts GROUP BY job, comm)
           SELECT job, rank, (rank, f.seq, a.done_seq, f.at_ns - a.at_ns) AS key
           FROM fronts f JOIN first a USING (job, comm)
           WHERE f.seq < a.done_seq AND f.at_ns > a.at_ns + $clocks""",
    ),
    # A rank is one process on one node; one that was restarted started later.
    _Check(
        ("ranks",),
        "{rank} on two nodes at once",
        lambda rank, nodes: f"rank {rank} on {' and '.join(nodes[:2])}",
        """SELECT job, rank, (rank, list(DISTINCT node ORDER BY node)) AS key FROM ranks
           WHERE node IS NOT NULL AND rank IS NOT NULL GROUP BY job, rank
           HAVING count(DISTINCT node) > 1
               AND coalesce(max(started_ns) - min(started_ns), 0) < $restart""",
    ),
)
# A communicator's members against its size, and their sizes against one another.
_CROWDED = """
    SELECT job, comm, any_value(coalesce(name, role)), count(DISTINCT rank), max(size), min(size)
    FROM comms WHERE comm IS NOT NULL AND rank IS NOT NULL GROUP BY job, comm
    HAVING count(DISTINCT rank) > max(size) OR min(size) < max(size)
        OR count(DISTINCT (comm_rank, rank)) FILTER (comm_rank IS NOT NULL) > least(
            count(DISTINCT comm_rank), count(DISTINCT rank) FILTER (comm_rank IS NOT NULL))
    ORDER BY ALL
"""


@relation(
    "contradictions",
    reads=["ops|launches|comms|ranks"],
    columns=_COLUMNS,
    source="DESIGN 1: missing data is evidence, never health",
    params={
        "clock_slack": Param(
            "100 ms",
            "within which a watchdog notices an end; and a device's times are converted",
        ),
        "board_slack": Param(
            16,
            "a board is read while its process writes it: one number may be a few operations older",
        ),
        "restart": Param("60 s", "a process that starts elsewhere so much later restarted there"),
        "apart": Param("3650 d", "no job runs for so long: clocks are apart"),
        "clocks": Param("10 s", "clocks of one cluster, or one set at boot, are not farther apart"),
    },
)
def contradictions(con: duckdb.DuckDBPyConnection, **allowed: int) -> Mapping[str, Any]:
    """What the evidence says and what contradicts it, a row for each kind."""
    found = [*_checked(con, allowed), *_crowded(con)]
    return contradictions.by_column(found)


def _checked(
    con: duckdb.DuckDBPyConnection, allowed: Mapping[str, int]
) -> Iterator[tuple[Any, ...]]:
    for check in _CHECKS:
        word = "operation" if "{operation}" in check.what else "rank"
        each = "*" if word == "operation" else "DISTINCT rank"
        slack = {name: ns for name, ns in allowed.items() if f"${name}" in check.sql}
        for job, count, ranks, key in con.execute(
            f"SELECT job, count({each}), list(DISTINCT rank ORDER BY rank)[:{_MOST_NAMED}], "
            f"max(key) FROM ({check.sql}) GROUP BY job",
            slack,
        ).fetchall():
            they, their = ("it", "its") if count == 1 else ("they", "their")
            what = check.what.format(**{word: counted(count, word)}, they=they, their=their)
            yield job, what, count, check.example(*key), check.tables, ranks


def _crowded(con: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    kinds: dict[tuple[Any, str], list[str]] = {}
    for job, comm, name, members, size, least in con.execute(_CROWDED).fetchall():
        label = f"{name or 'communicator'} {comm:#018x}"
        if size is not None and least < size:
            key, example = "with members of different sizes", f"{label}: {least} and {size}"
        elif size is not None and members > size:
            key, example = "with more members than the size", f"{label}: {members} of {size}"
        else:
            key, example = "with two members in one place", label
        kinds.setdefault((job, key), []).append(example)
    for (job, key), examples in kinds.items():
        what = f"{counted(len(examples), 'communicator')} {key}"
        yield job, what, len(examples), examples[0], ("comms",), None
