"""What each communicator is for, by how it is used (Pulse 5.2, Figure 5).

Data and tensor parallelism use collectives: gradients once an iteration, in few and large
operations; activations in every layer of every micro-batch. Pipeline and expert parallelism use
Send and Recv: along a chain, or from each to each. Groups that only ever exchange a little (a
loss, a norm) are for none of them.

Beyond the paper: context parallelism, keys and values passed around a ring; and the pair of first
and last stage that shares an embedding, which is a group of collectives within a pipeline.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from oncall.evidence import decides, params_of, relation


@dataclass(frozen=True)
class UseThresholds:
    """What distinguishes uses of communicators, on all ranks' calls or on one rank's alone."""

    small_bytes: int = decides(
        "256 KiB", "losses, norms and flags are of some elements, activations of many thousands"
    )
    pause_times: float = decides(5, "times the median pause: a longer one lies between bursts")
    long_pauses: float = decides(
        "30 %", "of the time: gradients come together, once an iteration, and then pause"
    )
    interleaved: float = decides(
        "50 %", "of the transfers: activations come between all of them, gradients apart"
    )
    more: float = decides(
        1.5, "times the operations of another group of the rank (Figure 5): less is alike"
    )


@dataclass(frozen=True)
class Thresholds(UseThresholds):
    """What distinguishes the roles of communicators."""

    layer_ns: int = decides("250 ms", "a layer's computation takes less")
    uneven: float = decides("2 %", "relative spread of sizes: above, they follow a routing")
    mesh: float = decides("90 %", "of all pairs: then each sends to each")


@dataclass(frozen=True)
class Use:
    """How a communicator was used, by the member that used it most."""

    job: str
    comm: int
    members: frozenset[int]
    size: int
    edges: frozenset[tuple[int, int]] = frozenset()  # places: sender, receiver
    collectives: float = 0.0  # of more than a little, by one member
    largest_bytes: float = 0.0  # of anything at all
    long_pauses: float = 0.0  # share of the time that is in pauses far longer than the median one
    apart_ns: float = 0.0  # time between two collectives, on average
    interleaved: float | None = None  # share of a member's transfers that it lies between
    all_to_alls: float = 0.0
    one_sided: float = 0.0  # share of group calls that only send or only receive
    spread: float = 0.0  # of sizes of Sends, relative


def roles(
    uses: Iterable[Use], thresholds: Thresholds
) -> dict[tuple[str, int], tuple[str | None, str]]:
    """The role of each communicator, None for those of small operations, and why."""
    found: dict[tuple[str, int], tuple[str | None, str]] = {}
    collective: dict[str, list[Use]] = defaultdict(list)
    uses = list(uses)
    for use in uses:
        if use.largest_bytes < thresholds.small_bytes:
            found[use.job, use.comm] = None, "only small operations"
        elif use.all_to_alls:
            found[use.job, use.comm] = "ep", "all-to-all"
        elif use.edges and not use.collectives:
            found[use.job, use.comm] = _of_transfers(use, thresholds)
        elif use.collectives:
            collective[use.job].append(use)
    for job, group in collective.items():
        pipelines = [u.members for u in uses if found.get((job, u.comm), ("",))[0] == "pp"]
        for use in group:
            if any(use.members <= chain for chain in pipelines):
                found[job, use.comm] = None, "collectives of one pipeline's stages"
        rest = [use for use in group if (job, use.comm) not in found]
        for use in rest:
            found[job, use.comm] = _of_collectives(use, rest, thresholds)
    return found


def _of_transfers(use: Use, thresholds: Thresholds) -> tuple[str | None, str]:
    """Pipeline, expert or context parallelism, by which rank sends to which."""
    n = use.size
    pairs = {(a, b) for a, b in use.edges if a != b}
    steps = {(b - a) % n for a, b in pairs}
    mesh = len(pairs) >= thresholds.mesh * n * (n - 1)
    if n == 2 and pairs:
        if use.one_sided > 0:
            return "pp", "each sends in turn"
        if use.spread > thresholds.uneven:
            return "ep", "both send at once, uneven sizes"
        return "cp", "both send at once, equal sizes"
    if mesh and not (n == 3 and use.one_sided > 0):
        return "ep", "each sends to each"
    if steps <= {1} or steps <= {n - 1}:
        chain = (n - 1, 0) not in pairs and (0, n - 1) not in pairs
        return ("pp", "along a chain") if chain else ("cp", "around a ring, one way")
    if steps <= {1, n - 1}:
        return "pp", "along a chain, there and back"
    return ("ep", "to many") if len(pairs) > 2 * n else (None, "neither a chain nor a mesh")


def _of_collectives(
    use: Use, all_uses: Iterable[Use], thresholds: Thresholds
) -> tuple[str | None, str]:
    """Data or tensor parallelism: "relative data volume and operation count" within a rank."""
    # Groups within one another, as those of experts' gradients, are of one kind.
    others = [
        other
        for other in all_uses
        if use.members & other.members
        and not (use.members <= other.members or other.members <= use.members)
    ]
    busier = any(other.collectives > thresholds.more * use.collectives for other in others)
    calmer = any(thresholds.more * other.collectives < use.collectives for other in others)
    if busier and not calmer:
        return "dp", "fewer operations than another group of its ranks"
    if calmer and not busier:
        return "tp", "more operations than another group of its ranks"
    if use.interleaved is not None:
        if use.interleaved > thresholds.interleaved:
            return "tp", "operations between all Sends and Recvs"
        return "dp", "operations apart from Sends and Recvs"
    if use.apart_ns > thresholds.layer_ns:
        return "dp", "operations further apart than layers"
    if use.long_pauses > thresholds.long_pauses:
        return "dp", "operations in bursts, an iteration apart"
    return "tp", "operations all the time"


_USES = """
    WITH calls AS (
        SELECT o.job, o.comm, o.kind, o.op, o.rank, o.seq, o.bytes, o.entered_ns,
            coalesce(o.group_id, -o.seq) AS call, coalesce(o.stands_for, 1) AS times,
            coalesce(o.peer, p.rank) AS peer
        FROM operations o LEFT JOIN members p ON p.job = o.job AND p.comm = o.comm
            AND o.peer IS NULL AND p.comm_rank = o.comm_peer
        WHERE o.op <> 'Barrier' AND o.bytes > 0),
    places AS (
        SELECT job, comm, rank, row_number() OVER (
            PARTITION BY job, comm ORDER BY coalesce(comm_rank, rank)) - 1 AS place
        FROM members),
    collective AS (
        SELECT *, entered_ns - lag(entered_ns) OVER mine AS pause_ns
        FROM calls WHERE kind = 'coll' AND op <> 'AllToAll' AND bytes >= $small_bytes
        WINDOW mine AS (PARTITION BY job, comm, rank ORDER BY entered_ns)),
    paused AS (
        SELECT *, median(pause_ns) OVER (PARTITION BY job, comm, rank) AS median_ns
        FROM collective),
    by_rank AS (
        SELECT job, comm, rank, sum(times) AS collectives,
            coalesce(sum(pause_ns) FILTER (pause_ns > $pause_times * median_ns) / sum(pause_ns), 0)
                AS long_pauses, coalesce(avg(pause_ns), 0) AS apart_ns
        FROM paused GROUP BY ALL),
    transfers AS (
        SELECT job, comm, rank, call, min(entered_ns) AS at_ns, count(DISTINCT op) AS sides
        FROM calls WHERE kind = 'p2p' AND peer <> rank GROUP BY ALL),
    between AS (
        SELECT job, rank, at_ns, lead(at_ns) OVER (PARTITION BY job, rank ORDER BY at_ns) AS next_ns
        FROM transfers),
    -- By the transfer before each collective: to try every pair is quadratic in a rank's calls.
    interleaved AS (
        SELECT c.job, c.comm, c.rank, count(DISTINCT b.at_ns) AS with_one
        FROM collective c ASOF JOIN (FROM between WHERE next_ns > at_ns) b
            ON c.job = b.job AND c.rank = b.rank AND c.entered_ns >= b.at_ns
        WHERE c.entered_ns < b.next_ns GROUP BY ALL),
    spans AS (
        SELECT job, rank, count(*) AS spans FROM between WHERE next_ns IS NOT NULL GROUP BY ALL),
    used AS (
        SELECT job, comm, max(r.collectives) AS collectives, median(r.long_pauses) AS long_pauses,
            median(r.apart_ns) AS apart_ns,
            median(CASE WHEN s.spans > 0 THEN coalesce(i.with_one, 0) / s.spans END) AS interleaved
        FROM by_rank r LEFT JOIN spans s USING (job, rank)
        LEFT JOIN interleaved i USING (job, comm, rank) GROUP BY ALL),
    -- Each pair once, and its two places one after the other: all places of a communicator with
    -- one another are quadratic in its size.
    senders AS MATERIALIZED (
        SELECT s.*, a.place AS sender
        FROM (SELECT DISTINCT job, comm, rank, peer FROM calls
              WHERE op = 'Send' AND peer <> rank) s
        JOIN places a USING (job, comm, rank)),
    edges AS MATERIALIZED (
        SELECT s.job, s.comm, s.rank, s.peer, [s.sender, b.place] AS edge
        FROM senders s JOIN places b ON b.job = s.job AND b.comm = s.comm AND b.rank = s.peer),
    sizes AS (
        SELECT job, comm, stddev_pop(bytes) / avg(bytes) AS spread
        FROM calls SEMI JOIN edges USING (job, comm, rank, peer) WHERE op = 'Send' GROUP BY ALL),
    sent AS (
        SELECT job, comm, list(DISTINCT edge) AS edges, any_value(spread) AS spread
        FROM edges JOIN sizes USING (job, comm) GROUP BY ALL),
    sided AS (
        SELECT job, comm, avg((sides = 1)::INTEGER) AS one_sided FROM transfers GROUP BY ALL)
    SELECT m.job, m.comm, m.members, greatest(m.size, len(m.members)), coalesce(s.edges, []),
        coalesce(u.collectives, 0), coalesce(l.largest_bytes, 0), coalesce(u.long_pauses, 0),
        coalesce(u.apart_ns, 0), u.interleaved, coalesce(l.all_to_alls, 0),
        coalesce(d.one_sided, 0), coalesce(s.spread, 0)
    FROM (SELECT job, comm, list(rank) AS members, max(size) AS size FROM members GROUP BY ALL) m
    JOIN (SELECT job, comm, max(bytes) AS largest_bytes, sum(times) FILTER (op = 'AllToAll')
              AS all_to_alls FROM calls WHERE peer IS NULL OR peer <> rank GROUP BY ALL) l
        USING (job, comm)
    LEFT JOIN used u USING (job, comm) LEFT JOIN sent s USING (job, comm)
    LEFT JOIN sided d USING (job, comm)
    ORDER BY m.job, m.comm
