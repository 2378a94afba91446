"""The ranks named for an operation that does not end, and the reason.

The first reason that applies counts: 1. calls in another order, 2. passed where others stopped, 3.
never called, 4. calls another operation, 5. no data, 6. unknown members, 7. left it, 8. its GPU did
not begin it, 9. fewest steps, 10. both ends of a transfer, 11. one of the group.
"""

from __future__ import annotations

from oncall.evidence import relation
from oncall.evidence.coverage import GATHERED


def _members() -> str:
    """The members of each unmet call with their state there, and the culprits among them."""
    return """
        present AS (
            SELECT m.*, u.how, u.kind AS call_kind,
                count(*) FILTER (m.state = 'waiting') OVER here AS waiting,
                count(*) FILTER (m.state = 'finished') OVER here AS finished,
                bool_and(m.recvs > 0) FILTER (m.state = 'waiting') OVER here AS received
            FROM hang_members m JOIN unmet_calls u USING (job, comm, seq)
            WINDOW here AS (PARTITION BY m.job, m.comm, m.seq)),
        culprits AS (
            SELECT DISTINCT job, comm, seq, rank, how FROM hang_roots WHERE rank IS NOT NULL)
    """


def _in_other_order() -> str:
    """Culprits of a cycle, each with the call in another communicator that blocks it."""
    return """
        crossing AS (
            SELECT c.job, c.comm, c.seq, c.rank, b.op, b.seq AS place, b.since_ns AS at_ns,
                count(*) OVER (PARTITION BY c.job, c.comm, c.seq, b.comm, b.seq) AS together
            FROM culprits c LEFT JOIN front b USING (job, rank) WHERE c.how = 'cycle'),
        crossed AS (
            SELECT c.job, c.comm, c.seq, c.rank, m.node, m.gpu, m.nic, m.pid, 'crossed' AS reason,
                c.op AS called, c.place AS number, c.at_ns
            FROM crossing c LEFT JOIN members m USING (job, comm, rank)
            QUALIFY together = min(together) OVER (PARTITION BY c.job, c.comm, c.seq))
    """


def _called_otherwise() -> str:
    """Members that passed the call, never called it, or called another operation."""
    return """
        -- A device error leaves open what the peers completed.
        unnoticed AS (
            SELECT c.job, c.comm, c.seq, c.rank, count(*) AS operations
            FROM culprits c JOIN in_flight i USING (job, rank) ANTI JOIN halted USING (job, rank)
            WHERE i.kind = 'coll' AND EXISTS (
                FROM frontier f WHERE f.job = i.job AND f.comm = i.comm AND f.rank <> i.rank
                    AND f.done_seq >= i.seq)
            GROUP BY ALL),
        -- Of counters alone: ranks that stopped together wait for one call, which others passed.
        stopped AS (
            SELECT p.job, p.comm, p.seq, count(*) FILTER (p.state = 'absent') AS others
            FROM present p SEMI JOIN members m USING (job, comm, rank)
            JOIN (FROM unmet_calls WHERE op IS NULL) u USING (job, comm, seq)
            LEFT JOIN culprits c USING (job, comm, seq, rank)
            GROUP BY ALL HAVING 2 * others > count(*)
                AND count(DISTINCT p.last_seq) FILTER (p.state = 'absent') = 1
                AND bool_and(c.rank IS NOT NULL) FILTER (p.state = 'absent')),
        passed AS (
            SELECT job, comm, seq, rank, node, gpu, nic, pid, 'passed' AS reason,
                others AS number, entered_ns AS at_ns
            FROM present JOIN stopped USING (job, comm, seq) WHERE state = 'waiting'),
        uncalled AS (
            SELECT p.job, p.comm, p.seq, p.rank, node, gpu, nic, pid, 'uncalled' AS reason,
                CASE WHEN n.operations IS NOT NULL THEN 'device'
                    WHEN x.rank IS NULL THEN 'elsewhere'
                    WHEN p.kind = 'coll' AND p.last_seq >= p.seq THEN 'ended'
                    WHEN p.last_seq IS NOT NULL THEN 'after'
                    WHEN p.kind = 'coll' THEN 'before' END AS detail,
                coalesce(n.operations, p.last_seq) AS number,
                p.entered_ns AS at_ns
            FROM present p JOIN culprits c USING (job, comm, seq, rank)
            LEFT JOIN unnoticed n USING (job, comm, seq, rank)
            LEFT JOIN (SELECT job, comm, rank FROM members) x USING (job, comm, rank)
            WHERE c.how = 'absent'),
        mismatch AS (
            SELECT o.job, o.comm, o.seq, o.rank, o.node, 'mismatch' AS reason,
                o.signature AS called, o.others,
                o.entered_ns AS at_ns
            FROM odd_calls o SEMI JOIN unmet_calls USING (job, comm, seq))
    """


