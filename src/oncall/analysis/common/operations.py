"""Operations as every analysis reads them: one meaning of "done" and of "entered".

Recordings differ in what they know. A hook knows start and end; a Flight Recorder dump often
knows only that an operation retired; Megatrace knows only the call. These views settle it once.
"""

from __future__ import annotations

from oncall.evidence import relation

OPERATION_COLUMNS = [
    "job comm kind seq rank op dtype count bytes root peer comm_peer pair_seq algo",
    ("proto", "VARCHAR", "", "protocol"),
    "group_id",
    ("entered_ns", "BIGINT", "ns", "when the rank entered: started, else enqueued"),
    ("called_ns", "BIGINT", "ns", "when the host called: enqueued, else started"),
    ("on_device", "BOOLEAN", "", "entered_ns is the device's, not the caller's"),
    ("ended_ns", "BIGINT", "ns", "when it ended, if known"),
    "duration_ns",
    ("done", "BOOLEAN", "", "completed; NULL if this source does not record it"),
    "sends recvs",
    ("send_rate", "DOUBLE", "1/s", "send primitives a second"),
    ("recv_rate", "DOUBLE", "1/s", "receive primitives a second"),
    "observed_ns",
    ("own_ns", "BIGINT", "ns", "own time before it, where the recorder measured it"),
    ("stands_for", "INTEGER", "rounds", "rounds that this one represents; NULL: all were kept"),
    ("ops_row", "BIGINT", "", "its row in ops"),
]


# Sizes of these differ between ranks by design (expert routing, uneven shards).
_UNEVEN = "('AllToAll', 'AllToAllV', 'Gather', 'Scatter', 'Barrier', 'Send', 'Recv')"

# What a rank calls, as SQL over a row `o` of operations (CCL-D 4.1.2, Operation Type Set).
CALL = f"""
    concat_ws(' ', o.op, o.dtype,
        CASE WHEN (o.op NOT IN {_UNEVEN} OR EXISTS (
                FROM even_sizes e WHERE e.job = o.job AND e.comm = o.comm AND e.op = o.op))
              AND coalesce(o.bytes, o.count) IS NOT NULL
             THEN coalesce(format('{{:,}} B', o.bytes), format('{{:,}} elements', o.count)) END,
        CASE WHEN o.root IS NOT NULL THEN 'root ' || o.root END)
"""
# How NCCL runs it. Known only once it is launched: calls of a round may be compared by it only
# where all of them have it.
MANNER = "nullif(concat_ws(' ', o.algo, o.proto), '')"


@relation(
    "knowledge",
    reads=["ops"],
    columns=[
        "job",
        ("completion", "BOOLEAN", "", "some recording of operations says whether they completed"),
        ("ends", "BOOLEAN", "", "... by their end alone: an operation without one goes on"),
        ("durations", "BOOLEAN", "", "some operation says how long it took"),
        ("live", "INTEGER[]", "", "ranks recorded by hooks, which observed what is in flight"),
    ],
    at="node",
    source="CCL-D 4.1",
)
def knowledge() -> str:
    """What the recordings of each job can know at all."""
    return """
        WITH hooked AS (
            SELECT DISTINCT job, rank, true AS live FROM launches WHERE source = 'board'),
        recorded_comms AS (
            SELECT job, rank, any_value(live) AS live,
                bool_or(done IS NOT NULL
                    OR coalesce(ended_ns, duration_ns, observed_ns) IS NOT NULL)
                    AS completion,
                bool_or(done IS NULL
                    AND coalesce(ended_ns, duration_ns, observed_ns) IS NOT NULL) AS ends,
                bool_or(duration_ns IS NOT NULL
                    OR (started_ns IS NOT NULL AND ended_ns IS NOT NULL)) AS durations
            FROM ops LEFT JOIN hooked USING (job, rank) GROUP BY job, rank)
        SELECT job, bool_or(completion AND live IS NULL) AS completion,
            bool_or(ends AND live IS NULL) AS ends,
            bool_or(durations) AS durations, coalesce(list(rank) FILTER (live), []) AS live
        FROM recorded_comms GROUP BY job
    """


