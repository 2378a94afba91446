"""Links, and receiving GPUs, whose steps inside collectives take longer than those of others.

A proxy records how long the steps of a transfer were posted and not completed, and how long
received data waited for the GPU. Each link is compared with the faster links of its operation (a
NIC slows two links of a ring), or with its own past; each host with the others of its operation. In
each window the median decides: a slow link is slow in most windows, jitter only in some. If few
transfers were kept, windows are long enough to have a median.
"""

from __future__ import annotations

from oncall.evidence import Param, relation

_LOSS = [
    ("label", "VARCHAR", "", "what the communicator is for"),
    ("seq", "BIGINT", "", "the operation that lost most"),
    ("lost_ns", "BIGINT", "ns", "lost in the windows in which it was slow"),
    ("lost_share", "DOUBLE", "ratio", "of the recorded time"),
]
_SINCE = ("at_ns", "BIGINT", "ns", "since when")


def _slow(by: str, compared: str, lost_ns: str) -> str:
    """What is slow in windows, and costs enough in all of them, `by` the columns that name it."""
    return f"""
        windows AS (
            SELECT {by}, (ended_ns - first_ns) // greatest($window,
                    CASE WHEN thinned THEN 2 * $repeat * (last_ns - first_ns) // total ELSE 0 END)
                    AS nth_window, sum({lost_ns}) AS lost_ns, median(times) AS times,
                min(ended_ns) AS at_ns, arg_max(seq, lost_ns) AS seq,
                any_value(last_ns - first_ns) AS span_ns
            FROM {compared} GROUP BY ALL
            HAVING count(*) >= $repeat AND median(times) > $slow_times),
        slow AS (
            SELECT {by}, sum(lost_ns)::BIGINT AS lost_ns, median(times) AS times,
                min(at_ns) AS at_ns, arg_max(seq, lost_ns) AS seq,
                sum(lost_ns) / nullif(any_value(span_ns), 0) AS lost_share
            FROM windows GROUP BY ALL
            HAVING sum(lost_ns) >= $cost_share * any_value(span_ns))
    """


@relation(
    "slow_rank_links",
    reads=["transfers", "members"],
    columns=[
        "job comm",
        ("rank", "INTEGER", "", "the rank that sends"),
        ("peer", "INTEGER", "", "the rank that receives"),
        ("ranks", "INTEGER[]", "", "the one whose NIC has more slow links; both, if as many"),
        *_LOSS,
        ("times", "DOUBLE", "", "how many times as long its steps are on the wire"),
        _SINCE,
    ],
    source="NCCL proxy steps; VenusTrace 3.2.2 (posted and completed work)",
    params={
        "least_bytes": Param("4 KiB", "of a step: a smaller one shows latency, not a rate"),
        "links_compared": "lost_time.few",
        "baseline_part": "arrivals.offset_part",
        "slow_times": Param(3, "times as long on the wire as elsewhere; noise stays below 2"),
        "window": Param("1 min", "in each, the median of a link's transfers decides"),
        "repeat": "late_culprits.repeat",
        "cost_share": Param("1 %", "of the time: a link that costs less need not wake anyone"),
    },
)
def slow_rank_links() -> str:
    """Links whose steps are on the wire far longer than elsewhere, or than before."""
    return f"""
        -- Steps and channels overlap, so no operation waits longer than it lasts.
        WITH sends AS (
            SELECT job, comm, kind, seq, rank, peer, max(ended_ns) AS ended_ns,
                min(coalesce(stands_for, 1)) AS stands_for,
                sum(wire_wait_ns) / sum(steps) AS step_ns,
                least(avg(wire_wait_ns), max(ended_ns - started_ns)) AS wire_ns
            FROM transfers
            WHERE direction = 'send' AND ended_ns IS NOT NULL AND steps > 0
                AND wire_wait_ns IS NOT NULL AND peer IS NOT NULL
            GROUP BY ALL HAVING coalesce(sum(bytes) >= $least_bytes * sum(steps), true)),
        beside AS (
            SELECT *, quantile_cont(step_ns, 0.25) OVER op AS others_ns, count(*) OVER op AS links,
                min(ended_ns) OVER (PARTITION BY job) AS first_ns,
                max(ended_ns) OVER (PARTITION BY job) AS last_ns, row_number() OVER own AS number,
                count(*) OVER link AS total, max(stands_for) OVER link > 1 AS thinned
            FROM sends
            WINDOW op AS (PARTITION BY job, comm, kind, CASE kind WHEN 'coll' THEN seq END),
                link AS (PARTITION BY job, comm, kind, rank, peer),
                own AS (PARTITION BY job, comm, kind, rank, peer ORDER BY ended_ns)),
        past AS (
            SELECT job, comm, kind, rank, peer, median(step_ns) AS baseline_ns FROM beside
            WHERE number <= greatest(1, total // $baseline_part) GROUP BY ALL),
        compared AS (
            SELECT b.*, greatest(1, CASE WHEN kind = 'coll' AND links >= $links_compared
                    THEN others_ns ELSE baseline_ns END) AS base_ns,
                step_ns / base_ns AS times, wire_ns * (1 - base_ns / step_ns) AS lost_ns
            FROM beside b JOIN past USING (job, comm, kind, rank, peer)
            WHERE number > total // $baseline_part),
        {_slow("job, comm, rank, peer", "compared", "stands_for * lost_ns")},
        ends AS (
            SELECT job, rank, count(DISTINCT other) AS links FROM (
                SELECT job, rank, peer AS other FROM slow UNION SELECT job, peer, rank FROM slow)
            GROUP BY ALL)
        SELECT l.*, CASE WHEN a.links > b.links THEN [l.rank] WHEN b.links > a.links THEN [l.peer]
                ELSE [l.rank, l.peer] END AS ranks,
            coalesce(m.role, m.name, 'the communicator') AS label
        FROM slow l
        JOIN ends a ON a.job = l.job AND a.rank = l.rank
        JOIN ends b ON b.job = l.job AND b.rank = l.peer
        LEFT JOIN members m ON m.job = l.job AND m.comm = l.comm AND m.rank = l.rank
    """


