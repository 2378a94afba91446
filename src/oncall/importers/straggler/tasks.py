"""The rows of a straggler-analysis trace as stage tasks, in SQL over its tables in memory.

`load` makes, from the table `file` (the trace as read), the tables `trace_rows` (its rows, typed,
times in ns), `places` (each rank's place: dp_rank, stage, slot) and `moves` (which micro-batch each
send and receive moved).
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

NEEDED = frozenset(("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration"))
_OPTIONAL = {"seq_id": "BIGINT", "mc": "INTEGER", "mb_id": "INTEGER", "gmc": "INTEGER"}


@dataclass(frozen=True)
class TraceSummary:
    """What the rows say of the job. `slots`: recorded ranks of one stage of one replica."""

    lines: int = 0
    rows: int = 0
    ranks: int = 0
    replicas: int = 0
    stages: int = 0
    chunks: int = 0
    slots: int = 0
    micro_batches: int | None = None
    sharded: bool = False
    relative: bool = False
    no_transfers: int = 0


# Times that stay below 2**63 as nanoseconds; -1 is how the trace writes "of no micro-batch".
_TYPED = """
    CREATE TABLE typed AS
    SELECT dp_rank, stage, rank, step, optype, round(start_ts * 1e9)::BIGINT AS started_ns,
        round((start_ts + duration) * 1e9)::BIGINT AS ended_ns, {optional}
    FROM (SELECT try_cast(dp_rank AS INTEGER) AS dp_rank, try_cast(stage AS INTEGER) AS stage,
              try_cast(rank AS INTEGER) AS rank, try_cast(step AS BIGINT) AS step,
              optype::VARCHAR AS optype, try_cast(start_ts AS DOUBLE) AS start_ts,
              try_cast(duration AS DOUBLE) AS duration, * EXCLUDE ({needed}) FROM file)
    WHERE dp_rank >= 0 AND stage >= 0 AND rank >= 0 AND step >= 0 AND optype IS NOT NULL
        AND abs(start_ts) < 9e9 AND duration BETWEEN 0 AND 1e8
