"""The digest: a thinned selection of operations small enough to ask of every node.

The rows stay what they are, so every relation and rulebook reads them as it reads all of them:

- all that is in flight, and the last 16 of each rank on each communicator: every rank's position;
- in each minute, each rank's longest operation of a kind, and the one before which it was itself
  busy for longest: the one that waited and the one that was waited for keep the same round;
- of the rest one in 2^k by number, k as small as `budget_rows` allows, by communicator: the same
  rounds on every node (evidence/sampling.py).

`stands_for` says for how many rounds a row was kept. `own_ns`, a rank's own time before a
collective, needs all rows, so it is measured here, before thinning.

When a shard is sealed, its candidates are stored in it (shard_digest.py): a question about ten
minutes then reads some thousand rows of each shard instead of all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oncall.evidence.columns import create_table_sql, insert
from oncall.evidence.sampling import is_sampled, number
from oncall.evidence.schema import BY_NAME, Column
from oncall.evidence.training_tables import IN_FLIGHT

if TYPE_CHECKING:
    import duckdb

LAST = 16  # operations of each rank on each communicator that are kept whatever they are
LAST_MOVED = 4  # rounds of each rank on each communicator of which all transfers are kept
MINUTE_NS = 60 * 10**9
LEFT_OFF = tuple(  # of the temporary `digest_left_off`
    Column(name, type_, "", "")
    for name, type_ in (
        *(("job", "VARCHAR"), ("comm", "UBIGINT"), ("rank", "INTEGER")),
        *(("collective", "BOOLEAN"), ("seq", "BIGINT"), ("at_ns", "BIGINT")),
    )
)
# Operations of how many processes are measured together: those of a busy node's minute, all at
# once, would take as much memory as everything else.
MEASURED_TOGETHER = 1 << 16
MEASURED_NS = 3600 * 10**9  # how much own time there may be between two rounds, to be measured

# Of what a damaged ring left in a shard the difference may not fit: then it is not known.
_DURATION = "coalesce(duration_ns, TRY(ended_ns - started_ns))"
_ENTERED = "coalesce(started_ns, enqueued_ns)"
_KEY = ("job", "comm", "kind", "rank", "seq")
# One number for several names: comparing four columns of text takes four times as long.
_GROUP = "hash({0}job, {0}comm, {0}kind)"
_MEMBER = "hash({0}job, {0}comm, {0}kind, {0}rank)"
_CALL = "hash({0}job, {0}comm, {0}kind, {0}rank, {0}seq)"


@dataclass(frozen=True)
class Size:
    """One communicator's operations of one kind: rounds of its busiest rank, ranks, and how many
    rounds a row stands for already (a power of two)."""

    group: int  # hash of job, communicator and kind
    rounds: int
    ranks: int
    step: int = 1


def same(left: str, right: str, columns: Sequence[str]) -> str:
    """SQL: the rows `left` and `right` agree in the columns, unknown ones included."""
    return " AND ".join(f"{left}.{name} IS NOT DISTINCT FROM {right}.{name}" for name in columns)


def thin(
    con: duckdb.DuckDBPyConnection,
    source: str,
    target: str,
    budget_rows: int,
    *,
    shard: str | None = None,
) -> None:
    """Make `target` (TABLE or TEMP TABLE, and its name) of about `budget_rows` rows of `source`, a
    table or view with the columns of ops.

    `shard`: the table whose rows `source` shows with own times. There are so few that what is
    compared of them fits into memory, and `source`, a join, is read only once.
    """
    narrow = "TABLE" if shard else "VIEW"
    con.execute(
        f"""
        CREATE OR REPLACE TEMP {narrow} digest_narrow AS
        SELECT {_GROUP.format("o.")} AS comm_kind, {_MEMBER.format("o.")} AS member,
            {_CALL.format("o.")} AS call, seq, {number("o")} AS number, hash(op, bytes) AS what,
            own_ns, {_DURATION} AS took_ns, stands_for,
            coalesce({_ENTERED}, ended_ns) // {MINUTE_NS} AS minute, {IN_FLIGHT} AS open
        FROM {source} o
        """
    )
    _create_steps(con, choose_steps(_sizes(con), budget_rows))
    con.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE digest_kept AS
        WITH heads AS (SELECT member, max(seq) AS seq FROM temp.digest_narrow GROUP BY member)
        SELECT unnest([arg_max(call, took_ns), arg_max(call, own_ns)]) AS call
        FROM temp.digest_narrow GROUP BY member, what, minute
        UNION SELECT call FROM temp.digest_narrow WHERE open
        UNION SELECT n.call FROM temp.digest_narrow n JOIN heads h USING (member)
        WHERE n.seq > TRY(h.seq - {LAST}) OR n.seq IS NULL
        """
    )
    sampled = is_sampled("number", "step")
    columns = (f"o.{name}" for name in BY_NAME["ops"].column_names if name not in _CHOSEN)
    con.execute(
        f"""
        CREATE OR REPLACE {target} AS
        WITH chosen AS (
            SELECT call, max(own_ns) AS own_ns,
                max(CASE WHEN {sampled} THEN step ELSE 1 END)::INTEGER AS stands_for
            FROM temp.digest_narrow JOIN temp.digest_steps USING (comm_kind)
            WHERE {sampled} OR call IN (SELECT call FROM temp.digest_kept WHERE call IS NOT NULL)
            GROUP BY call)
        SELECT {", ".join(columns)}, c.own_ns, c.stands_for
        FROM {shard or source} o JOIN chosen c ON {_CALL.format("o.")} = c.call
        """
    )
    con.execute(f"DROP {narrow} temp.digest_narrow; DROP TABLE temp.digest_kept")


