"""The digest: a thinned selection of operations small enough to ask of every node.

The rows stay what they are, so every relation and rulebook reads them as it reads all of them:

- all that is in flight, and the last 16 of each rank on each communicator: every rank's position;
- in each minute, each rank's longest operation of a kind, and the one before which it was itself
  busy for longest: the one that waited and the one that was waited for keep the same round;
- of the rest one in 2^k by number, k as small as `budget_rows` allows, by communicator: the same
  rounds on every node (evidence/sampling.py).

`stands_for` says for how many rounds a row was kept. `own_ns`, a rank's own time before a
collective, needs all rows, so it is measured here, before thinning.

When a shard is sealed, `prepare` stores its candidates in it: a question about ten minutes then
reads some thousand rows of each shard instead of all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from oncall.evidence.sampling import is_sampled, number
from oncall.evidence.schema import BY_NAME
from oncall.node.store.catalog import Shard, sealed_shards
from oncall.node.store.database import connect, quoted
from oncall.node.store.seal_log import in_sealing_order

if TYPE_CHECKING:
    import duckdb

LAST = 16  # operations of each rank on each communicator that are kept whatever they are
LAST_MOVED = 4  # rounds of each rank on each communicator of which all transfers are kept
MINUTE_NS = 60 * 10**9
CANDIDATES = {"ops": "digest_ops", "transfers": "digest_transfers"}  # in a sealed shard
CANDIDATE_ROWS = 8_192
CARRIED_NS = 24 * 3600 * 10**9  # how long a rank's last operation is carried from shard to shard
_BEFORE = 3  # shards that are tried for what is carried over
MEASURED_NS = 3600 * 10**9  # how much own time there may be between two rounds, to be measured

IN_FLIGHT = "(ended_ns IS NULL AND coalesce(done = false, observed_ns IS NOT NULL))"
# Of what a damaged ring left in a shard the difference may not fit: then it is not known.
_DURATION = "coalesce(duration_ns, TRY(ended_ns - started_ns))"
_ENTERED = "coalesce(started_ns, enqueued_ns)"
_LEFT_OFF = (
    "NULL::VARCHAR AS job, NULL::UBIGINT AS comm, NULL::INTEGER AS rank, "
    "NULL::BOOLEAN AS collective, NULL::BIGINT AS seq, NULL::BIGINT AS at_ns"
)
_KEY = ("job", "comm", "kind", "rank", "seq")
_IS_LAST = f"seq = max(seq) OVER (PARTITION BY {', '.join(_KEY[:-1])})"
# One number for what names a collective: joining by four columns takes four times as long.
_CALL = "hash({0}job, {0}comm, {0}rank, {0}seq)"
Group = tuple[str, int | None, str]  # job, communicator, kind


@dataclass(frozen=True)
class Size:
    """One communicator's operations of one kind: rounds of its busiest rank, ranks, and how many
    rounds a row stands for already (a power of two)."""

    group: Group
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
    of_a_shard: bool = False,
) -> Mapping[Group, int]:
    """Make the temporary table `target` of about `budget_rows` rows of `source`, a table or view
    with the columns of ops; returns of how many rounds one was kept, by communicator and kind.

    `of_a_shard`: there are so few rows that what is compared of them fits into memory. Then the
    source, a join of all its rows, is read twice and not four times.
    """
    narrow = "TABLE" if of_a_shard else "VIEW"
    con.execute(
        f"""
        CREATE OR REPLACE TEMP {narrow} digest_narrow AS
        SELECT {", ".join(_KEY)}, op, bytes, own_ns, {_DURATION} AS took_ns, stands_for,
            coalesce({_ENTERED}, ended_ns) // {MINUTE_NS} AS minute, {IN_FLIGHT} AS open
        FROM {source}
        """
    )
    steps = choose_steps(sizes(con, "temp.digest_narrow"), budget_rows)
    _create_steps(con, steps)
    columns = ", ".join(f"o.{name}" for name in BY_NAME["ops"].column_names if name != "stands_for")
    con.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE digest_kept AS
        WITH heads AS (
            SELECT job, comm, rank, kind, max(seq) AS seq FROM temp.digest_narrow GROUP BY ALL)
        SELECT job, comm, kind, rank, unnest([arg_max(seq, took_ns), arg_max(seq, own_ns)]) AS seq
        FROM temp.digest_narrow GROUP BY job, comm, rank, kind, op, bytes, minute
        UNION SELECT {", ".join(_KEY)} FROM temp.digest_narrow WHERE open
        UNION SELECT n.job, n.comm, n.kind, n.rank, n.seq FROM temp.digest_narrow n JOIN heads h
            ON {same("n", "h", _KEY[:-1])}
        WHERE n.seq > TRY(h.seq - {LAST}) OR n.seq IS NULL
        """
    )
    sampled = is_sampled(number("o"), "s.step")
    con.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE {target} AS
        SELECT {columns}, CASE WHEN {sampled} THEN s.step ELSE 1 END AS stands_for
        FROM {source} o JOIN temp.digest_steps s ON {same("o", "s", ("job", "comm", "kind"))}
        WHERE {sampled}
            OR EXISTS (FROM temp.digest_kept k WHERE {same("k", "o", _KEY)})
        """
    )
    con.execute(f"DROP {narrow} temp.digest_narrow")
    return steps


def thin_transfers(
    con: duckdb.DuckDBPyConnection, source: str, target: str, budget_rows: int
) -> None:
    """Make the temporary table `target` of about `budget_rows` rows of `source`, which has the
    columns of transfers: those in flight, those of a rank's last rounds on a communicator (a part
    of an operation may be over while another hangs), and of the rest one round in 2^k."""
    rows = con.execute(
        f"""
        SELECT job, comm, kind, (sum(weight) / max(a_round))::BIGINT, max(a_round), max(step) FROM (
            SELECT job, comm, kind, sum(coalesce(stands_for, 1)) AS weight,
                max(coalesce(stands_for, 1)) AS step, count(DISTINCT rank)
                    * ceil(count(*) / count(DISTINCT (rank, seq)))::BIGINT AS a_round
            FROM {source} GROUP BY ALL)
        GROUP BY ALL
        """
    ).fetchall()
    _create_steps(
        con,
        choose_steps([Size((job, comm, kind), *r) for job, comm, kind, *r in rows], budget_rows),
    )
    sampled = is_sampled("coalesce(t.seq, 0)", "s.step")
    columns = ", ".join(f"t.{c}" for c in BY_NAME["transfers"].column_names if c != "stands_for")
    con.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE {target} AS
        WITH heads AS (SELECT job, comm, kind, rank, max(seq) AS seq FROM {source} GROUP BY ALL)
        SELECT {columns}, CASE WHEN {sampled} THEN s.step ELSE 1 END AS stands_for
        FROM {source} t JOIN temp.digest_steps s ON {same("t", "s", ("job", "comm", "kind"))}
        JOIN heads h ON {same("t", "h", ("job", "comm", "kind", "rank"))}
        WHERE {sampled} OR t.ended_ns IS NULL OR t.seq > TRY(h.seq - {LAST_MOVED}) OR t.seq IS NULL
        """
    )