def _without_data() -> str:
    """Members without data, and members that are unknown."""
    return f"""
        silent_hosts AS (
            SELECT node, any_value(error) AS error,
                node IN (SELECT node FROM ranks WHERE node IS NOT NULL) AS named
            FROM collectors
            WHERE source = '{GATHERED}' AND error IS NOT NULL AND node IS NOT NULL
            GROUP BY node),
        unseen AS (
            SELECT p.job, p.comm, p.seq, p.rank, p.node, p.gpu, p.nic, p.pid, 'unseen' AS reason,
                CASE WHEN p.state <> 'silent' THEN 'older' WHEN h.node IS NOT NULL THEN 'unanswered'
                    WHEN p.node IS NULL THEN 'unplaced' WHEN node_observed THEN 'alone'
                    ELSE 'host' END AS detail, h.error AS others
            FROM present p JOIN culprits c USING (job, comm, seq, rank)
            LEFT JOIN silent_hosts h ON h.node = p.node
            WHERE c.how = 'silent' AND NOT coalesce(received, false)
            -- A rank without data on a host with data weighs more than a host out of reach.
            QUALIFY coalesce(node_observed, false) = bool_or(coalesce(node_observed, false)) OVER (
                PARTITION BY p.job, p.comm, p.seq)),
        unnamed AS (
            SELECT u.job, u.comm, u.seq, h.node, 'unnamed' AS reason,
                CASE WHEN h.node IS NULL THEN 'group' ELSE 'node' END AS kind,
                u.unknown AS number, h.error AS others
            FROM unmet_calls u
            JOIN (SELECT DISTINCT job, comm, seq, received FROM present) p USING (job, comm, seq)
            LEFT JOIN (FROM silent_hosts WHERE NOT named) h ON true
            WHERE u.kind = 'coll' AND u.unknown > 0 AND NOT coalesce(p.received, false))
    """


def _inside() -> str:
    """Members in the call whose GPU did not begin it, that completed it, or made fewest steps."""
    return """
        -- Called, and not begun: what ran on the GPU before it, no operation of NCCL, does not end.
        unbegun AS (
            SELECT p.job, p.comm, p.seq, p.rank, node, gpu, nic, pid, 'unbegun' AS reason,
                entered_ns AS at_ns
            FROM present p
            WHERE call_kind = 'coll' AND state = 'waiting' AND NOT begun AND finished = 0
                AND NOT EXISTS (FROM in_flight i WHERE i.job = p.job AND i.rank = p.rank
                                AND i.entered_ns < p.entered_ns)
                AND (SELECT count(*) FILTER (q.begun) >= count(*) FILTER (NOT q.begun)
                     FROM present q WHERE q.job = p.job AND q.comm = p.comm AND q.seq = p.seq)),
        left_it AS (
            SELECT job, comm, seq, rank, node, gpu, nic, pid,
                CASE state WHEN 'finished' THEN 'completed' ELSE 'incomplete' END AS reason,
                CASE state WHEN 'finished' THEN waiting ELSE finished END AS number,
                entered_ns AS at_ns
            FROM present
            WHERE finished > 0 AND CASE WHEN finished < waiting THEN state = 'finished'
                ELSE state = 'waiting' END),
        behind AS (
            SELECT *, most - steps AS less FROM (
                SELECT job, comm, seq, rank, node, gpu, nic, pid, entered_ns AS at_ns, waiting,
                    coalesce(sends, 0) + coalesce(recvs, 0) AS steps,
                    max(steps) OVER (PARTITION BY job, comm, seq, peer_group) AS most
                FROM present p WHERE state = 'waiting' AND coalesce(sends, recvs) IS NOT NULL
                    -- Neighbours on one host need not make the steps over the network.
                    AND NOT EXISTS (
                        FROM present n
                        SEMI JOIN (FROM transfers WHERE ended_ns IS NULL) USING (job, comm)
                        WHERE n.job = p.job AND n.comm = p.comm AND n.seq = p.seq
                            AND n.state = 'waiting'
                            AND coalesce(n.sends, 0) * coalesce(n.recvs, 0) = 0))
            -- Two members that came equally far are a tie worth naming; more are a communicator.
            WHERE steps < most OR waiting = 2
            QUALIFY less = max(less) OVER (PARTITION BY job, comm, seq))
    """