"""

# Where steps overlap, each has a clock of its own that begins with it. They are laid one after
# another: comparisons are within a step, and a gap would be time that was not recorded.
_STATED = """
    CREATE TABLE trace_rows AS
    WITH steps AS (
        SELECT step, min(started_ns) AS first_ns, max(ended_ns) AS last_ns
        FROM typed GROUP BY step),
    apart AS (SELECT coalesce(bool_and(first_ns > before_ns), false) AS one_clock FROM (
        SELECT first_ns, lag(last_ns) OVER (ORDER BY step) AS before_ns FROM steps)
        WHERE before_ns IS NOT NULL),
    laid AS (
        SELECT step, CASE WHEN one_clock THEN 0 ELSE coalesce(sum(last_ns - first_ns) OVER (
            ORDER BY step ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) - first_ns
            + min(first_ns) OVER () END::BIGINT AS shift_ns, NOT one_clock AS relative
        FROM steps, apart)
    SELECT typed.* REPLACE (started_ns + shift_ns AS started_ns, ended_ns + shift_ns AS ended_ns),
        relative
    FROM typed JOIN laid USING (step)
"""
_PLACES = """
    CREATE TABLE places AS
    SELECT rank, dp_rank, stage, row_number() OVER (PARTITION BY dp_rank, stage ORDER BY rank) - 1
        AS slot
    FROM (SELECT rank, min(dp_rank) AS dp_rank, min(stage) AS stage FROM trace_rows GROUP BY rank)
"""

# Sends and receives carry no micro-batch. The recorder notes them in the order of the computations
# of their direction: one for each, also at the model's ends, where nothing moves, but perhaps not
# the very first receive or last send; or only those that move something. Others, before the first
# computation or after the last, move nothing either.
_MOVES = """
    CREATE TABLE moves AS
    WITH ends AS (SELECT max(gmc) AS last_gmc FROM trace_rows),
    computed AS (
        SELECT rank, step, optype[:-9] AS direction, mc, mb_id, gmc,
            row_number() OVER mine AS n, count(*) OVER whole AS computations,
            min(ended_ns) OVER whole AS first_end_ns, max(started_ns) OVER whole AS last_start_ns,
            gmc IS DISTINCT FROM CASE direction WHEN 'forward' THEN last_gmc ELSE 0 END AS sends,
            gmc IS DISTINCT FROM CASE direction WHEN 'forward' THEN 0 ELSE last_gmc END AS receives
        FROM trace_rows, ends WHERE optype IN ('forward-compute', 'backward-compute')
        WINDOW whole AS (PARTITION BY rank, step, optype),
            mine AS (PARTITION BY rank, step, optype ORDER BY started_ns, seq_id)),
    both_ways AS (
        SELECT *, 'send' AS way, sends AS moves FROM computed
        UNION ALL SELECT *, 'recv', receives FROM computed),
    claims AS (
        SELECT *, count(*) FILTER (moves) OVER (whole ORDER BY n) AS moving_n,
            count(*) FILTER (moves) OVER whole AS moving
        FROM both_ways WINDOW whole AS (PARTITION BY rank, step, direction, way)),
    extent AS (
        SELECT DISTINCT rank, step, direction, way, computations, moving, first_end_ns,
            last_start_ns
        FROM claims),
    noted AS (
        SELECT t.rank, t.step, optype, direction, way, computations, moving, started_ns, seq_id,
            row_number() OVER mine AS n, count(*) OVER whole AS number
        FROM trace_rows t JOIN extent e ON t.rank = e.rank AND t.step = e.step
            AND t.optype = direction || '-' || way
        WHERE CASE way WHEN 'recv' THEN started_ns <= last_start_ns + 50000
            ELSE ended_ns >= first_end_ns - 50000 END
        WINDOW whole AS (PARTITION BY t.rank, t.step, optype),
            mine AS (PARTITION BY t.rank, t.step, optype ORDER BY started_ns, seq_id))
    SELECT o.rank, o.step, o.optype, o.seq_id, o.started_ns, c.mc, c.mb_id, c.gmc
    FROM noted o LEFT JOIN claims c
        ON (c.rank, c.step, c.direction, c.way) = (o.rank, o.step, o.direction, o.way)
        AND CASE WHEN number IN (o.computations, o.computations - 1)
            THEN c.n = o.n + CASE WHEN o.way = 'recv' THEN o.computations - number ELSE 0 END
            WHEN number = o.moving THEN c.moves AND c.moving_n = o.n END
"""
# What is not in `moves` at all was before the first or after the last computation.
_EMPTY = """
    (t.optype[-4:] IN ('send', 'recv') AND (m.rank IS NULL OR coalesce(
        CASE WHEN t.optype IN ('forward-recv', 'backward-send') THEN m.gmc = 0
        ELSE m.gmc = (SELECT max(gmc) FROM trace_rows) END, false)))
"""
_WITH_MOVES = """
    trace_rows t LEFT JOIN moves m ON m.rank = t.rank AND m.step = t.step AND m.optype = t.optype
        AND m.started_ns = t.started_ns AND m.seq_id IS NOT DISTINCT FROM t.seq_id
"""
_SUMMARY = f"""
    SELECT (SELECT count(*) FROM file), count(*), count(DISTINCT rank), count(DISTINCT dp_rank),
        max(stage) + 1, coalesce(max(mc), 0) + 1, (SELECT max(slot) + 1 FROM places),
        (SELECT CASE WHEN min(n) = max(n) THEN max(n) END FROM (
            SELECT count(DISTINCT mb_id) AS n FROM trace_rows WHERE optype = 'forward-compute'
            GROUP BY rank, step)),
        bool_or(optype IN ('params-all-gather', 'grads-reduce-scatter')), bool_or(relative),
        (SELECT count(*) FROM {_WITH_MOVES} WHERE {_EMPTY})
    FROM trace_rows HAVING count(*) > 0
"""

_COMM = "md5_number_lower(concat_ws(' ', '{role}', {key}))"
_GROUPS = {  # role: what its members share, and what orders them
    "pp": ("dp_rank, slot", "stage"),
    "dp": ("stage, slot", "dp_rank"),
    "embedding": ("dp_rank, slot", "stage"),
    "inner": ("dp_rank, stage", "slot"),
}
TASKS = f"""
    SELECT t.rank, t.step AS iteration, p.stage,
        CASE WHEN t.optype IN ('forward-compute', 'backward-compute') THEN t.optype[:-9]
            WHEN t.optype IN ('forward-send', 'forward-recv', 'backward-send', 'backward-recv')
                THEN replace(t.optype, '-', '_')
            WHEN t.optype IN ('grads-reduce-scatter', 'layernorm-grads-all-reduce',
                'separate-grads-all-reduce') THEN 'gradients'
            WHEN t.optype = 'params-all-gather' THEN 'parameters'
            WHEN t.optype = 'embedding-grads-all-reduce' THEN 'embedding'
            WHEN t.optype IN ('optimizer', 'optimizer-clip-main-grad') THEN 'optimizer'
            WHEN t.optype = 'gc' THEN 'garbage' ELSE 'other' END AS task,
        CASE WHEN task IN ('garbage', 'optimizer', 'embedding') THEN NULL
            ELSE coalesce(m.mc, nullif(t.mc, -1)) END AS chunk,
        CASE WHEN task IN ('forward', 'backward') THEN nullif(t.mb_id, -1) ELSE m.mb_id END
            AS micro_batch,
        peer.rank AS peer,
        CASE WHEN task LIKE '%\\_send' ESCAPE '\\' OR task LIKE '%\\_recv' ESCAPE '\\'
                THEN {_COMM.format(role="pp", key="p.dp_rank, p.slot")}
            WHEN t.optype IN ('params-all-gather', 'grads-reduce-scatter',
                'separate-grads-all-reduce') THEN {_COMM.format(role="dp", key="p.stage, p.slot")}
            WHEN task = 'embedding' THEN {_COMM.format(role="embedding", key="p.dp_rank, p.slot")}
            END AS comm,
        t.started_ns, t.ended_ns,
        CASE WHEN task IN ('forward', 'backward') THEN t.ended_ns - t.started_ns END AS own_ns
    FROM {_WITH_MOVES} JOIN places p ON p.rank = t.rank
    LEFT JOIN places peer ON peer.dp_rank = p.dp_rank AND peer.slot = p.slot
        AND peer.stage = CASE WHEN t.optype IN ('forward-send', 'backward-recv') THEN p.stage + 1
            WHEN t.optype IN ('forward-recv', 'backward-send')
                THEN p.stage - 1 + (SELECT max(stage) + 1 FROM places) END
            % (SELECT max(stage) + 1 FROM places)
    WHERE NOT {_EMPTY}
    ORDER BY iteration, t.rank, t.started_ns
"""


def load(con: duckdb.DuckDBPyConnection) -> TraceSummary:
    """Make the tables from `file`, and sum them up. Raises duckdb.Error where columns are wrong."""
    present = {row[0] for row in con.execute("DESCRIBE file").fetchall()}
    optional = ", ".join(
        f"try_cast({name} AS {kind}) AS {name}" if name in present else f"NULL::{kind} AS {name}"
        for name, kind in _OPTIONAL.items()
    )
    con.execute(_TYPED.format(optional=optional, needed=", ".join(NEEDED)))
    for sql in (_STATED, _PLACES, _MOVES):
        con.execute(sql)
    row = con.execute(_SUMMARY).fetchone()
    if row is None:
        ((lines,),) = con.execute("SELECT count(*) FROM file").fetchall()
        return TraceSummary(lines=lines)
    return TraceSummary(*row)


def comms_sql(inner: str | None) -> str:
    """Memberships; the ranks of one stage of one replica form a group of role `inner`, if any."""
    parts = [
        f"SELECT '{inner if role == 'inner' else role}' AS role, rank, {place} AS place, "
        f"{_COMM.format(role=role, key=key)} AS comm FROM places"
        + (" WHERE stage IN (0, (SELECT max(stage) FROM places))" if role == "embedding" else "")
        for role, (key, place) in _GROUPS.items()
        if role != "inner" or inner is not None
    ]
    return f"""
        SELECT comm, rank, role, count(*) OVER (PARTITION BY comm) AS size,
            row_number() OVER (PARTITION BY comm ORDER BY place, rank) - 1 AS comm_rank
        FROM ({" UNION ALL ".join(parts)}) QUALIFY size > 1 ORDER BY comm, comm_rank
    """