def choose_steps(sizes: Sequence[Size], budget_rows: int) -> dict[Group, int]:
    """How thin to sample each communicator so that all fit: one of 1, 2, 4, ... rounds.

    Every rank may keep the same number of rows of each communicator; what the quiet ones leave
    over goes to the busier ones.
    """
    left, members = budget_rows, sum(size.ranks for size in sizes)
    steps: dict[Group, int] = {}
    for size in sorted(sizes, key=lambda size: size.rounds):
        share = max(1, left // members)
        least = 2 ** max(0, math.ceil(math.log2(size.rounds / share)))
        steps[size.group] = max(least, size.step)
        left = max(0, left - size.ranks * (size.rounds // steps[size.group]))
        members -= size.ranks
    return steps


def sizes(con: duckdb.DuckDBPyConnection, source: str) -> list[Size]:
    """The size of each communicator in `source`, by kind."""
    rows = con.execute(
        f"""
        SELECT job, comm, kind, max(rounds)::BIGINT, count(*), max(step) FROM (
            SELECT job, comm, kind, rank, sum(coalesce(stands_for, 1)) AS rounds,
                max(coalesce(stands_for, 1)) AS step
            FROM {source} GROUP BY ALL)
        GROUP BY ALL
        """
    ).fetchall()
    return [Size((job, comm, kind), *size) for job, comm, kind, *size in rows]


def _create_steps(con: duckdb.DuckDBPyConnection, steps: Mapping[Group, int]) -> None:
    con.execute(
        "CREATE OR REPLACE TEMP TABLE digest_steps AS "
        "SELECT unnest($jobs::VARCHAR[]) AS job, unnest($comms::UBIGINT[]) AS comm, "
        "unnest($kinds::VARCHAR[]) AS kind, unnest($steps::INTEGER[]) AS step",
        {
            "jobs": [job for job, _, _ in steps],
            "comms": [comm for _, comm, _ in steps],
            "kinds": [kind for _, _, kind in steps],
            "steps": list(steps.values()),
        },
    )


def measure_own_time(
    con: duckdb.DuckDBPyConnection, source: str, target: str, before: str | None = None
) -> None:
    """Make the temporary view `target`: the rows of `source`, each collective with its own time
    since the one before it on the communicator, where nothing in between was lost.

    What came before the rows of `source` may be told by `before`, a table as the one that this
    makes for who comes after: the temporary `digest_left_off`.
    """
    import numpy as np

    from oncall.analysis.rounds.own_time import left_off, since_last_round, timeline

    earlier = f"FROM {before}" if before else f"SELECT {_LEFT_OFF} WHERE false"
    con.execute(f"CREATE OR REPLACE TEMP TABLE digest_earlier AS {earlier}")
    # Numbers for names: a job's name would be a Python string in every row, and windows over all
    # rows would sort them.
    con.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE digest_members AS
        SELECT job, comm, rank, dense_rank() OVER (ORDER BY job, rank) AS process,
            row_number() OVER () AS member
        FROM (SELECT job, comm, rank FROM {source} UNION
              SELECT job, comm, rank FROM temp.digest_earlier) WHERE job IS NOT NULL
        """
    )
    order = ("process", "member", "collective", "seq", "on_device", "entered_ns", "left_ns")
    earlier_calls = con.execute(
        "SELECT process, member, collective, seq, true AS on_device, at_ns AS entered_ns, "
        "at_ns AS left_ns FROM temp.digest_earlier JOIN temp.digest_members USING (job, comm, rank)"
    ).fetchnumpy()
    found = con.execute(
        f"""
        SELECT seq, kind = 'coll' AS collective, process, member, {_CALL.format("")} AS call,
            started_ns IS NOT NULL AS on_device, {_ENTERED} AS entered_ns,
            TRY({_ENTERED} + {_DURATION}) AS left_ns
        FROM {source} JOIN temp.digest_members USING (job, comm, rank)
        -- What is thinned already was measured when all rows were there.
        WHERE stands_for IS NULL AND seq IS NOT NULL AND TRY({_ENTERED} + {_DURATION}) IS NOT NULL
        """
    ).fetchnumpy()
    each = [np.concatenate([earlier_calls[name], found[name]]) for name in order]
    rows = np.arange(len(each[0])) - len(earlier_calls["seq"])
    line = timeline(np.array([rows, *each], dtype=np.int64))
    row, own_ns = since_last_round(line)
    _keep_left_off(con, left_off(line))
    con.register(
        "digest_measured_ns",
        {
            "call": found["call"][row],
            "own_ns": own_ns.filled(0),
            "known": ~np.ma.getmaskarray(own_ns),
        },
    )
    con.execute(
        "CREATE OR REPLACE TEMP TABLE digest_own AS "
        "SELECT call, own_ns FROM digest_measured_ns WHERE known"
    )
    con.unregister("digest_measured_ns")
    con.execute(
        f"CREATE OR REPLACE TEMP VIEW {target} AS "
        "SELECT o.* REPLACE (coalesce(o.own_ns, w.own_ns) AS own_ns) FROM "
        f"{source} o LEFT JOIN temp.digest_own w "
        f"ON o.kind = 'coll' AND {_CALL.format('o.')} = w.call"
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


# ------------------------------------------------------------------ in a shard


def prepare(con: duckdb.DuckDBPyConnection) -> None:
    """Store the candidates of the evidence in `con` beside it, as `digest_ops` and
    `digest_transfers`: to be called when a shard is sealed, with the shard current.

    A rank's last operation on each communicator is carried over from the shard before, so that
    each shard alone holds every rank's position, however old. So is its own time:
    a communicator may be used once in many shards.
    """
    with _shard_before(con) as before:
        measure_own_time(con, "ops", "digest_measured", before.get("digest_left_off"))
        thin(con, "temp.digest_measured", "digest_candidates", CANDIDATE_ROWS, of_a_shard=True)
        thin_transfers(con, "transfers", "digest_moved", CANDIDATE_ROWS)
        con.execute("BEGIN")  # a shard that is recovered after a kill has all of it or nothing
        con.execute("CREATE OR REPLACE TABLE digest_ops AS FROM temp.digest_candidates")
        con.execute("CREATE OR REPLACE TABLE digest_transfers AS FROM temp.digest_moved")
        con.execute("CREATE OR REPLACE TABLE digest_left_off AS FROM temp.digest_left_off")
        if "digest_ops" in before:
            _carry_over(con, before["digest_ops"])
        con.execute("COMMIT")
    con.execute("DROP VIEW temp.digest_measured; DROP TABLE temp.digest_candidates")


def _carry_over(con: duckdb.DuckDBPyConnection, before: str) -> None:
    """Add the last operations that the shard before knows, of ranks that did nothing since."""
    columns = ", ".join(f'"{name}"' for name in BY_NAME["ops"].column_names)
    con.execute(
        f"""
        INSERT INTO digest_ops ({columns})
        SELECT {columns} FROM {before} b
        WHERE NOT EXISTS (FROM digest_ops o WHERE {same("o", "b", _KEY[:-1])})
            AND coalesce(b.ended_ns, b.observed_ns, b.enqueued_ns) > (
                SELECT max(coalesce(ended_ns, observed_ns, enqueued_ns)) FROM digest_ops
            ) - {CARRIED_NS}
        """
    )


@contextmanager
def _shard_before(con: duckdb.DuckDBPyConnection) -> Iterator[Mapping[str, str]]:
    """What digests left in the shard sealed last beside the store that is current, of the same
    node: table -> what to select it from, while this lasts.

    It is read in an instance of its own: damage in it must not make the one unusable that holds
    the live store. Where it cannot be read, the one before it counts.
    """
    ((path, node),) = con.execute(
        "SELECT path, (SELECT node FROM meta) FROM duckdb_databases() "
        "WHERE database_name = current_database()"
    ).fetchall()
    folder = Path(path).parent
    sealed = in_sealing_order(folder, sealed_shards(folder, nodes=[node])) if path else []
    with TemporaryDirectory(prefix="oncall-before-") as copies:
        yield _newest_copied(reversed(sealed[-_BEFORE:]), Path(copies))


def _newest_copied(shards: Iterable[Shard], folder: Path) -> dict[str, str]:
    import duckdb

    for shard in shards:
        with suppress(duckdb.Error):
            return _copied(shard, folder)
    return {}


def _copied(shard: Shard, folder: Path) -> dict[str, str]:
    """Copies of what digests left in a shard, as Parquet: table -> what to select it from."""
    con = connect()
    try:
        con.execute(f"ATTACH '{quoted(shard.path)}' AS before (READ_ONLY)")
        tables = con.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = 'before' "
            "AND table_name IN ('digest_ops', 'digest_left_off')"
        ).fetchall()
        copies = {table: folder / f"{table}.parquet" for (table,) in tables}
        for table, path in copies.items():
            rows = f"FROM before.main.{table}"
            if table == "digest_ops":
                rows += f" QUALIFY {_IS_LAST}"
            con.execute(f"COPY ({rows}) TO '{quoted(path)}' (FORMAT parquet)")
    finally:
        con.close()
    return {table: f"read_parquet('{quoted(path)}')" for table, path in copies.items()}
