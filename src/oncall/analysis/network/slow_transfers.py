"""Links, and receiving GPUs, whose steps inside collectives take longer than those of others.

A proxy records how long the steps of a transfer were posted and not completed, and how long
received data waited for the GPU. Each link is compared with the faster links of its operation (a
NIC slows two links of a ring), or with its own past; each host with the others of its operation. In
each window the median decides: a slow link is slow in most windows, jitter only in some. If few
transfers were kept, windows are long enough to have a median.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


def _on_wire() -> str:
    """How long the steps of each link are on the wire, against those of others or its own past."""
    return """
        -- Steps and channels overlap, so no operation waits longer than it lasts.
        sends AS (
            SELECT job, comm, kind, seq, rank, peer, max(ended_ns) AS ended_ns,
                min(coalesce(stands_for, 1)) AS stands_for,
                sum(wire_wait_ns) / sum(steps) AS step_ns,
                least(avg(wire_wait_ns), max(ended_ns - started_ns)) AS wire_ns
            FROM transfers
            WHERE direction = 'send' AND ended_ns IS NOT NULL AND steps > 0
                AND wire_wait_ns IS NOT NULL AND peer IS NOT NULL
            GROUP BY ALL HAVING coalesce(sum(bytes) >= $least_bytes * sum(steps), true)),
        links AS (
            SELECT *, quantile_cont(step_ns, 0.25) OVER op AS others_ns, count(*) OVER op AS links,
                min(ended_ns) OVER (PARTITION BY job) AS first_ns,
                max(ended_ns) OVER (PARTITION BY job) AS last_ns, row_number() OVER own AS number,
                count(*) OVER link AS total, max(stands_for) OVER link > 1 AS thinned
            FROM sends
            WINDOW op AS (PARTITION BY job, comm, kind, CASE kind WHEN 'coll' THEN seq END),
                link AS (PARTITION BY job, comm, kind, rank, peer),
                own AS (PARTITION BY job, comm, kind, rank, peer ORDER BY ended_ns)),
        past AS (
            SELECT job, comm, kind, rank, peer, median(step_ns) AS baseline_ns FROM links
            WHERE number <= greatest(1, total // $baseline_part) GROUP BY ALL),
        on_wire AS (
            SELECT b.*, greatest(1, CASE WHEN kind = 'coll' AND links >= $links_compared
                    THEN others_ns ELSE baseline_ns END) AS base_ns,
                step_ns / base_ns AS times,
                stands_for * wire_ns * (1 - base_ns / step_ns) AS lost_ns
            FROM links b JOIN past USING (job, comm, kind, rank, peer)
            WHERE number > total // $baseline_part)
    """


def _kept() -> str:
    """How long received data waits for the GPUs of each host, against others.

    A kernel that began late, or that cannot send on, leaves data waiting through no fault of its
    GPU: that time is excused. If most of the time is excused, the rest shows nothing.
    """
    return """
        placed AS (
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
                greatest(0, stands_for * least((kept_ns - excused_ns) / transfers, lasted_ns)
                    * (1 - base_ns / step_ns)) AS lost_ns
            FROM beside WHERE hosts >= $links_compared AND excused_ns <= kept_ns / 2)
    """


_WHO = "job, comm, fault, host, rank, peer"


@relation(
    "slow_transfers",
    reads=["transfers", "members"],
    columns=[
        "job comm",
        ("fault", "VARCHAR", "", "slow_link; slow_receiver: received data waits for the GPU"),
        ("host", "VARCHAR", "", "that is slow to consume; a rank, where hosts are unknown"),
        ("rank", "INTEGER", "", "of a link: the rank that sends"),
        ("ranks", "INTEGER[]", "", "of a link the one whose NIC has more slow links, both if as "
         "many; of a host its members of the communicator: any of them may be slow"),
        ("suspect", "VARCHAR", "", "these in words"),
        ("label", "VARCHAR", "", "what the communicator is for"),
        ("seq", "BIGINT", "", "the operation that lost most"),
        ("lost_ns", "BIGINT", "ns", "lost in the windows in which it was slow"),
        ("lost_share", "DOUBLE", "ratio", "of the recorded time"),
        ("times", "DOUBLE", "", "how many times as long its steps are on the wire, or wait"),
        ("at_ns", "BIGINT", "ns", "since when"),
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
)  # fmt: skip
def slow_transfers() -> str:
    """What is slow in windows, and costs enough in all of them."""
    return f"""
        WITH {_on_wire()}, {_kept()},
        compared AS (
            SELECT *, 'slow_link' AS fault FROM on_wire
            UNION ALL BY NAME SELECT *, 'slow_receiver' AS fault FROM kept),
        windows AS (
            SELECT {_WHO}, (ended_ns - first_ns) // greatest($window,
                    CASE WHEN thinned THEN 2 * $repeat * (last_ns - first_ns) // total ELSE 0 END)
                    AS nth_window, sum(lost_ns) AS lost_ns, median(times) AS times,
                min(ended_ns) AS at_ns, arg_max(seq, lost_ns) AS seq,
                any_value(last_ns - first_ns) AS span_ns
            FROM compared GROUP BY ALL
            HAVING count(*) >= $repeat AND median(times) > $slow_times),
        slow AS (
            SELECT {_WHO}, sum(lost_ns)::BIGINT AS lost_ns, median(times) AS times,
                min(at_ns) AS at_ns, arg_max(seq, lost_ns) AS seq,
                sum(lost_ns) / nullif(any_value(span_ns), 0) AS lost_share
            FROM windows GROUP BY ALL
            HAVING sum(lost_ns) >= $cost_share * any_value(span_ns)),
        ends AS (
            SELECT job, rank, count(DISTINCT other) AS links FROM (
                SELECT job, rank, peer AS other FROM slow UNION SELECT job, peer, rank FROM slow)
            GROUP BY ALL),
        hosts AS (
            SELECT job, comm, coalesce(node, 'rank ' || rank) AS host,
                list(rank ORDER BY rank) AS members FROM members GROUP BY ALL),
        labels AS (
            SELECT job, comm, coalesce(any_value(role), any_value(name), 'the communicator')
                AS label FROM members GROUP BY ALL)
        SELECT s.*, label, CASE WHEN fault = 'slow_receiver' THEN members
                WHEN a.links > b.links THEN [s.rank] WHEN b.links > a.links THEN [s.peer]
                ELSE [s.rank, s.peer] END AS ranks,
            -- What goes on between the GPUs of a host is not recorded: any of them may keep the one
            -- that receives.
            CASE WHEN fault = 'slow_link' AND len(ranks) = 1 THEN 'the NIC of rank ' || ranks[1]
                WHEN fault = 'slow_link' THEN 'the link between rank ' || least(s.rank, s.peer)
                    || ' and rank ' || greatest(s.rank, s.peer)
                WHEN len(ranks) = 1 THEN 'the GPU of rank ' || ranks[1]
                ELSE 'the GPUs of host ' || host END AS suspect
        FROM slow s LEFT JOIN labels USING (job, comm) LEFT JOIN hosts USING (job, comm, host)
        LEFT JOIN ends a ON a.job = s.job AND a.rank = s.rank
        LEFT JOIN ends b ON b.job = s.job AND b.rank = s.peer
    """