@relation(
    "operations",
    reads=["ops", "knowledge"],
    columns=OPERATION_COLUMNS,
    at="node",
    source="CCL-D 4.1",
    view=True,
)
def operations() -> str:
    """Every recorded row of every operation, with completion and entry settled."""
    return """
        SELECT o.* REPLACE (
                coalesce(kind, CASE WHEN op IN ('Send', 'Recv') THEN 'p2p' ELSE 'coll' END) AS kind,
                -- From the call would count time in the queue, and watchdogs see ends late.
                coalesce(duration_ns, ended_ns - started_ns) AS duration_ns,
                CASE WHEN done IS NOT NULL THEN done
                     WHEN ended_ns IS NOT NULL OR duration_ns IS NOT NULL THEN true
                     -- A join here would be paid by every reader for every operation.
                     WHEN observed_ns IS NOT NULL THEN false
                     WHEN list_contains((SELECT list(job) FROM knowledge WHERE ends), job)
                         AND NOT list_contains((SELECT flatten(list(live)) FROM knowledge), rank)
                         THEN false
                     END AS done),
            coalesce(started_ns, enqueued_ns, ended_ns - duration_ns, observed_ns - duration_ns)
                AS entered_ns,
            coalesce(enqueued_ns, started_ns, ended_ns - duration_ns, observed_ns - duration_ns)
                AS called_ns,
            started_ns IS NOT NULL AS on_device, o.rowid AS ops_row
        FROM ops o
    """


@relation(
    "heads",
    reads=["operations"],
    columns=[
        "job comm",
        ("rank", "INTEGER", "", "a rank with recorded operations on it"),
        ("entered_seq", "BIGINT", "", "last collective it entered"),
        ("done_seq", "BIGINT", "", "last collective that completed on it"),
        ("p2p", "BOOLEAN", "", "there are Sends or Recvs among them"),
        ("done_p2p_seq", "BIGINT", "", "last of those that completed"),
        ("newest_ns", "BIGINT", "ns", "when it called the last one of those that completed"),
    ],
    source="CCL-D 5.1",
    at="node",
)
def heads() -> str:
    """How far the recorded operations of each rank reach: all that most questions need of them."""
    return """
        SELECT job, comm, rank, max(seq) FILTER (kind = 'coll') AS entered_seq,
            max(seq) FILTER (kind = 'coll' AND done) AS done_seq, bool_or(kind = 'p2p') AS p2p,
            max(seq) FILTER (kind = 'p2p' AND done) AS done_p2p_seq,
            max(called_ns) FILTER (done) AS newest_ns
        FROM operations GROUP BY job, comm, rank
    """


@relation(
    "even_sizes",
    reads=["operations"],
    columns=[
        "job comm",
        ("op", "VARCHAR", "", "an operation whose sizes may differ between ranks, but do not here"),
    ],
    source="CCL-D 4.1.2",
    params={"few": "lost_time.few"},
)
def even_sizes() -> str:
    """Where all members always passed one size, a single round of two sizes is a mistake."""
    return f"""
        SELECT job, comm, op FROM (
            SELECT job, comm, op, seq, count(DISTINCT coalesce(bytes, count)) AS sizes
            FROM operations WHERE kind = 'coll' AND op IN {_UNEVEN} GROUP BY ALL)
        GROUP BY ALL HAVING count(*) > $few AND count(*) FILTER (sizes > 1) <= 1
    """


