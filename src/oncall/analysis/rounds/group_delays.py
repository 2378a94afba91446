"""Communicators whose transfers take longer than those of like groups, or than before (TFD 2.3).

Only transfers count here, not waiting: a round takes as long as its last member is in it. Groups
that move the same bytes with the same operation between as many hosts are alike; what differs among
them, and from one part of the recording to the next, is noise.
"""

from __future__ import annotations

from oncall.evidence import Param, relation

_FAMILY = "job, op, bytes, size, nodes"


@relation(
    "group_delays",
    reads=["rounds", "group_places", "members", "operations"],
    columns=[
        "job comm op",
        ("bytes", "BIGINT", "bytes", "bytes the caller passed"),
        "role",
        ("comm_name", "VARCHAR", "", "its name"),
        "across",
        ("beside", "BOOLEAN", "", "like groups were quicker; else it was quicker before"),
        ("unseen", "INTEGER[]", "", "members that left no recording: the others may wait for them"),
        ("parts", "BIGINT", "", "parts of the recording in which it was slow"),
        ("at_ns", "BIGINT", "ns", "the first of them"),
        ("until_ns", "BIGINT", "ns", "the end of the last, if others follow"),
        ("ratio", "DOUBLE", "ratio", "its transfers' time, of what like ones take; median"),
        ("took_ns", "DOUBLE", "ns", "median transfer then"),
        ("base_ns", "DOUBLE", "ns", "the same of like groups, or before"),
        ("lost_ns", "DOUBLE", "ns", "beyond that, in all"),
        ("lost_share", "DOUBLE", "ratio", "of the recorded time"),
        ("lost_low", "DOUBLE", "ratio", "the same, less the noise"),
        ("lost_high", "DOUBLE", "ratio", "the same, and the noise"),
    ],
    source="TFD 2.3, 3.3, 4.2",
    params={
        "parts": "nic_symptoms.parts",
        "least_bytes": "send_turns.least_bytes",
        "few": "lost_time.few",
        "beyond": "machine_symptoms.clearly",
        "negligible": "lost_time.negligible",
        "least": Param("5 %", "longer: less is how NICs and links of one kind differ"),
        "lasting": Param(2, "parts at least: one may be a burst"),
    },
)
def group_delays() -> str:
    """Each communicator and kind of operation that was slow, with what that cost."""
    return f"""
        WITH absent AS (
            SELECT job, comm, list(rank ORDER BY rank) AS unseen
            FROM members ANTI JOIN operations USING (job, rank) GROUP BY ALL),
        timed AS (
            SELECT r.*, g.role, g.name, g.size, g.nodes, g.across,
                min(r.at_ns) OVER (PARTITION BY r.job) AS first_ns,
                1 + max(r.at_ns) OVER (PARTITION BY r.job) AS last_ns
            FROM rounds r JOIN group_places g USING (job, comm)
            WHERE r.basis = 'duration' AND r.bytes >= $least_bytes AND r.t_min_ns > 0),
        cells AS (
            SELECT {_FAMILY}, comm, any_value(role) AS role, any_value(name) AS comm_name,
                any_value(across) AS across, any_value(last_ns - first_ns) AS span_ns,
                ($parts * (at_ns - first_ns) // (last_ns - first_ns))::INTEGER AS part,
                min(at_ns) AS at_ns, max(at_ns + t_min_ns) AS end_ns, median(t_min_ns) AS took_ns,
                sum(coalesce(stands_for, 1)) AS rounds
            FROM timed GROUP BY ALL),
        compared AS (
            SELECT *, count(*) OVER alike AS groups, median(took_ns) OVER alike AS peers_ns,
                median(took_ns) FILTER (part < $few) OVER own AS past_ns,
                abs(ln(took_ns / lag(took_ns) OVER own_in_time)) / sqrt(2) AS change
            FROM cells
            WINDOW alike AS (PARTITION BY {_FAMILY}, part), own AS (PARTITION BY {_FAMILY}, comm),
                own_in_time AS (PARTITION BY {_FAMILY}, comm ORDER BY part)),
        noises AS (
            SELECT *, ln(took_ns / peers_ns) AS from_peers, ln(took_ns / past_ns) AS from_past,
                greatest($least, $beyond * median(abs(ln(took_ns / peers_ns)))
                    OVER (PARTITION BY {_FAMILY})) AS noise_peers,
                greatest($least, $beyond * median(change) OVER (PARTITION BY {_FAMILY}))
                    AS noise_past
            FROM compared),
        judged AS (
            SELECT *, coalesce(groups >= $few AND from_peers > noise_peers, false) AS beside,
                CASE WHEN beside THEN peers_ns WHEN from_past > noise_past THEN past_ns END
                    AS base_ns,
                CASE WHEN beside THEN noise_peers ELSE noise_past END AS noise,
                max(part) OVER (PARTITION BY job) AS last_part
            FROM noises)
        SELECT job, comm, op, bytes, any_value(role) AS role, any_value(comm_name) AS comm_name,
            any_value(across) AS across, bool_or(beside) AS beside, count(*) AS parts,
            any_value(unseen) AS unseen,
            min(at_ns) AS at_ns, CASE WHEN max(part) < any_value(last_part) THEN max(end_ns) END
                AS until_ns,
            median(took_ns / base_ns) AS ratio, median(took_ns) AS took_ns,
            median(base_ns) AS base_ns, sum(rounds * (took_ns - base_ns)) AS lost_ns,
            sum(rounds * (took_ns - base_ns)) / any_value(span_ns) AS lost_share,
            sum(rounds * (took_ns - base_ns * exp(noise))) / any_value(span_ns) AS lost_low,
            sum(rounds * (took_ns - base_ns * exp(-noise))) / any_value(span_ns) AS lost_high
        FROM judged LEFT JOIN absent USING (job, comm) WHERE base_ns IS NOT NULL
        GROUP BY {_FAMILY}, comm HAVING count(*) >= $lasting AND lost_low >= $negligible
    """
