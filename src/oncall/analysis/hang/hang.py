"""The members of each operation where a hang begins, and whether they all call the same.

CCL-D 4.1.2's Operation Type Set: what each rank calls (operation, type, size, algorithm,
protocol) must agree. If it does not, the minority is at fault; of two members that disagree, the
one that differs from what sibling communicators call there, else from its own earlier calls.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import duckdb

from oncall.analysis.common.operations import CALL, MANNER
from oncall.evidence import relation


@relation(
    "steps",
    reads=["op_channels"],
    columns=[
        "job comm seq rank",
        ("sends", "BIGINT", "", "send primitives done, all channels"),
        ("recvs", "BIGINT", "", "receive primitives done, all channels"),
    ],
    source="CCL-D 4.1.2",
)
def steps() -> str:
    """How far each rank last was in each operation that is recorded channel by channel."""
    return """
        SELECT job, comm, seq, rank, sum(sends) AS sends, sum(recvs) AS recvs
        FROM (SELECT DISTINCT ON (job, comm, seq, rank, channel) * FROM op_channels
              ORDER BY observed_ns DESC, sends DESC, recvs DESC)
        GROUP BY ALL
    """


def _recorded_calls() -> str:
    """The members of each case, and what is recorded of their calls there."""
    return f"""
        cases AS (SELECT DISTINCT job, comm, kind, seq FROM hang_roots),
        roll AS (
            SELECT c.*, m.rank FROM cases c JOIN members m USING (job, comm)
            WHERE c.kind = 'coll'
            UNION SELECT job, comm, kind, seq, unnest(ends) FROM hang_roots WHERE kind = 'p2p'
            UNION SELECT job, comm, kind, seq, rank FROM hang_roots
                WHERE rank IS NOT NULL AND how <> 'cycle'),
        calls AS (
            SELECT o.job, o.comm, o.kind, o.seq, o.rank, min(o.op) AS op,
                min(o.bytes) AS bytes, bool_or(coalesce(o.done, false)) AS done,
                max(o.sends) AS sends, max(o.recvs) AS recvs, min(o.entered_ns) AS entered_ns,
                bool_or(o.on_device) AS begun,
                max(o.observed_ns) AS observed_ns, min({CALL}) AS call,
                min({MANNER}) AS manner, min(upper(o.algo)) AS algo
            FROM operations o SEMI JOIN cases USING (job, comm, kind, seq) GROUP BY ALL),
        -- Whose recorder shows that a device begins: that of PyTorch only of what is still open.
        timed AS (
            SELECT DISTINCT o.job, o.comm, o.rank FROM operations o SEMI JOIN cases
                USING (job, comm, kind) WHERE o.on_device
            UNION
            SELECT DISTINCT r.job, r.comm, r.rank FROM roll r
            SEMI JOIN (FROM calls WHERE begun AND NOT done) USING (job, comm, kind, seq)
            ANTI JOIN (FROM operations WHERE on_device AND done) USING (job))
    """


def _waits_of_members() -> str:
    """Open halves of transfers."""
    return """
        -- A transfer is open also where the host of one end went on and is blocked elsewhere now.
        posted AS (
            FROM in_flight i SEMI JOIN hang_roots r ON r.kind = 'p2p' AND i.kind = 'p2p'
                AND r.job = i.job AND r.comm = i.comm AND len(r.ends) = 2
                AND list_contains(r.ends, i.rank) AND list_contains(r.ends, i.peer)
            ANTI JOIN blocked_operations s ON s.kind = 'p2p' AND s.job = i.job AND s.comm = i.comm
                AND s.rank = i.rank),
        -- Sends and receives of one group call are one wait.
        blocked AS (
            SELECT job, comm, kind, seq, rank, max(waited_ns) AS waited_ns FROM blocked_operations
            GROUP BY ALL),
        paired AS (
            SELECT job, comm, rank, arg_min(op, (seq, op)) AS op,
                arg_min(bytes, (seq, op)) AS bytes,
                min(entered_ns) AS entered_ns, max(waited_ns) AS waited_ns
            FROM (FROM blocked_operations WHERE kind = 'p2p' UNION ALL BY NAME FROM posted)
            GROUP BY job, comm, rank)
    """


@relation(
    "hang_members",
    reads=["hang_roots", "members", "frontier", "blocked_operations"],
    empty_without=["hang_roots"],
    columns=[
        "job comm seq kind",
        ("rank", "INTEGER", "", "a member"),
        "node gpu nic pid",
        ("comm_name", "VARCHAR", "", "the communicator's name"),
        "role",
        ("state", "VARCHAR", "", "waiting, finished, absent (or left it), silent (no data)"),
        "node_observed",
        ("last_seq", "BIGINT", "", "last collective it entered here"),
        ("op", "VARCHAR", "", "what it calls"),
        "bytes",
        ("signature", "VARCHAR", "", "operation, type, size, algorithm, protocol"),
        ("peer_group", "INTEGER", "", "members compared with each other: a ring, or a tree layer"),
        "sends recvs entered_ns",
        ("begun", "BOOLEAN", "", "its GPU has begun it; NULL: not recorded"),
        "waited_ns",
    ],
    source="CCL-D 4.1.2, 4.2.2",
)
def hang_members() -> str:
    """Every member of every operation where waiting ends, and its state there."""
    stages = (_recorded_calls(), _waits_of_members())
    return f"""
        WITH {",".join(stages)}
        SELECT r.job, r.comm, r.seq, r.kind, r.rank, m.node, m.gpu, m.nic, m.pid,
            m.name AS comm_name, m.role,
            CASE WHEN NOT coalesce(n.observed, false) THEN 'silent'
                 WHEN r.kind = 'p2p' THEN CASE WHEN p.rank IS NOT NULL OR b.job IS NOT NULL
                                               THEN 'waiting' ELSE 'absent' END
                 WHEN c.done OR (c.rank IS NULL AND f.done_seq >= r.seq) THEN 'finished'
                 WHEN g.rank IS NOT NULL THEN 'absent'
                 WHEN c.rank IS NOT NULL OR coalesce(f.entered_seq, x.seq) >= r.seq
                 THEN 'waiting'
                 ELSE 'absent' END AS state,
            n.node_observed, coalesce(f.entered_seq, x.seq) AS last_seq,
            coalesce(c.op, p.op) AS op, coalesce(c.bytes, p.bytes) AS bytes,
            c.call || CASE WHEN bool_and(c.call IS NULL OR c.manner IS NOT NULL) OVER (
                               PARTITION BY r.job, r.comm, r.kind, r.seq)
                           THEN coalesce(' ' || c.manner, '') ELSE '' END AS signature,
            CASE WHEN c.algo LIKE '%TREE%' THEN coalesce(l.layer, 0) ELSE 0 END AS peer_group,
            coalesce(c.sends, h.sends) AS sends, coalesce(c.recvs, h.recvs) AS recvs,
            coalesce(c.entered_ns, p.entered_ns) AS entered_ns,
            CASE WHEN t.rank IS NOT NULL THEN c.begun END AS begun,
            coalesce(CASE WHEN NOT c.done THEN c.observed_ns - c.entered_ns END, p.waited_ns,
                     s.waited_ns) AS waited_ns
        FROM roll r
        LEFT JOIN members m USING (job, comm, rank)
        LEFT JOIN frontier f USING (job, comm, rank)
        LEFT JOIN calls c USING (job, comm, kind, seq, rank)
        LEFT JOIN timed t USING (job, comm, rank)
        LEFT JOIN steps h USING (job, comm, seq, rank)
        LEFT JOIN layers l USING (job, comm, rank)
        LEFT JOIN processes n USING (job, rank)
        LEFT JOIN halted g USING (job, rank)
        LEFT JOIN paired p ON r.kind = 'p2p' AND p.job = r.job AND p.comm = r.comm
            AND p.rank = r.rank
        LEFT JOIN blocked s USING (job, comm, kind, seq, rank)
        LEFT JOIN call_fronts x ON x.job = r.job AND x.comm = r.comm AND x.rank = r.rank
        LEFT JOIN call_roots b ON r.kind = 'p2p' AND b.kind = 'p2p' AND b.job = r.job
            AND b.comm = r.comm AND b.seq = r.seq
    """


_VOTE_COLUMNS = [
    ("job", "VARCHAR", "", "the job"),
    ("comm", "UBIGINT", "", "communicator"),
    ("seq", "BIGINT", "", "the operation its members disagree on"),
    ("rank", "INTEGER", "", "a member that differs, or one of a tie"),
    ("node", "VARCHAR", "", "its host"),
    ("comm_name", "VARCHAR", "", "the communicator's name"),
    ("signature", "VARCHAR", "", "what it calls"),
    ("others", "VARCHAR", "", "what the rest call"),
    (
        "judged_by",
        "VARCHAR",
        "",
        "majority, siblings, habit, code path, or tie: none of them",
    ),
    ("entered_ns", "BIGINT", "ns", "when it entered"),
]


@relation(
    "odd_calls",
    reads=["hang_members"],
    optional=["even_sizes", "operations", "members", "mismatched_counts", "stacks"],
    empty_without=["hang_members"],
    columns=_VOTE_COLUMNS,
    source="CCL-D 4.1.2 (Operation Type Set), 4.2.2",
)
def odd_calls(con: duckdb.DuckDBPyConnection) -> Mapping[str, Any]:
    """Members that call another operation than the rest do under the same number."""
    calls: dict[tuple[str, int, int], list[tuple[Any, ...]]] = defaultdict(list)
    for job, comm, seq, *member in con.execute(
        "SELECT job, comm, seq, rank, node, comm_name, signature, entered_ns FROM hang_members "
        "WHERE signature IS NOT NULL AND kind = 'coll' ORDER BY rank"
    ).fetchall():
        calls[job, comm, seq].append(tuple(member))
    rows: list[tuple[Any, ...]] = []
    for (job, comm, seq), members in calls.items():
        votes = Counter(member[3] for member in members)
        if len(votes) < 2:
            continue
        accepted, judged_by = _judge(con, job, comm, seq, votes)
        others = " or ".join(sorted(accepted or votes))
        for rank, node, name, signature, entered_ns in members:
            if signature not in accepted:
                odd = (rank, node, name, signature, others, judged_by, entered_ns)
                rows.append((job, comm, seq, *odd))
    rows += con.execute(
        "SELECT c.job, c.comm, c.seq, c.rank, m.node, m.comm_name, c.op, c.others, c.judged_by, "
        "NULL FROM mismatched_counts c JOIN hang_members m USING (job, comm, seq, rank) "
        "ORDER BY ALL"
    ).fetchall()
    names = [column[0] for column in _VOTE_COLUMNS]
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _judge(
    con: duckdb.DuckDBPyConnection, job: str, comm: int, seq: int, votes: Counter[str]
) -> tuple[set[str], str]:
    """The signatures taken as right, and what decided; nothing is right in a tie."""
    best, count = votes.most_common(1)[0]
    if 2 * count > sum(votes.values()):
        return {best}, "majority"
    for judged_by, sql in _JUDGES:
        for manner in (True, False):  # with and without how NCCL ran it, as the votes may be
            known = {"job": job, "comm": comm, "seq": seq, "manner": manner}
            favourite = _favourite(con.execute(sql, known).fetchall(), votes)
            if favourite is not None:
                return {favourite}, judged_by
    return set(), "tie"


def _favourite(found: Iterable[tuple[str, int]], votes: Counter[str]) -> str | None:
    """The disputed signature that `found` (signature, times) speaks for, if one does clearly."""
    spoken = Counter({signature: times for signature, times in found if signature in votes})
    ranked = spoken.most_common(2)
    if ranked and (len(ranked) == 1 or ranked[0][1] > ranked[1][1]):
        return ranked[0][0]
    return None


_CONTEXT = 64  # calls compared: more than an iteration makes on one communicator
_SIGNATURE = f"CASE WHEN $manner THEN concat_ws(' ', {CALL}, {MANNER}) ELSE {CALL} END"

# What communicators of the same role, or with the same calls before, call under the same number.
_SIBLINGS = f"""
    WITH calls AS (
        SELECT o.comm, o.seq, any_value({_SIGNATURE}) AS signature FROM operations o
        WHERE o.job = $job AND o.kind = 'coll' AND o.seq BETWEEN $seq - {_CONTEXT} AND $seq - 1
        GROUP BY o.comm, o.seq),
    histories AS (
        SELECT comm, list(signature ORDER BY seq) AS earlier FROM calls GROUP BY comm
        HAVING count(*) > 1)
    SELECT {_SIGNATURE} AS signature, count(*) AS times
    FROM operations o JOIN members m USING (job, comm, rank)
    WHERE o.job = $job AND o.kind = 'coll' AND o.seq = $seq AND o.comm <> $comm
        AND (m.role = (SELECT any_value(role) FROM members WHERE job = $job AND comm = $comm)
            OR o.comm IN (SELECT comm FROM histories
                WHERE earlier = (SELECT earlier FROM histories WHERE comm = $comm)))
    GROUP BY signature
