"""Algorithm 1 run over and over on what comes: which operations are over, which are under way.

Each round sees the operations that were not over in the last one, those since, and the epochs since
the first of them was called. What is over is reported once, when its traffic had time to come in;
it stays a little longer, as what to expect of a group is known from its last operations. What has
left leaves a floor behind: epochs before it belong to operations that are gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb

from oncall.core.units import NS_PER_S
from oncall.evidence.columns import create_table_sql, insert
from oncall.evidence.incident import Incident
from oncall.evidence.schema import BY_NAME, TABLES
from oncall.node.store.batch import Batch, joined
from oncall.node.store.database import Limits, connect
from oncall.node.traffic.epochs import EPOCH_NS
from oncall.node.traffic.recent_traffic import KEEP_NS, Flow, RecentTraffic

SETTLE_NS = 5 * NS_PER_S // 2  # until all of a moment's epochs are here: a poll, and its way
CONTEXT_NS = 4 * NS_PER_S  # that operations stay after they were reported
LEARN_NS = 10 * NS_PER_S  # of sending, until a queue pair's communicator is settled
LATE_NS, LATE_TIMES = NS_PER_S, 5  # open for longer, and so many times its longest: late
MOST_EPOCHS = 300_000  # of a round; beyond, the oldest operations are not known
_LIMITS = Limits(memory_bytes=96 * 2**20)
FROZEN_NS = 3600 * NS_PER_S  # that what is stalled is reported as it last was
EARLY_NS = 100_000  # a NIC's clock against the host's
_KEPT = {  # of each table the rows that are one
    "ops": None,
    "comms": "job, comm, rank",
    "ranks": "job, rank",
    "qps": "node, nic, qpn, created_ns",
}


@dataclass(frozen=True)
class Found:
    """Rows of `op_traffic`: of operations newly over, and of those under way; when the first of
    these began that are late; whether there were more epochs than one round can hold."""

    over: Batch
    open: Batch
    late_since_ns: int | None
    is_crowded: bool


class Segmenting:
    """Operations and epochs of one node, round by round. Used by one thread."""

    def __init__(
        self,
        settle_ns: int = SETTLE_NS,
        context_ns: int = CONTEXT_NS,
        learn_ns: int = LEARN_NS,
    ) -> None:
        self._settle_ns, self._context_ns, self._learn_ns = settle_ns, context_ns, learn_ns
        self._con: duckdb.DuckDBPyConnection = connect(_LIMITS)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget everything."""
        self._con.close()
        self.is_at_rest = True  # no operation is reported, found or frozen: only epochs change that
        self._con = connect(_LIMITS)
        for table in _KEPT:
            self._con.execute(create_table_sql(table, BY_NAME[table].columns))
        names = ", ".join(f"{c.name} {c.type}" for c in BY_NAME["op_traffic"].columns)
        self._con.execute(_STATE)
        for table in ("found", "frozen"):
            self._con.execute(
                f"CREATE TABLE {table} ({names}, call BIGINT, called_ns BIGINT, "
                "is_over BOOLEAN, is_reported BOOLEAN)"
            )

    def close(self) -> None:
        self._con.close()

    def advance(self, seen: Sequence[Batch], recent: RecentTraffic, now_ns: int) -> Found:
        """One more round, with the rows of `_KEPT` since the last one."""
        self._keep(seen, now_ns)
        self._con.execute("DELETE FROM found")
        is_crowded = bool(recent.bytes) and self._segment(recent, now_ns)
        over = self._batch("found WHERE is_over AND NOT is_reported")
        lateness = {"now": now_ns, "late": LATE_NS, "times": LATE_TIMES}
        ((late_since_ns,),) = self._con.execute(_LATE_SINCE, lateness).fetchall()
        self._con.execute(_TELL)
        self._con.execute(_LONGEST)
        self._forget(now_ns)
        ((left,),) = self._con.execute(_LEFT).fetchall()
        self.is_at_rest = left == 0
        under_way = self._batch("(FROM found UNION ALL FROM frozen) WHERE NOT is_over")
        return Found(over, under_way, late_since_ns, is_crowded)

    def _keep(self, seen: Sequence[Batch], now_ns: int) -> None:
        for batch in joined(seen):
            insert(self._con, batch.table, BY_NAME[batch.table].columns, batch.columns)
            if key := _KEPT[batch.table]:
                self._con.execute(
                    f"CREATE OR REPLACE TABLE {batch.table} AS "
                    f"SELECT DISTINCT ON ({key}) * FROM {batch.table}"
                )
        self._con.execute(_WITHIN_THE_NODE)
        self._con.execute(_THAWED, [now_ns - FROZEN_NS])
        self._con.execute(_TOO_OLD, [now_ns - KEEP_NS])

    def _segment(self, recent: RecentTraffic, now_ns: int) -> bool:
        """Make `found` of all operations that are kept; whether there were too many
        epochs to know all."""

        ((first_ns,),) = self._con.execute(f"SELECT min(called_ns) FROM ({_FLOORED})").fetchall()
        if first_ns is None:
            return False
        epochs = recent.between(first_ns - EARLY_NS, now_ns, MOST_EPOCHS, self._together())
        if not epochs.rows:
            return False
        whole_ns = recent.whole_since_ns
        if epochs.rows == MOST_EPOCHS:
            whole_ns = max(whole_ns, int(epochs.columns["start_ns"].min()))
        with self._alone() as incident:
            for table in ("ranks", "comms"):
                self._con.execute(f"INSERT INTO {table} FROM memory.main.{table}")
            self._con.execute(_PAIRS)
            columns = ", ".join(f'"{name}"' for name in BY_NAME["ops"].column_names)
            self._con.execute(
                f"INSERT INTO ops SELECT {columns} FROM ({_FLOORED}) WHERE called_ns >= ?",
                [whole_ns],
            )
            incident.append("epochs", epochs.columns)
            incident.provide(["segmented_traffic"])
            self._con.execute(_MEET)
            self._con.execute(_LEARN, [now_ns - self._learn_ns])
            settled_ns, learned_ns = now_ns - self._settle_ns, now_ns - self._learn_ns
            self._con.execute(_FIND, {"settled": settled_ns, "learned": learned_ns})
        is_short = recent.forgotten > 0 and recent.whole_since_ns > now_ns - 2 * self._settle_ns
        return bool(epochs.rows == MOST_EPOCHS) or is_short

    def _together(self) -> dict[Flow, Flow]:
        """Queue pairs whose bytes are of the same operations, and the one that stands for them."""
        found = self._con.execute(_TOGETHER).fetchall()
        return {
            Flow(source, node, nic, qpn, *own): Flow(source, node, other_nic, other_qpn, *own)
            for node, nic, qpn, other_nic, other_qpn, job, rank in found
            for source, own in (("dpa", ()), ("wr", (job, rank)))
        }

    @contextmanager
    def _alone(self) -> Iterator[Incident]:
        """An incident of its own for one round; nothing of it stays."""
        self._con.execute("ATTACH ':memory:' AS alone; USE alone")
        try:
            self._con.execute(
                ";".join(create_table_sql(table.name, table.columns) for table in TABLES)
            )
            yield Incident(self._con, trusted=True)
        finally:
            self._con.execute("USE memory; DETACH alone")

    def _batch(self, source: str) -> Batch:
        names = ", ".join(BY_NAME["op_traffic"].column_names)
        columns: dict[str, Any] = self._con.execute(f"SELECT {names} FROM {source}").fetchnumpy()
        return Batch("op_traffic", len(columns["rank"]), columns)

    def _forget(self, now_ns: int) -> None:
        """Forget operations that were reported a while ago, or are too old to be found."""
        context_ns, old_ns = now_ns - self._context_ns, now_ns - KEEP_NS
        self._con.execute(_RAISE_FLOORS, [EPOCH_NS, context_ns])
        self._con.execute(_LEAVE, [context_ns])
        self._con.execute(_FREEZE, [old_ns])
        self._con.execute("DELETE FROM found WHERE called_ns < ?", [old_ns])
        self._con.execute("DELETE FROM reported WHERE ended_ns < ?", [old_ns])


