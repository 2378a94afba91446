"""What probes measured, by pair and by node: medians, losses, and how far from the fleet's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class Pair:
    """One NIC's pings of another, of one kind. `median_ns` is None where all were lost; `ratio`
    is to the median over all pairs."""

    node: str
    nic: str
    target_node: str
    target_nic: str
    kind: str
    pings: int
    lost: int
    median_ns: float | None
    worst_ns: int | None
    ratio: float | None


@dataclass(frozen=True)
class Node:
    """A node over all pairs it is in, whichever end. `internal_ns` is what its end-to-end pings
    took beyond its network pings (TFD 3.3: host-internal latency, both hosts' together)."""

    node: str
    network_ns: float | None
    network_ratio: float | None
    end_to_end_ns: float | None
    internal_ns: float | None
    internal_ratio: float | None
    pings: int
    lost: int


@dataclass(frozen=True)
class Stream:
    """One check of bandwidth."""

    node: str
    nic: str
    target_node: str
    target_nic: str
    kind: str
    bytes_per_s: float


@dataclass(frozen=True)
class ProbeSummary:
    """All of it, the worst first. `clocks`: who stamped how many network pings."""

    pairs: tuple[Pair, ...]
    nodes: tuple[Node, ...]
    streams: tuple[Stream, ...]
    fleet_ns: dict[str, float]  # kind -> median over all pairs
    clocks: dict[str, int]


def summarise(con: duckdb.DuckDBPyConnection) -> ProbeSummary:
    """What the tables `pings` and `bandwidths` of an incident say."""
    con.execute(_PAIRS)
    fleet = con.execute(
        "SELECT kind, median(median_ns) FROM probe_pairs WHERE median_ns IS NOT NULL GROUP BY kind"
    ).fetchall()
    clocks = con.execute(
        "SELECT clock, count(*) FROM pings WHERE kind = 'network' AND clock IS NOT NULL "
        "GROUP BY clock ORDER BY count(*) DESC"
    ).fetchall()
    return ProbeSummary(
        tuple(Pair(*row) for row in con.execute(_RATED_PAIRS).fetchall()),
        tuple(Node(*row) for row in con.execute(_NODES).fetchall()),
        tuple(Stream(*row) for row in con.execute(_STREAMS).fetchall()),
        dict(fleet),
        dict(clocks),
    )


_PAIRS = """
    CREATE OR REPLACE TEMP TABLE probe_pairs AS
    SELECT node, nic, target_node, target_nic, kind, count(*) AS pings,
        count_if(lost) AS lost, median(rtt_ns) AS median_ns, max(rtt_ns) AS worst_ns
    FROM pings GROUP BY ALL
"""

_RATED_PAIRS = """
    WITH fleet AS (SELECT kind, median(median_ns) AS fleet_ns FROM probe_pairs GROUP BY kind)
    SELECT p.*, median_ns / fleet_ns AS ratio FROM temp.probe_pairs p JOIN fleet USING (kind)
    ORDER BY lost / pings DESC, ratio DESC NULLS FIRST, node, nic, target_node, target_nic, kind
"""

# Each pair counts for both its ends: one slow node shows in its own pings and in those of it.
_NODES = """
    WITH ends AS (
        SELECT node AS member, * FROM temp.probe_pairs UNION ALL
        SELECT target_node AS member, * FROM temp.probe_pairs),
    split AS (
        SELECT n.member, e.median_ns - n.median_ns AS internal_ns
        FROM ends n JOIN ends e USING (member, node, nic, target_node, target_nic)
        WHERE n.kind = 'network' AND e.kind = 'end_to_end'),
    internal AS (SELECT member, median(internal_ns) AS internal_ns FROM split GROUP BY member),
    by_node AS (
        SELECT member, median(median_ns) FILTER (kind = 'network') AS network_ns,
            median(median_ns) FILTER (kind = 'end_to_end') AS end_to_end_ns,
            sum(pings)::BIGINT AS pings, sum(lost)::BIGINT AS lost
        FROM ends GROUP BY member)
    SELECT member, network_ns, network_ns / median(network_ns) OVER () AS network_ratio,
        end_to_end_ns, internal_ns,
        internal_ns / nullif(greatest(median(internal_ns) OVER (), 0), 0) AS internal_ratio,
        pings, lost
    FROM by_node LEFT JOIN internal USING (member)
    ORDER BY lost / pings DESC,
        greatest(coalesce(network_ratio, 0), coalesce(internal_ratio, 0)) DESC, member
"""

_STREAMS = """
    SELECT node, nic, target_node, target_nic, kind, bytes * 1e9 / duration_ns AS bytes_per_s
    FROM bandwidths WHERE duration_ns > 0 ORDER BY bytes_per_s, node, nic
"""
