"""The collective that represents its communicator, and where it lost time.

Most late collectives of a communicator are late for the same reason; the one that lost most shows
it best.
"""

from __future__ import annotations

from oncall.analysis.network.network_roots import ROOT_COLUMNS
from oncall.evidence import Param, relation


@relation(
    "worst_collectives",
    reads=["critical_steps"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("seq", "BIGINT", "", "of its collectives the one that lost most"),
        ("lost_ns", "DOUBLE", "ns", "what its critical path lost"),
        ("took_ns", "BIGINT", "ns", "from its first start to its last end"),
        ("since_ns", "BIGINT", "ns", "start of its critical path"),
        ("until_ns", "BIGINT", "ns", "end of it"),
    ],
    source="Vedrfolnir III-B",
    params={
        "least_lost": Param("1 %", "of the collective's time; less is scatter, whatever its cause")
    },
)
def worst_collectives() -> str:
    """Of each communicator the collective that lost most, if it lost enough."""
    return """
        SELECT job, comm, seq, any_value(lost_ns) AS lost_ns, any_value(took_ns) AS took_ns,
            min(started_ns) AS since_ns, max(ended_ns) AS until_ns
        FROM critical_steps GROUP BY job, comm, seq
        HAVING any_value(lost_ns) > $least_lost * any_value(took_ns)
        QUALIFY row_number() OVER (
            PARTITION BY job, comm ORDER BY any_value(lost_ns) DESC, seq) = 1
    """


@relation(
    "worst_roots",
    reads=["worst_collectives", "collective_roots"],
    columns=[*ROOT_COLUMNS, ("all_lost_ns", "DOUBLE", "ns", "what the critical path lost")],
    source="Vedrfolnir III-D2",
)
def worst_roots() -> str:
    """Where the waiting of these collectives begins."""
    return """
        SELECT r.*, w.lost_ns AS all_lost_ns
        FROM collective_roots r JOIN worst_collectives w USING (job, comm, seq)
    """


@relation(
    "contended_ports",
    reads=["worst_roots"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("seq", "BIGINT", "", "the collective"),
        ("label", "VARCHAR", "", "a port where its flows meet others, or one another"),
        ("switch", "VARCHAR", "", "its device"),
        ("port", "INTEGER", "", "its number there"),
        ("depth", "DOUBLE", "packets", "mean queue depth, at the worst"),
        ("lost_ns", "DOUBLE", "ns", "what the collective lost there"),
        ("at_ns", "BIGINT", "ns", "since when"),
        ("seen", "BOOLEAN", "", "the queue was reported; else it was inferred from pauses"),
        ("share", "DOUBLE", "ratio", "of what it lost at all roots"),
    ],
    source="Vedrfolnir III-D2 (flow contention)",
    params={
        "share": Param(
            "30 %",
            "of what the critical path lost; a cause of less is not what made the collective late",
        )
    },
)
def contended_ports() -> str:
    """The ports at which a collective's flows meet, if much was lost there.

    Queues that nobody reported are known by their pauses alone: these must make up the share of
    all that was lost, or do so together with what was seen.
    """
    return """
        WITH meeting AS (
            SELECT job, comm, seq, label, any_value(switch) AS switch, any_value(port) AS port,
                max(depth) AS depth, sum(lost_ns) AS lost_ns, min(at_ns) AS at_ns,
                bool_or(seen) AS seen, sum(lost_ns) / any_value(total) AS share,
                any_value(all_lost_ns) AS all_lost_ns, sum(least(lost_ns, paused_ns)) AS stopped_ns
            FROM (
                SELECT *, sum(lost_ns) OVER (PARTITION BY job, comm, seq) AS total
                FROM worst_roots)
            WHERE kind = 'contention' GROUP BY job, comm, seq, label),
        known AS (
            SELECT *, sum(CASE WHEN seen THEN lost_ns ELSE stopped_ns END)
                OVER (PARTITION BY job, comm, seq) AS known_ns
            FROM meeting)
        SELECT * FROM known WHERE seen OR known_ns >= $share * all_lost_ns
        QUALIFY sum(share) OVER (PARTITION BY job, comm, seq) >= $share
    """


@relation(
    "link_sharers",
    reads=["worst_roots", "worst_collectives", "late_steps", "flow_sizes"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("seq", "BIGINT", "", "the collective"),
        ("at_ns", "BIGINT", "ns", "start of the late step"),
        ("flow", "VARCHAR", "", "a flow from the same host or to the same host, by name"),
        ("node", "VARCHAR", "", "its sender"),
        ("host", "VARCHAR", "", "the hosts of the step: one of them is the flow's too"),
        ("bytes", "BIGINT", "bytes", "the flow's size"),
    ],
    source="Vedrfolnir III-D1, for a host's own link",
    params={"share": "contended_ports.share"},
)
def link_sharers() -> str:
    """Flows that share a host's link with a late step, whatever way they take between: so much is
    known where switches report less than the share of what was lost."""
    return """
        WITH reported AS (
            SELECT job, comm, seq FROM worst_roots WHERE critical GROUP BY ALL
            HAVING sum(CASE WHEN seen THEN lost_ns ELSE least(lost_ns, paused_ns) END)
                >= $share * any_value(all_lost_ns)),
        unreported AS (
            SELECT * FROM late_steps SEMI JOIN worst_collectives USING (job, comm, seq)
            ANTI JOIN reported USING (job, comm, seq) WHERE critical)
        SELECT s.job, s.comm, s.seq, s.started_ns AS at_ns, f.name AS flow, f.src_host AS node,
            s.src_host || ' or ' || s.dst_host AS host, f.bytes
        FROM unreported s
        JOIN flow_sizes f ON (f.src_host = s.src_host OR f.dst_host = s.dst_host)
            AND NOT f.is_collective
            AND f.started_ns < s.ended_ns AND f.ended_ns > s.started_ns
        QUALIFY row_number() OVER (PARTITION BY s.job, s.comm, f.flow ORDER BY s.started_ns) = 1
    """