"""

_COLUMNS = [
    ("job", "VARCHAR", "", "the job"),
    ("comm", "UBIGINT", "", "communicator"),
    ("size", "INTEGER", "ranks", "its size"),
    ("parallelism", "VARCHAR", "", "tp, dp, pp, ep or cp; NULL: none of them"),
    ("because", "VARCHAR", "", "what in its use shows that"),
    ("recorded", "VARCHAR", "", "its role, as recorded; NULL: not recorded"),
    ("configured", "VARCHAR", "", "what the job's configuration lets it be: tp 8; NULL: fits"),
]


@relation(
    "parallelism",
    reads=["operations", "members"],
    optional=["jobs"],
    columns=_COLUMNS,
    source="Pulse 5.2, Figure 5",
    params={**params_of(Thresholds), **params_of(UseThresholds, of="labelled_tasks")},
)
def parallelism(con: duckdb.DuckDBPyConnection, **params: Any) -> Mapping[str, Any]:
    """What each communicator is for, by its use, and whether that fits the job's configuration."""
    thresholds = Thresholds(**params)
    used = {name: params[name] for name in ("small_bytes", "pause_times")}
    uses = [
        Use(job, comm, frozenset(members), size, frozenset(map(tuple, edges)), *numbers)
        for job, comm, members, size, edges, *numbers in con.execute(_USES, used).fetchall()
    ]
    recorded: dict[tuple[str, int], str] = {
        (job, comm): role.lower()
        for job, comm, role in con.execute(
            "SELECT job, comm, any_value(role) FROM members WHERE role IS NOT NULL GROUP BY ALL"
        ).fetchall()
    }
    jobs = {
        job: dict(zip(_SIZES, sizes, strict=True))
        for job, *sizes in con.execute(f"SELECT job, {', '.join(_SIZES)} FROM jobs").fetchall()
    }
    found = roles(uses, thresholds)
    rows = []
    for use in uses:
        role, because = found.get((use.job, use.comm), (None, "not used"))
        configured = _contradicted(role, use.size, jobs.get(use.job, {}))
        rows.append(
            (
                use.job,
                use.comm,
                use.size,
                role,
                because,
                recorded.get((use.job, use.comm)),
                configured,
            )
        )
    return {name: [row[i] for row in rows] for i, (name, *_) in enumerate(_COLUMNS)}


_SIZES = ("tp", "dp", "pp", "ep", "cp")


def _contradicted(role: str | None, size: int, sizes: Mapping[str, int | None]) -> str | None:
    """What the configuration says where a group of that role and size cannot be, else None.

    Gradients are reduced over replicas, over context-parallel ranks besides, or of experts over
    a part of the replicas only.
    """
    if role is None or sizes.get(role) is None:
        return None
    allowed = {sizes[role]}
    if role == "dp":
        dp, cp, ep = (sizes.get(name) or 1 for name in ("dp", "cp", "ep"))
        allowed |= {dp * cp} | {dp * cp // ep} | {dp // ep}
    return None if size in allowed else f"{role} {sizes[role]}"