@relation(
    "slow_receivers",
    reads=["transfers", "members", "operations"],
    columns=[
        "job comm",
        ("host", "VARCHAR", "", "host that is slow to consume; a rank, where hosts are unknown"),
        ("ranks", "INTEGER[]", "", "its members of the communicator: any of them may be slow"),
        *_LOSS,
        ("times", "DOUBLE", "", "how many times as long what it received waits for the GPU"),
        _SINCE,
    ],
    source="NCCL proxy steps",
    params={
        "links_compared": "lost_time.few",
        "repeat": "late_culprits.repeat",
        **{
            name: f"slow_rank_links.{name}"
            for name in ("least_bytes", "slow_times", "window", "cost_share")
        },
    },
)
def slow_receivers() -> str:
    """Hosts on which received data waits for the GPU far longer than on others.

    A kernel that began late, or that cannot send on, leaves data waiting through no fault of its
    GPU: that time is excused. If most of the time is excused, the rest shows nothing.
    """
    return f"""
        WITH placed AS (
            SELECT t.*, coalesce(m.node, 'rank ' || t.rank) AS host,
                CASE WHEN o.on_device THEN greatest(0, o.entered_ns - t.started_ns) END AS late_ns
            FROM transfers t LEFT JOIN members m USING (job, comm, rank)
            LEFT JOIN operations o USING (job, comm, kind, seq, rank)
            WHERE t.kind = 'coll' AND t.ended_ns IS NOT NULL AND t.steps > 0
                AND t.gpu_wait_ns IS NOT NULL),
        received AS (
            SELECT job, comm, seq, host, max(ended_ns) AS ended_ns,
                min(coalesce(stands_for, 1)) AS stands_for,
                max(ended_ns) - min(started_ns) AS lasted_ns,
                count(*) FILTER (direction = 'recv') AS transfers,
                sum(gpu_wait_ns) FILTER (direction = 'recv') AS kept_ns,
                sum(steps) FILTER (direction = 'recv') AS steps,
                sum(steps * late_ns) FILTER (direction = 'recv')
                    + coalesce(sum(peer_wait_ns + wire_wait_ns) FILTER (direction = 'send'), 0)
                    AS excused_ns
            FROM placed GROUP BY ALL
            HAVING steps > 0 AND coalesce(sum(bytes) >= $least_bytes * sum(steps), true)),
        beside AS (
            SELECT *, greatest(1, quantile_cont(kept_ns / steps, 0.25) OVER op) AS base_ns,
                count(*) OVER op AS hosts, min(ended_ns) OVER (PARTITION BY job) AS first_ns,
                max(ended_ns) OVER (PARTITION BY job) AS last_ns,
                max(stands_for) OVER own > 1 AS thinned, count(*) OVER own AS total
            FROM received
            WINDOW op AS (PARTITION BY job, comm, seq), own AS (PARTITION BY job, comm, host)),
        kept AS (
            SELECT *, (kept_ns - excused_ns) / steps AS step_ns, step_ns / base_ns AS times,
                stands_for * least((kept_ns - excused_ns) / transfers, lasted_ns)
                    * (1 - base_ns / step_ns) AS lost_ns
            FROM beside WHERE hosts >= $links_compared AND excused_ns <= kept_ns / 2),
        {_slow("job, comm, host", "kept", "greatest(0, lost_ns)")},
        hosts AS (
            SELECT job, comm, coalesce(node, 'rank ' || rank) AS host,
                list(rank ORDER BY rank) AS ranks,
                coalesce(any_value(role), any_value(name), 'the communicator') AS label
            FROM members GROUP BY job, comm, host)
        SELECT * FROM slow JOIN hosts USING (job, comm, host)
    """