"""

# What this communicator's members called before, after the operation that came just before.
_HABIT = f"""
    WITH calls AS (
        SELECT o.rank, o.seq, any_value({_SIGNATURE}) AS signature FROM operations o
        WHERE o.job = $job AND o.kind = 'coll' AND o.comm = $comm AND o.seq <= $seq
        GROUP BY o.rank, o.seq),
    pairs AS (
        SELECT seq, signature, lag(signature) OVER (PARTITION BY rank ORDER BY seq) AS previous
        FROM calls)
    SELECT signature, count(*) AS times FROM pairs
    WHERE seq < $seq AND previous IN (SELECT previous FROM pairs WHERE seq = $seq)
    GROUP BY signature
"""

# How many frames, from the outermost on, the stacks of all other ranks share with each that
# disagrees: who ran something else called from a place of its own.
_CODE_PATH = f"""
    WITH callers AS (
        SELECT o.rank, {_SIGNATURE} AS signature, s.frames
        FROM operations o JOIN stacks s USING (job, rank, comm, seq, kind)
        WHERE o.job = $job AND o.kind = 'coll' AND o.comm = $comm AND o.seq = $seq),
    others AS (
        SELECT DISTINCT rank, frames FROM stacks
        WHERE job = $job AND rank NOT IN (SELECT rank FROM callers)),
    shared AS (
        SELECT c.signature, s.rank, max(len(list_filter(range(1, len(c.frames) + 1),
            lambda n: c.frames[-n:] = s.frames[-n:]))) AS frames
        FROM callers c LEFT JOIN others s ON true GROUP BY ALL)
    SELECT signature, sum(frames) AS times FROM shared GROUP BY signature
"""

_JUDGES = (("siblings", _SIBLINGS), ("habit", _HABIT), ("code path", _CODE_PATH))
