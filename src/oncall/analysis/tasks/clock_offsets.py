"""How far each node's clock is from the common time, and how wrong that may be.

Measured offsets are used where they exist. Otherwise the recording shows them: a collective ends on
all members at nearly the same time, since each member needs what all others gave. The median
difference of ends over many rounds is the difference of two clocks; over all communicators that
nodes share, the offsets are those that deviate least. Where only calls are recorded, nothing is
estimated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np

from oncall.analysis.common.offsets import offsets_of
from oncall.analysis.common.quantiles import median_of_alike
from oncall.analysis.tasks.schedules import Array
from oncall.evidence import decides, params_of, relation


@dataclass(frozen=True)
class Thresholds:
    """What shows how far clocks are apart, and how exactly."""

    fewest: int = decides(5, "rounds that two nodes must share")
    rounds: int = decides(500, "of each communicator, the newest: more make it no more exact")
    tail_ns: int = decides("50 us", "members leave a collective apart by as much: its last hops")
    sure: float = decides(3, "standard errors of the median difference: it is hardly further off")


_COLUMNS = [
    "job node",
    ("offset_ns", "BIGINT", "ns", "to subtract from the node's times"),
    ("error_ns", "BIGINT", "ns", "half width of the offset's error"),
    ("source", "VARCHAR", "", "measured, estimated (from collectives), or same node"),
]

_DEVIATION = 1.4826  # standard deviation by the median one, of a normal distribution
_SHARED = """
    WITH placed AS (SELECT DISTINCT ON (job, rank) job, rank, node FROM ranks
                    WHERE node IS NOT NULL ORDER BY ALL),
    wide AS (
        SELECT m.job, m.comm FROM members m JOIN placed p USING (job, rank)
        WHERE m.comm IS NOT NULL GROUP BY m.job, m.comm HAVING count(DISTINCT p.node) > 1),
    newest AS (  -- when each node's last rank left a round, by its end
        SELECT o.job, o.comm, o.seq, p.node,
            max(coalesce(o.ended_ns, o.entered_ns + o.duration_ns)) AS left_ns
        FROM operations o SEMI JOIN wide USING (job, comm) JOIN placed p USING (job, rank)
        WHERE o.kind = 'coll' AND coalesce(o.done, true)
            AND o.op IN ('AllReduce', 'AllGather', 'ReduceScatter', 'AllToAll', 'Barrier')
        GROUP BY o.job, o.comm, o.seq, p.node HAVING left_ns IS NOT NULL
        QUALIFY o.seq > max(o.seq) OVER (PARTITION BY o.job, o.comm) - $rounds),
    since AS (
        SELECT *, left_ns - min(left_ns) OVER one AS since_ns, count(*) OVER one AS nodes
        FROM newest WINDOW one AS (PARTITION BY job, comm, seq)),
    compared AS (
        SELECT *, since_ns - median(since_ns) OVER (PARTITION BY job, comm, seq) AS ahead_ns
        FROM since WHERE nodes > 1 QUALIFY nodes = max(nodes) OVER (PARTITION BY job, comm))
    SELECT job, node, comm, median(ahead_ns),
        mad(ahead_ns) / sqrt(count(*)) * any_value(nodes) / (any_value(nodes) - 1)
    FROM compared GROUP BY job, node, comm HAVING count(*) >= $fewest ORDER BY ALL
"""


@relation(
    "clock_offsets",
    reads=["ranks"],
    optional=["clocks", "operations", "members"],
    columns=_COLUMNS,
    source="VenusTrace 3.3; NTP's median of differences (RFC 5905)",
    params=params_of(Thresholds),
)
def clock_offsets(con: duckdb.DuckDBPyConnection, **params: Any) -> Mapping[str, Any]:
    """Each node's clock against the common time. A node without a row is unknown."""
    thresholds = Thresholds(**params)
    nodes: dict[str, list[str]] = {}
    for job, node in con.execute(
        "SELECT DISTINCT job, node FROM ranks WHERE node IS NOT NULL ORDER BY ALL"
    ).fetchall():
        nodes.setdefault(job, []).append(node)
    measured = {
        node: (offset_ns, error_ns)
        for node, offset_ns, error_ns in con.execute(
            "SELECT node, arg_min(offset_ns, (error_ns, offset_ns)), min(error_ns) FROM clocks "
            "WHERE offset_ns IS NOT NULL AND error_ns IS NOT NULL GROUP BY node"
        ).fetchall()
    }
    rows: list[tuple[Any, ...]] = []
    open_jobs = {job for job, mine in nodes.items() if len(mine) > 1 and not measured}
    used = {"rounds": thresholds.rounds, "fewest": thresholds.fewest}
    shared = con.execute(_SHARED, used).fetchall() if open_jobs else []
    for job, mine in nodes.items():
        if len(mine) == 1:
            rows.append((job, mine[0], 0, 0, "same node"))
        elif measured:
            rows += [(job, node, *measured[node], "measured") for node in mine if node in measured]
        else:
            seats = [seat for of, *seat in shared if of == job]
            rows += [(job, *each, "estimated") for each in estimate(mine, seats, thresholds)]
    return clock_offsets.by_column(rows)


def estimate(
    nodes: list[str], members: Sequence[Sequence[Any]], thresholds: Thresholds
) -> list[tuple[str, int, int]]:
    """Offsets and errors (ns) of the nodes in the largest connected group.

    `members`: node, communicator, by how much its rounds seem to end later on that node than on a
    median one, and the standard error of that, for a deviation of 1.
    """
    if not members:
        return []
    node = np.array([nodes.index(one) for one, *_ in members], dtype=np.int64)
    group = np.unique([comm for _, comm, *_ in members], return_inverse=True)[1]
    ahead, spread = np.array([seen for _, _, *seen in members]).T
    offset = offsets_of(node, group, ahead, len(nodes), exact_ns=thresholds.tail_ns)
    left = ahead - offset[node]
    # What groups contradict one another by is an error, too.
    residual = np.abs(left - median_of_alike(group, left)[0])
    error = np.zeros(len(nodes))
    np.maximum.at(
        error, node, thresholds.tail_ns + thresholds.sure * _DEVIATION * spread + residual
    )
    rounded = np.rint([offset, error]).astype(np.int64).T.tolist()
    return [(nodes[one], *rounded[one]) for one in _largest_part(len(nodes), node, group).tolist()]


def _largest_part(count: int, node: Array, group: Array) -> Array:
    """The nodes of the largest set that groups connect."""
    label, before = np.arange(count), np.full(count, -1)
    while (label != before).any():
        before = label.copy()
        lowest = np.full(int(group.max()) + 1, count)
        np.minimum.at(lowest, group, label[node])
        np.minimum.at(label, node, lowest[group])
    return np.flatnonzero(label == np.bincount(label).argmax())
