"""How far each rank has got, where a recorder logs calls and no ends, as Megatrace does.

All members of a communicator call its collectives together, so the others wait for a member that
has made fewer of these calls. All that a group exchanges in one group call, as experts do, counts
as one call.
"""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "joint_calls",
    reads=["ops", "knowledge"],
    columns=[
        ("job", "VARCHAR", "", "a job of which only calls are recorded"),
        "comm",
        ("seq", "BIGINT", "", "its number there"),
        ("rank", "INTEGER", "", "who called"),
        "op",
        ("count", "BIGINT", "elements", "its size"),
        ("called_ns", "BIGINT", "ns", "when, on the rank's own clock"),
    ],
    source="VenusTrace 3.2.1",
)
def joint_calls() -> str:
    """Calls that all members of a communicator make: collectives, and exchanges of all with all."""
    return """
        WITH alone AS (SELECT job FROM knowledge WHERE NOT completion AND len(live) = 0),
        calls AS (
            FROM operations SEMI JOIN alone USING (job)
            WHERE comm IS NOT NULL AND seq IS NOT NULL AND called_ns IS NOT NULL),
        sizes AS (
            SELECT job, comm, greatest(max(size), count(*)) AS size FROM members
            SEMI JOIN alone USING (job) GROUP BY job, comm)
        SELECT job, comm, seq, rank, min(op) AS op, min(count) AS count,
            min(called_ns) AS called_ns
        FROM calls WHERE kind = 'coll' GROUP BY job, comm, seq, rank
        UNION ALL
        SELECT job, comm, min(seq), rank, 'AllToAll', sum(count), min(called_ns)
        FROM calls JOIN sizes USING (job, comm) WHERE kind = 'p2p' AND group_id IS NOT NULL
        GROUP BY job, comm, rank, group_id
        HAVING count(*) FILTER (op = 'Send') >= greatest(any_value(size), 2)
    """


@relation(
    "call_fronts",
    reads=["joint_calls", "members"],
    empty_without=["joint_calls"],
    columns=[
        "job comm",
        ("rank", "INTEGER", "", "a member whose log records it"),
        ("seq", "BIGINT", "", "the last joint call it made; NULL: none"),
        ("newest", "BIGINT", "", "the last that any member made"),
        ("behind", "BOOLEAN", "", "others have made a call that it has not"),
        ("ahead", "BOOLEAN", "", "it has made a call that others have not"),
        ("silent_members", "BIGINT", "ranks", "members without data since"),
    ],
    source="VenusTrace Algorithm 1 (line 10)",
)
def call_fronts() -> str:
    """The last joint call of each member of each communicator, against the others'.

    A rank whose recorder lost calls after that may have made the next: there it is as one without
    a log.
    """
    return """
        WITH used AS (SELECT DISTINCT job, comm FROM joint_calls),
        made AS (
            SELECT job, comm, rank, max(seq) AS seq, max(called_ns) AS last_ns,
                max(seq) - min(seq) + 1 - count(*) AS missing
            FROM joint_calls GROUP BY job, comm, rank),
        -- Where some member lacks no number, another's that jump are its recorder's loss.
        torn AS (
            FROM made QUALIFY missing > 0 AND min(missing) OVER (PARTITION BY job, comm) = 0),
        jumps AS (
            SELECT job, rank, called_ns, seq - lag(seq) OVER (
                PARTITION BY job, comm, rank ORDER BY seq) AS jump
            FROM joint_calls SEMI JOIN torn USING (job, comm, rank)),
        holes AS (
            SELECT job, rank, max(called_ns) AS until_ns FROM jumps WHERE jump > 1
            GROUP BY job, rank),
        seats AS (
            SELECT m.job, m.comm, m.rank, c.seq, w.rank IS NOT NULL
                AND coalesce(c.last_ns >= h.until_ns, h.until_ns IS NULL) AS observed
            FROM members m SEMI JOIN used USING (job, comm)
            LEFT JOIN made c USING (job, comm, rank) LEFT JOIN witnesses w USING (job, rank)
            LEFT JOIN holes h USING (job, rank))
        SELECT job, comm, rank, seq, newest, coalesce(seq < newest, true) AS behind,
            coalesce(seq > coalesce(oldest, -1), false) AS ahead, silent_members
        FROM (
            SELECT *, max(seq) OVER each AS newest,
                min(coalesce(seq, -1)) FILTER (observed) OVER each AS oldest,
                count(*) FILTER (NOT observed) OVER each AS silent_members
            FROM seats WINDOW each AS (PARTITION BY job, comm))
        WHERE observed
    """