# An operation of a group whose members are all on this node sends nothing that could be seen.
_WITHIN_THE_NODE = """
    DELETE FROM ops WHERE (job, comm) IN (
        SELECT (job, comm) FROM comms GROUP BY job, comm HAVING count(DISTINCT rank) >= max(size))
"""
# What cannot have sent before those that have left were over.
_FLOORED = """
    SELECT o.* REPLACE (CASE WHEN started_ns IS NULL AND enqueued_ns < floor_ns THEN floor_ns
            ELSE enqueued_ns END AS enqueued_ns),
        greatest(coalesce(started_ns, enqueued_ns), floor_ns) AS called_ns
    FROM memory.main.ops o SEMI JOIN memory.main.comms USING (job, comm, rank)
    LEFT JOIN memory.main.floors USING (job, comm, rank, kind)
"""
# What a queue pair sent in one round may be another's, which began at the same time: it is watched
# for a while since it first sent, and then it keeps its communicator. Operations of its rank wait
# meanwhile, but none for longer: a job may open queue pairs again and again.
_PAIRS = """
    INSERT INTO qps SELECT q.* REPLACE (coalesce(q.comm, p.comm) AS comm)
    FROM memory.main.qps q LEFT JOIN memory.main.pairs p
        ON p.node = q.node AND p.nic = q.nic AND p.qpn = q.qpn
        AND p.created_ns IS NOT DISTINCT FROM q.created_ns
"""
_MEET = """
    INSERT INTO memory.main.pairs
    SELECT e.job, e.rank, e.node, e.nic, e.qpn, max(q.created_ns), NULL, NULL, min(f.since_ns)
    FROM flow_ends e JOIN qps q USING (node, nic, qpn)
    JOIN (SELECT flow, min(start_ns) AS since_ns FROM flow_epochs GROUP BY flow) f USING (flow)
    WHERE e.comm IS NULL AND e.rank IS NOT NULL AND NOT EXISTS (FROM memory.main.pairs p
        WHERE p.node = e.node AND p.nic = e.nic AND p.qpn = e.qpn
        AND p.created_ns IS NOT DISTINCT FROM q.created_ns)
    GROUP BY e.job, e.rank, e.node, e.nic, e.qpn
"""
_LEARN = """
    UPDATE memory.main.pairs p SET comm = f.comm, side = f.side
    FROM (
        -- Without a side are those that only tell the sender of free buffers.
        SELECT node, nic, qpn, c.comm, CASE WHEN bytes >= 0.02 * max(bytes) OVER (
            PARTITION BY e.job, e.rank, c.comm, e.peer_side) THEN peer_side END AS side
        FROM flow_ends e JOIN flow_comms c USING (flow)) f
    WHERE p.node = f.node AND p.nic = f.nic AND p.qpn = f.qpn AND p.comm IS NULL AND since_ns <= ?
"""
# Only where each side has as many of them, as their number says how volumes are shared.
_TOGETHER = """
    WITH sides AS (
        SELECT *, count(*) OVER lane AS many, first_value(nic) OVER ordered AS other_nic,
            first_value(qpn) OVER ordered AS other_qpn
        FROM pairs WHERE side IS NOT NULL AND comm IS NOT NULL
        WINDOW lane AS (PARTITION BY job, rank, comm, side),
            ordered AS (PARTITION BY job, rank, comm, side ORDER BY nic, qpn))
    SELECT node, nic, qpn, other_nic, other_qpn, job, rank FROM sides
    QUALIFY min(many) OVER (PARTITION BY job, comm) = max(many) OVER (PARTITION BY job, comm)
        AND many > 1
"""
_FIND = """
    INSERT INTO memory.main.found BY NAME
    WITH calls AS (
        SELECT job, comm, rank, kind, coalesce(group_id, -seq) AS call, max(ended_ns) AS ended_ns,
            min(coalesce(started_ns, enqueued_ns)) AS called_ns
        FROM ops GROUP BY ALL),
    watched AS (
        SELECT job, rank FROM memory.main.pairs WHERE comm IS NULL AND since_ns > $learned),
    rows AS (
        SELECT s.*, called_ns,
            (s.ended_ns < $learned OR (s.job, s.rank) NOT IN (SELECT (job, rank) FROM watched))
            AND s.ended_ns < $settled AND (s.bytes >= s.expected_bytes
            OR coalesce(c.ended_ns < $settled, true)) AS is_settled
        FROM (SELECT *, coalesce(group_id, -seq) AS call FROM segmented_traffic) s
        LEFT JOIN calls c USING (job, comm, rank, kind, call))
    SELECT * EXCLUDE (is_settled),
        bool_and(coalesce(is_settled, false)) OVER (
            PARTITION BY job, comm, rank, kind, call) AS is_over,
        EXISTS (FROM memory.main.reported t WHERE t.job = r.job AND t.comm = r.comm
            AND t.rank = r.rank AND t.kind = r.kind AND t.call = r.call) AS is_reported
    FROM rows r
"""
_CALL = "job VARCHAR, comm UBIGINT, rank INTEGER, kind VARCHAR"
_STATE = f"""
    CREATE TABLE reported ({_CALL}, call BIGINT, ended_ns BIGINT);
    CREATE TABLE floors ({_CALL}, floor_ns BIGINT);
    CREATE TABLE pairs (job VARCHAR, rank INTEGER, node VARCHAR, nic VARCHAR, qpn UINTEGER,
        created_ns BIGINT, comm UBIGINT, side UBIGINT, since_ns BIGINT);
    CREATE TABLE longest (job VARCHAR, comm UBIGINT, op VARCHAR, longest_ns BIGINT)
"""
_LATE_SINCE = """
    SELECT min(coalesce(started_ns, called_ns))
    FROM found JOIN longest USING (job, comm, op)
    WHERE NOT is_over
        AND $now - coalesce(started_ns, called_ns) > greatest($late, $times * longest_ns)
"""
_TELL = """
    INSERT INTO reported SELECT job, comm, rank, kind, call, max(ended_ns) FROM found
    WHERE is_over AND NOT is_reported GROUP BY ALL
"""
_LONGEST = """
    CREATE OR REPLACE TABLE longest AS SELECT job, comm, op, max(longest_ns) AS longest_ns FROM (
        FROM longest UNION ALL SELECT job, comm, op, ended_ns - started_ns FROM found WHERE is_over)
        GROUP BY ALL
"""
_THAWED = """
    DELETE FROM frozen f WHERE called_ns < ? OR EXISTS (FROM ops o WHERE o.job = f.job
        AND o.comm = f.comm AND o.rank = f.rank AND o.kind = f.kind
        AND (o.ended_ns IS NOT NULL OR o.done)
        AND coalesce(o.group_id, -o.seq) = f.call)
"""
_RAISE_FLOORS = """
    CREATE OR REPLACE TABLE floors AS
    SELECT job, comm, rank, kind, max(floor_ns) AS floor_ns FROM (
        FROM floors UNION ALL BY NAME
        SELECT job, comm, rank, kind, ended_ns - ? AS floor_ns FROM reported WHERE ended_ns < ?)
    GROUP BY ALL
"""
_LEAVE = """
    DELETE FROM ops o WHERE EXISTS (FROM reported t WHERE t.job = o.job AND t.comm = o.comm
        AND t.rank = o.rank AND t.kind = o.kind AND t.call = coalesce(o.group_id, -o.seq)
        AND t.ended_ns < ?)
"""
_FREEZE = """
    INSERT INTO frozen SELECT * FROM found f WHERE NOT is_over AND called_ns < ?
        AND NOT EXISTS (FROM frozen g WHERE g.job = f.job AND g.comm = f.comm AND g.rank = f.rank
            AND g.kind = f.kind AND g.call = f.call)
"""
_LEFT = """
    SELECT (SELECT count(*) FROM found) + (SELECT count(*) FROM frozen)
        + (SELECT count(*) FROM reported)
"""
_TOO_OLD = "DELETE FROM ops WHERE greatest(started_ns, enqueued_ns, ended_ns) < ?"