@relation(
    "in_flight",
    reads=["operations", "heads"],
    columns=[*OPERATION_COLUMNS, ("waited_ns", "BIGINT", "ns", "time in it; NULL if unknown")],
    source="CCL-D 4.2.1",
    at="node",
)
def in_flight() -> str:
    """Operations that had not completed when last observed, one row each."""
    return """
        WITH named AS NOT MATERIALIZED (  -- two looks cost less than a copy
            -- A Send and a Recv of one group call may share their number.
            SELECT ops_row, job, comm, kind, seq, rank, done, observed_ns, on_device, entered_ns,
                CASE kind WHEN 'p2p' THEN concat_ws(' ', op, coalesce(comm_peer, peer))
                          ELSE '' END AS half
            FROM operations),
        open AS (
            SELECT ops_row, job, comm, kind, seq, rank, half FROM named WHERE NOT done
            QUALIFY row_number() OVER (
                PARTITION BY job, comm, kind, seq, rank, half
                ORDER BY observed_ns DESC NULLS LAST, on_device DESC, entered_ns) = 1),
        -- Written open and later written done: only below what the rank has done can that be.
        doubtful AS (
            SELECT o.* FROM open o JOIN heads h USING (job, comm, rank)
            WHERE o.seq <= CASE o.kind WHEN 'coll' THEN h.done_seq ELSE h.done_p2p_seq END),
        closed AS (
            SELECT job, comm, kind, seq, rank, half
            FROM named SEMI JOIN doubtful USING (job, comm, kind, seq, rank) WHERE done),
        held AS (SELECT ops_row FROM open ANTI JOIN closed USING (job, comm, kind, seq, rank, half))
        SELECT *, observed_ns - entered_ns AS waited_ns
        FROM operations SEMI JOIN held USING (ops_row)
    """


@relation(
    "members",
    reads=["ops|comms"],
    columns=[
        "job comm rank comm_rank size name role",
        ("tree_layer", "INTEGER", "", "depth in its tree, if recorded"),
        "node gpu nic pid",
    ],
    source="CCL-D 5.1",
    at="node",
)
def members() -> str:
    """The members of each communicator: as recorded, and every rank seen operating on it."""
    return """
        WITH recorded_comms AS (SELECT DISTINCT ON (job, comm, rank) * FROM comms ORDER BY ALL),
        acting AS (SELECT job, comm, rank FROM heads),
        placed AS (
            SELECT DISTINCT ON (job, rank) job, rank, node, gpu, nic, pid FROM ranks ORDER BY ALL)
        SELECT job, comm, rank, comm_rank, size, name, role, tree_layer, node, gpu, nic, pid
        FROM recorded_comms
        FULL JOIN acting USING (job, comm, rank) LEFT JOIN placed USING (job, rank)
        WHERE rank IS NOT NULL
    """


@relation(
    "witnesses",
    reads=["ops|launches|recordings"],
    columns=[
        "job",
        ("rank", "INTEGER", "", "a rank with evidence recorded on it"),
    ],
    source="DESIGN 1",
)
def witnesses() -> str:
    """Ranks whose operations could be seen: of their own recording, even an empty one; a log or a
    stack shows that a process lived, not what it called. A member not among them has no data,
    which never means healthy."""
    return """
        SELECT job, rank FROM heads
        UNION SELECT job, rank FROM launches WHERE state IS NULL
              OR state NOT IN ('unresponsive', 'dead')
        UNION SELECT job, rank FROM recordings WHERE rank IS NOT NULL AND problem IS NULL
            AND coalesce(kind NOT IN ('log', 'stacks', 'host_text'), true)
    """


@relation(
    "processes",
    reads=["ranks|ops|launches|recordings"],
    columns=[
        "job rank node gpu nic pid",
        ("observed", "BOOLEAN", "", "there is evidence recorded on the rank itself"),
        ("node_observed", "BOOLEAN", "", "some rank of its host left evidence; NULL: host unknown"),
    ],
    source="DESIGN 1",
)
def processes() -> str:
    """Every known rank, where it runs, and whether there is evidence from it and its host."""
    return """
        WITH known AS (SELECT job, rank FROM ranks WHERE rank IS NOT NULL
                       UNION SELECT job, rank FROM comms WHERE rank IS NOT NULL
                       UNION SELECT job, rank FROM witnesses WHERE rank IS NOT NULL
                       UNION SELECT job, rank FROM launches WHERE rank IS NOT NULL),
        placed AS (
            SELECT DISTINCT ON (job, rank) job, rank, node, gpu, nic, pid FROM ranks ORDER BY ALL)
        SELECT k.job, k.rank, p.node, p.gpu, p.nic, p.pid, w.rank IS NOT NULL AS observed,
            CASE WHEN p.node IS NOT NULL
                 THEN bool_or(w.rank IS NOT NULL) OVER (PARTITION BY k.job, p.node) END
                AS node_observed
        FROM known k LEFT JOIN placed p USING (job, rank) LEFT JOIN witnesses w USING (job, rank)
    """