_CHOSEN = ("own_ns", "stands_for")  # columns that choosing gives


def thin_transfers(
    con: duckdb.DuckDBPyConnection, source: str, target: str, budget_rows: int
) -> None:
    """Make `target` (TABLE or TEMP TABLE, and its name) of about `budget_rows` rows of `source`,
    which has the columns of transfers: those in flight, those of a rank's last rounds on a
    communicator (a part of an operation may be over while another hangs), and of the rest one
    round in 2^k."""
    columns = ", ".join(f"t.{c}" for c in BY_NAME["transfers"].column_names if c != "stands_for")
    if not con.execute(f"SELECT 1 FROM {source} LIMIT 1").fetchall():
        con.execute(f"CREATE OR REPLACE {target} AS FROM transfers LIMIT 0")
        return
    rows = con.execute(
        f"""
        SELECT comm_kind, (sum(weight) / max(a_round))::BIGINT, max(a_round), max(step) FROM (
            SELECT {_GROUP.format("")} AS comm_kind, sum(coalesce(stands_for, 1)) AS weight,
                max(coalesce(stands_for, 1)) AS step, count(DISTINCT rank)
                    * ceil(count(*) / count(DISTINCT (rank, seq)))::BIGINT AS a_round
            FROM {source} GROUP BY ALL)
        GROUP BY ALL
        """
    ).fetchall()
    _create_steps(con, choose_steps([Size(*row) for row in rows], budget_rows))
    sampled = is_sampled("coalesce(t.seq, 0)", "s.step")
    con.execute(
        f"""
        CREATE OR REPLACE {target} AS
        WITH heads AS (
            SELECT {_MEMBER.format("")} AS member, max(seq) AS seq FROM {source} GROUP BY ALL)
        SELECT {columns}, CASE WHEN {sampled} THEN s.step ELSE 1 END AS stands_for
        FROM {source} t JOIN temp.digest_steps s ON {_GROUP.format("t.")} = s.comm_kind
        JOIN heads h ON {_MEMBER.format("t.")} = h.member
        WHERE {sampled} OR t.ended_ns IS NULL OR t.seq > TRY(h.seq - {LAST_MOVED}) OR t.seq IS NULL
        """
    )


