"""How overdue the calls are that others wait for, in recordings of calls alone.

When the log was read is unknown, but it shows how long the others went on. While training goes on,
no rank is without its next call for much longer than ever before; in a hang the others run on until
they wait. Clocks of hosts may differ by more than that. But a rank that makes its next call after a
joint call has seen all members make the joint call: this bounds how far apart two clocks are.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


def _calling_spans() -> str:
    """How long the mates of ranks that are waited for went on calling, on their rank's clock, and
    how much later they make their joint calls by the baseline."""
    return """
        pairs AS (
            SELECT a.job, f.comm, a.rank, m.rank AS mate FROM awaited_callers a
            JOIN call_fronts f USING (job, rank)
            JOIN call_fronts m ON m.job = f.job AND m.comm = f.comm AND m.rank <> f.rank
            QUALIFY a.joint = bool_or(a.joint) OVER (PARTITION BY a.job)),
        ranks AS (
            SELECT DISTINCT job, rank FROM pairs UNION SELECT DISTINCT job, mate FROM pairs),
        -- What ranks exchange in one group call is one call.
        next_calls AS (
            SELECT *, min(called_ns) OVER (
                PARTITION BY job, rank ORDER BY called_ns
                RANGE BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS next_ns
            FROM (
                SELECT job, rank, comm, min(called_ns) AS called_ns, max(called_ns) AS last_ns
                FROM operations SEMI JOIN ranks USING (job, rank) WHERE called_ns IS NOT NULL
                GROUP BY job, rank, comm, kind, coalesce(group_id, seq))),
        joint AS (
            SELECT j.job, j.rank, j.comm, j.seq, j.called_ns, min(c.next_ns) AS next_ns
            FROM joint_calls j JOIN next_calls c ON c.job = j.job AND c.rank = j.rank
                AND c.comm = j.comm AND c.called_ns = j.called_ns
            SEMI JOIN (SELECT DISTINCT job, comm FROM pairs) p
                ON p.job = j.job AND p.comm = j.comm
            GROUP BY ALL),
        apart AS (
            SELECT p.job, p.rank, p.mate, p.comm, count(*) AS rounds,
                median(m.called_ns - a.called_ns) AS called_apart_ns,
                median(m.next_ns - a.next_ns) AS left_apart_ns,
                $spreads * mad(m.next_ns - a.next_ns) AS error_ns
            FROM pairs p JOIN joint a ON a.job = p.job AND a.comm = p.comm AND a.rank = p.rank
            JOIN joint m ON m.job = p.job AND m.comm = p.comm AND m.rank = p.mate
                AND m.seq = a.seq
            GROUP BY ALL HAVING count(*) >= $fewest_rounds),
        best AS (
            SELECT DISTINCT job, rank, mate,
                first(called_apart_ns) OVER (mates ORDER BY rounds DESC, error_ns, comm)
                    AS apart_ns,
                first(left_apart_ns + error_ns) OVER (mates ORDER BY error_ns, rounds DESC, comm)
                    AS most_ns
            FROM apart WINDOW mates AS (PARTITION BY job, rank, mate)),
        mate_ends AS (
            SELECT job, rank AS mate, max(last_ns) AS last_ns FROM next_calls GROUP BY ALL),
        calling_spans AS (
            SELECT job, rank, mate, last_ns - most_ns AS last_ns, apart_ns
            FROM best JOIN mate_ends USING (job, mate))
    """


def _callers() -> str:
    """Ranks that are waited for, clocks of their mates, and communicators where they are behind."""
    return """
        ends AS (
            SELECT job, rank, max(last_ns) AS last_ns FROM calling_spans GROUP BY ALL),
        clocks AS (
            SELECT job, rank, mate, apart_ns FROM calling_spans
            UNION ALL SELECT job, rank, rank, 0 FROM ends),
        callers AS (
            SELECT e.*, a.joint, a.comm AS last_comm, a.seq AS last_seq
            FROM ends e JOIN awaited_callers a USING (job, rank)),
        behind AS (
            SELECT c.job, c.rank, f.comm, f.seq, c.last_ns
            FROM callers c JOIN call_fronts f USING (job, rank) WHERE f.behind),
        looked AS (
            SELECT job, rank, comm FROM behind
            UNION SELECT job, rank, last_comm FROM callers WHERE joint)
    """


def _waited() -> str:
    """For how long members have waited for each such call, and as many members ever did before."""
    return """
        rounds AS (
            SELECT l.job, l.rank, l.comm, j.seq, min(j.op) AS op, min(j.count) AS count,
                max(j.called_ns - k.apart_ns) AS last_ns,
                count(*) AS members, bool_or(j.rank = l.rank) AS called,
                max(j.called_ns) FILTER (j.rank = l.rank) AS own_ns,
                list_sort(list(j.called_ns - k.apart_ns)) AS calls_ns
            FROM looked l JOIN joint_calls j ON j.job = l.job AND j.comm = l.comm
            JOIN clocks k ON k.job = l.job AND k.rank = l.rank AND k.mate = j.rank
            GROUP BY ALL),
        unmet AS (
            SELECT b.job, b.rank, b.comm, r.seq, r.op, r.members AS waiting,
                b.last_ns - max(r.last_ns) OVER here AS waited_ns
            FROM behind b JOIN rounds r ON r.job = b.job AND r.rank = b.rank AND r.comm = b.comm
                AND r.seq > coalesce(b.seq, -1) AND NOT r.called
            WINDOW here AS (PARTITION BY b.job, b.rank, b.comm)
            QUALIFY r.seq = min(r.seq) OVER here),
        -- Like with like: how long as many members ever waited for as many others. A wait that is
        -- as long as normal counts as the longest did.
        lasted AS (
            SELECT u.job, u.rank, u.comm, greatest(u.waited_ns, 0) AS waited_ns,
                r.last_ns - r.calls_ns[u.waiting] AS before_ns,
                max(before_ns) OVER here AS longest_ns,
                longest_ns / greatest($times * longest_ns, $hiccup) AS scaled
            FROM unmet u JOIN (
                FROM rounds QUALIFY members = max(members) OVER (PARTITION BY job, rank, comm)) r
                USING (job, rank, comm)
            WINDOW here AS (PARTITION BY u.job, u.rank, u.comm)),
        waits AS (
            SELECT job, rank, comm, any_value(longest_ns) AS longest_ns,
                sum(greatest(before_ns - waited_ns * scaled, 0)) AS beyond_ns
            FROM lasted GROUP BY ALL HAVING count(*) >= $fewest_rounds),
        awaited AS (
            SELECT u.*, w.longest_ns, w.beyond_ns
            FROM unmet u LEFT JOIN waits w USING (job, rank, comm))
    """


def _silences() -> str:
    """How long each rank ever took from the inputs of a call like its newest to its next call."""
    return """
        newest AS (
            SELECT r.* FROM rounds r JOIN callers c ON c.job = r.job AND c.rank = r.rank
                AND c.last_comm = r.comm AND c.last_seq = r.seq),
        own AS (
            SELECT n.job, n.rank, max(x.next_ns - greatest(r.last_ns, r.own_ns)) AS longest_ns,
                count(DISTINCT r.seq) AS times
            FROM newest n JOIN rounds r ON r.job = n.job AND r.rank = n.rank AND r.comm = n.comm
                AND r.op = n.op AND r.count IS NOT DISTINCT FROM n.count AND r.seq < n.seq
            JOIN next_calls x ON x.job = r.job AND x.rank = r.rank AND x.comm = r.comm
                AND x.called_ns = r.own_ns
            GROUP BY ALL)
    """


@relation(
    "overdue_calls",
    reads=["awaited_callers", "call_fronts", "joint_calls"],
    empty_without=["awaited_callers"],
    columns=[
        "job",
        ("rank", "INTEGER", "", "a rank that is waited for"),
        ("comm", "UBIGINT", "", "communicator where others wait for it, most overdue"),
        ("seq", "BIGINT", "", "the joint call that it did not make there"),
        ("op", "VARCHAR", "", "what the others call"),
        ("waiting", "BIGINT", "ranks", "members that have called it"),
        ("since_ns", "BIGINT", "ns", "its own last call"),
        ("waited_ns", "BIGINT", "ns", "for how long the last of them waited until the log ends"),
        ("longest_ns", "BIGINT", "ns", "for how long as many ever waited there before"),
        ("silent_ns", "BIGINT", "ns", "for how long all inputs of its next call were there"),
        ("longest_silent_ns", "BIGINT", "ns", "the longest that it ever took for that"),
        ("share", "DOUBLE", "0..1", "of the time before, that in which as many waited as now"),
    ],
    source="VenusTrace 3.3 (n times the expected time)",
    params={
        "fewest_rounds": "lost_time.few",
        "spreads": Param(3, "times the baseline scatter: two clocks may differ by as much"),
        "scatter": Param("1 ms", "what hosts do between two calls scatters by as much"),
        "times": Param(2, "times the longest wait before (VenusTrace 4: n = 100 % beyond)"),
        "hiccup": "lost_time.hiccup",
    },
)
def overdue_calls() -> str:
    """How long others have gone on without the call that they wait for, and how long they ever did
    before."""
    stages = (_calling_spans(), _callers(), _waited(), _silences())
    return f"""
        WITH {",".join(stages)}
        SELECT c.job, c.rank, w.comm, w.seq, w.op, w.waiting,
            l.called_ns AS since_ns, w.waited_ns, w.longest_ns,
            c.last_ns - greatest(n.last_ns, n.own_ns) AS silent_ns,
            CASE WHEN o.times >= $fewest_rounds THEN o.longest_ns END AS longest_silent_ns,
            -- Most wait in the largest group. One more such wait is assumed, twice as long as this.
            first((w.beyond_ns + greatest(w.waited_ns, $scatter)) / l.span_ns) OVER (
                PARTITION BY c.job, c.rank ORDER BY w.waiting DESC NULLS LAST, w.comm) AS share
        FROM callers c
        LEFT JOIN awaited w USING (job, rank)
        LEFT JOIN newest n USING (job, rank) LEFT JOIN own o USING (job, rank)
        LEFT JOIN (
            SELECT job, rank, max(last_ns) AS called_ns,
                max(last_ns) - min(called_ns) AS span_ns
            FROM next_calls GROUP BY ALL) l
            USING (job, rank)
        QUALIFY row_number() OVER (PARTITION BY c.job, c.rank
            ORDER BY w.waited_ns / greatest(w.longest_ns, $scatter) DESC NULLS LAST, w.comm) = 1
    """