def _undistinguished() -> str:
    """Both ends of a transfer, and the whole group, where nothing distinguishes members."""
    return """
        ends AS (
            SELECT job, comm, seq, rank, node, gpu, nic, pid, 'ends' AS reason,
                entered_ns AS at_ns
            FROM present WHERE call_kind = 'p2p' AND state = 'waiting' AND waiting = 2),
        every AS (
            SELECT u.job, u.comm, u.seq, 'group' AS kind, 'group' AS reason,
                u.size AS number, u.at_ns,
                (SELECT list(p.rank ORDER BY p.rank) FROM present p
                 WHERE p.job = u.job AND p.comm = u.comm AND p.seq = u.seq) AS ranks
            FROM unmet_calls u)
    """


def _by_reason() -> str:
    """All suspects, each with the place of its reason in the order above."""
    return """
        suspects AS (
            SELECT 1 AS place, * FROM crossed
            UNION ALL BY NAME SELECT 2 AS place, * FROM passed
            UNION ALL BY NAME SELECT 3 AS place, * FROM uncalled
            UNION ALL BY NAME SELECT 4 AS place, * FROM mismatch
            UNION ALL BY NAME SELECT 5 AS place, * FROM unseen
            UNION ALL BY NAME SELECT 6 AS place, * FROM unnamed
            UNION ALL BY NAME SELECT 7 AS place, * FROM left_it
            UNION ALL BY NAME SELECT 8 AS place, * FROM unbegun
            UNION ALL BY NAME SELECT 9 AS place, 'behind' AS reason, steps AS number,
                most::VARCHAR AS others, * EXCLUDE (steps, most, less, waiting) FROM behind
            UNION ALL BY NAME SELECT 10 AS place, * FROM ends
            UNION ALL BY NAME SELECT 11 AS place, * FROM every)
    """


@relation(
    "hang_suspects",
    reads=["unmet_calls", "hang_members"],
    empty_without=["unmet_calls"],
    columns=[
        "job comm seq",
        ("rank", "INTEGER", "", "a suspect; NULL: a host or the group"),
        "node gpu nic pid comm_name op",
        ("kind", "VARCHAR", "", "group or node, where it is no rank"),
        ("ranks", "INTEGER[]", "", "the members of a group"),
        (
            "reason",
            "VARCHAR",
            "",
            "crossed, passed, uncalled, mismatch, unseen, unnamed, completed, incomplete, unbegun, "
            "behind, ends or group",
        ),
        (
            "detail",
            "VARCHAR",
            "",
            "uncalled: after, before (its first), ended (inside), device or elsewhere; unseen: "
            "older (dump), unanswered, unplaced, alone (on its host) or host (no data of it)",
        ),
        ("number", "BIGINT", "", "the last call, steps, members, or operations that it turns on"),
        ("called", "VARCHAR", "", "what it called"),
        ("others", "VARCHAR", "", "what the others called, or did; a host's error"),
        ("at_ns", "BIGINT", "ns", "when it entered"),
        ("activity", "VARCHAR", "", "what its main thread does; NULL: no stack of it"),
        ("frame", "VARCHAR", "", "the frame that shows it"),
    ],
    source="CCL-D 4.2.2; stacks",
)
def hang_suspects() -> str:
    """The ranks, the host or the group to look at for each unmet call, all for one reason."""
    stages = (
        _members(),
        _in_other_order(),
        _called_otherwise(),
        _without_data(),
        _inside(),
        _undistinguished(),
        _by_reason(),
    )
    return f"""
        WITH {",".join(stages)}
        SELECT s.job, s.comm, s.seq, s.rank, coalesce(s.node, m.node) AS node, gpu, nic,
            coalesce(s.pid, m.pid) AS pid, u.comm_name, u.op, s.kind, s.ranks,
            -- A rank that recorded nothing and whose stack is elsewhere is not in the call.
            CASE WHEN reason = 'unseen' AND m.activity <> 'collective' THEN 'uncalled'
                ELSE reason END AS reason, detail, number, called, others,
            s.at_ns, m.activity, m.frame
        FROM suspects s JOIN unmet_calls u USING (job, comm, seq)
        LEFT JOIN main_threads m ON m.job = s.job AND m.rank = s.rank AND m.looks > 0
        -- Of ranks that have not called, one that is blocked in a call itself waits, too.
        WINDOW here AS (PARTITION BY s.job, s.comm, s.seq)
        QUALIFY place = min(place) OVER here AND (
            reason <> 'uncalled' OR m.activity IS DISTINCT FROM 'collective'
            OR bool_and(coalesce(m.activity, '') = 'collective')
                FILTER (reason = 'uncalled') OVER here)
        ORDER BY s.job, s.comm, s.seq, s.rank
    """