def choose_steps(sizes: Sequence[Size], budget_rows: int) -> dict[int, int]:
    """How thin to sample each communicator so that all fit: one of 1, 2, 4, ... rounds.

    Every rank may keep the same number of rows of each communicator; what the quiet ones leave
    over goes to the busier ones.
    """
    left, members = budget_rows, sum(size.ranks for size in sizes)
    steps: dict[int, int] = {}
    for size in sorted(sizes, key=lambda size: size.rounds):
        share = max(1, left // members)
        least = 2 ** max(0, math.ceil(math.log2(size.rounds / share)))
        steps[size.group] = max(least, size.step)
        left = max(0, left - size.ranks * (size.rounds // steps[size.group]))
        members -= size.ranks
    return steps


def _sizes(con: duckdb.DuckDBPyConnection) -> list[Size]:
    """The size of each communicator in `digest_narrow`, by kind."""
    rows = con.execute(
        """
        SELECT comm_kind, max(rounds)::BIGINT, count(*), max(step) FROM (
            SELECT comm_kind, member, sum(coalesce(stands_for, 1)) AS rounds,
                max(coalesce(stands_for, 1)) AS step
            FROM temp.digest_narrow GROUP BY ALL)
        GROUP BY ALL
        """
    ).fetchall()
    return [Size(*row) for row in rows]


def _create_steps(con: duckdb.DuckDBPyConnection, steps: Mapping[int, int]) -> None:
    con.execute(
        "CREATE OR REPLACE TEMP TABLE digest_steps AS "
        "SELECT unnest(?::UBIGINT[]) AS comm_kind, unnest(?::INTEGER[]) AS step",
        [list(steps), list(steps.values())],
    )


def measure_own_time(
    con: duckdb.DuckDBPyConnection,
    source: str,
    target: str,
    before: Sequence[tuple[Any, ...]] = (),
) -> None:
    """Make the temporary view `target`: the rows of `source`, each collective with its own time
    since the one before it on the communicator, where nothing in between was lost.

    What came before the rows of `source` may be given as `before`, rows of the table that this
    makes for who comes after: the temporary `digest_left_off`.
    """
    import numpy as np

    from oncall.analysis.rounds.own_time import left_off, since_last_round, timeline

    put_rows(con, "digest_earlier", LEFT_OFF, before)
    # Numbers for names: a job's name would be a Python string in every row, and windows over all
    # rows would sort them.
    con.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE digest_members AS
        SELECT job, comm, rank, dense_rank() OVER by_process AS process,
            row_number() OVER () AS member,
            (sum(calls) OVER by_process // {MEASURED_TOGETHER})::INTEGER AS portion
        FROM (SELECT job, comm, rank, sum(calls) AS calls FROM (
                  SELECT job, comm, rank, count(*) AS calls FROM {source} GROUP BY ALL UNION ALL
                  SELECT job, comm, rank, 1 FROM temp.digest_earlier)
              WHERE job IS NOT NULL GROUP BY ALL)
        WINDOW by_process AS (ORDER BY job, rank);
        CREATE OR REPLACE TEMP TABLE digest_own (call UBIGINT, own_ns BIGINT)
        """
    )
    last_calls = [np.empty((8, 0), dtype=np.int64)]
    for (portion,) in con.execute("SELECT DISTINCT portion FROM temp.digest_members").fetchall():
        hashes, calls = _calls(con, source, portion)
        line = timeline(calls)
        row, own_ns = since_last_round(line)
        # Where the clock was set back, what came before seems to follow what came after.
        known = (row >= 0) & ~np.ma.getmaskarray(own_ns)
        measured = {"call": hashes[row[known]], "own_ns": own_ns.data[known]}
        con.register("digest_measured_ns", measured)
        con.execute("INSERT INTO temp.digest_own SELECT call, own_ns FROM digest_measured_ns")
        con.unregister("digest_measured_ns")
        last_calls.append(left_off(line))
    _keep_left_off(con, np.concatenate(last_calls, axis=1))
    con.execute(
        f"CREATE OR REPLACE TEMP VIEW {target} AS "
        "SELECT o.* REPLACE (coalesce(o.own_ns, w.own_ns) AS own_ns) FROM "
        f"{source} o LEFT JOIN temp.digest_own w "
        f"ON o.kind = 'coll' AND {_CALL.format('o.')} = w.call"
    )


def _calls(con: duckdb.DuckDBPyConnection, source: str, portion: int) -> tuple[Any, Any]:
    """Hashes (n,) of the calls of a portion of the processes, and calls (8, m) as `timeline` takes
    them: what came before, of which the row is negative, and those n."""
    import numpy as np

    names = ("process", "member", "collective", "seq", "on_device", "entered_ns", "left_ns")
    earlier = con.execute(
        "SELECT process, member, collective, seq, true AS on_device, at_ns AS entered_ns, "
        "at_ns AS left_ns FROM temp.digest_earlier "
        "JOIN temp.digest_members USING (job, comm, rank) WHERE portion = ?",
        [portion],
    ).fetchnumpy()
    found = con.execute(
        f"""
        SELECT seq, kind = 'coll' AS collective, process, member, {_CALL.format("")} AS call,
            started_ns IS NOT NULL AS on_device, {_ENTERED} AS entered_ns,
            TRY({_ENTERED} + {_DURATION}) AS left_ns
        FROM {source} JOIN temp.digest_members USING (job, comm, rank)
        -- What is thinned already was measured when all rows were there.
        WHERE portion = ? AND stands_for IS NULL AND seq IS NOT NULL
            AND TRY({_ENTERED} + {_DURATION}) IS NOT NULL
        """,
        [portion],
    ).fetchnumpy()
    rows = np.arange(len(found["call"]) + len(earlier["seq"])) - len(earlier["seq"])
    each = (np.concatenate([earlier[name], found[name]]) for name in names)
    return found["call"], np.array([rows, *each], dtype=np.int64)


def put_rows(
    con: duckdb.DuckDBPyConnection,
    table: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[Any]],
) -> None:
    """Make the temporary table `table` of plain rows with these columns."""
    made = create_table_sql(table, columns).replace("TABLE", "OR REPLACE TEMP TABLE", 1)
    con.execute(made)
    if rows:
        values = zip(*rows, strict=True)
        insert(
            con,
            table,
            columns,
            dict(zip((c.name for c in columns), map(list, values), strict=True)),
        )


def _keep_left_off(con: duckdb.DuckDBPyConnection, calls: Any) -> None:
    """Make the temporary table `digest_left_off` of calls (8, m) as `left_off` gives them."""
    names = ("member", "collective", "seq", "at_ns")
    con.register("digest_last_calls", dict(zip(names, calls[[2, 3, 4, 6]], strict=True)))
    con.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE digest_left_off AS
        SELECT job, comm, rank, collective = 1 AS collective, seq, at_ns
        FROM digest_last_calls JOIN temp.digest_members USING (member)
        QUALIFY at_ns > max(at_ns) OVER (PARTITION BY job, rank) - {MEASURED_NS}
        """
    )
    con.unregister("digest_last_calls")
