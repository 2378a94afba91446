"""How far each node's clock is from the common time, and how wrong that may be.

Measured offsets are used where they exist. Otherwise the recording shows them: a collective ends on
all members at nearly the same time, since each member needs what all others gave. The median
difference of ends over many rounds is the difference of two clocks; over all pairs of nodes that
share communicators, the offsets are the least-squares solution. Where only calls are recorded,
nothing is estimated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np

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
    ("job", "VARCHAR", "", "the job"),
    ("node", "VARCHAR", "", "host"),
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
    lined AS (
        SELECT a.job, a.node AS one, b.node AS other, b.left_ns - a.left_ns AS apart_ns
        FROM newest a JOIN newest b ON a.job = b.job AND a.comm = b.comm AND a.seq = b.seq
            AND a.node < b.node)
    SELECT job, one, other, median(apart_ns), mad(apart_ns), count(*)
    FROM lined GROUP BY job, one, other HAVING count(*) >= $fewest ORDER BY ALL
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
            pairs = [pair[1:] for pair in shared if pair[0] == job]
            rows += [(job, *each, "estimated") for each in estimate(mine, pairs, thresholds)]
    return {name: [row[i] for row in rows] for i, (name, *_) in enumerate(_COLUMNS)}


def estimate(
    nodes: list[str],
    pairs: list[tuple[str, str, float, float, int]],
    thresholds: Thresholds,
) -> list[tuple[str, int, int]]:
    """Offsets and errors (ns) of the nodes in the largest connected group, with mean 0.

    `pairs`: node, other node, the median and the median deviation of how much later rounds end on
    the other node, and the number of rounds.
    """
    number = {node: place for place, node in enumerate(nodes)}
    one = np.array([number[pair[0]] for pair in pairs], dtype=np.int64)
    other = np.array([number[pair[1]] for pair in pairs], dtype=np.int64)
    apart = np.array([pair[2] for pair in pairs], dtype=np.float64)
    spread = np.array([pair[3] / np.sqrt(pair[4]) for pair in pairs])
    error = thresholds.tail_ns + thresholds.sure * _DEVIATION * spread
    part = _largest_part(len(nodes), one, other)
    if len(part) < 2:
        return []
    kept = np.isin(one, part)
    one, other, apart, error = one[kept], other[kept], apart[kept], error[kept]
    place = np.full(len(nodes), -1)
    place[part] = np.arange(len(part))
    # Weighted normal equations of a graph; the smallest norm makes the mean 0.
    weight = 1 / np.square(error)
    laplacian = np.zeros((len(part), len(part)))
    right = np.zeros(len(part))
    a, b = place[one], place[other]
    np.add.at(laplacian, (a, a), weight)
    np.add.at(laplacian, (b, b), weight)
    np.add.at(laplacian, (a, b), -weight)
    np.add.at(laplacian, (b, a), -weight)
    np.add.at(right, b, weight * apart)
    np.add.at(right, a, -weight * apart)
    offset = np.linalg.lstsq(laplacian, right, rcond=None)[0]
    # What the pairs contradict one another by is an error, too.
    residual = np.abs(apart - (offset[b] - offset[a]))
    off = np.zeros(len(part))
    for end in (a, b):
        np.maximum.at(off, end, error + residual)
    rounded = np.rint([offset, off]).astype(np.int64).T.tolist()
    return [(nodes[node], *each) for node, each in zip(part.tolist(), rounded, strict=True)]


def _largest_part(count: int, one: Array, other: Array) -> Array:
    """The nodes of the largest connected component of a graph."""
    label = np.arange(count)
    while True:
        lowest = label.copy()
        np.minimum.at(lowest, one, label[other])
        np.minimum.at(lowest, other, label[one])
        if (lowest == label).all():
            break
        label = lowest
    return np.flatnonzero(label == np.bincount(label).argmax())
