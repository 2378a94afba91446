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
import numpy as np
from numpy.typing import NDArray

from oncall.analysis.traffic.pace import Moments, pace_of
from oncall.evidence import Param, relation

# What distinguishes uses of communicators, on all ranks' calls or on one rank's alone. Nodes label
# tasks by the same numbers, as they are installed there: no site can replace them.
SMALL_BYTES = 256 << 10  # losses, norms and flags are of some elements, activations of thousands
PAUSE_TIMES = 5  # times the median pause: a longer one lies between bursts
LONG_PAUSES = 0.3  # of the time: gradients come together, once an iteration, and then pause
INTERLEAVED = 0.5  # of transfers: activations come between all of them, gradients apart
MORE = 1.5  # times the operations of another group of the rank (Figure 5): less is alike


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """What distinguishes the roles of communicators."""

    layer_ns: int
    uneven: float
    mesh: float


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
        if use.largest_bytes < SMALL_BYTES:
            found[use.job, use.comm] = None, "only small operations"
        elif use.all_to_alls:
            found[use.job, use.comm] = "ep", "all-to-all"
        elif use.edges and not use.collectives:
            found[use.job, use.comm] = _of_transfers(use, thresholds)
        elif use.collectives:
            collective[use.job].append(use)
    for job, group in collective.items():
        chains: dict[int, list[frozenset[int]]] = defaultdict(list)  # of each rank
        for use in uses:
            if found.get((job, use.comm), ("",))[0] == "pp":
                for rank in use.members:
                    chains[rank].append(use.members)
        for use in group:
            if any(use.members <= chain for chain in chains[next(iter(use.members))]):
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
    busier = any(other.collectives > MORE * use.collectives for other in others)
    calmer = any(MORE * other.collectives < use.collectives for other in others)
    if busier and not calmer:
        return "dp", "fewer operations than another group of its ranks"
    if calmer and not busier:
        return "tp", "more operations than another group of its ranks"
    if use.interleaved is not None:
        if use.interleaved > INTERLEAVED:
            return "tp", "operations between all Sends and Recvs"
        return "dp", "operations apart from Sends and Recvs"
    if use.apart_ns > thresholds.layer_ns:
        return "dp", "operations further apart than layers"
    if use.long_pauses > LONG_PAUSES:
        return "dp", "operations in bursts, an iteration apart"
    return "tp", "operations all the time"


_CALLS = """
    WITH calls AS (
        SELECT o.comm, o.kind, o.op, o.rank, o.seq, o.bytes, coalesce(o.entered_ns, -1) AS at_ns,
            coalesce(o.group_id, -o.seq) AS call, coalesce(o.stands_for, 1) AS times,
            coalesce(o.peer, p.rank) AS peer
        FROM operations o LEFT JOIN members p ON p.job = o.job AND p.comm = o.comm
            AND o.peer IS NULL AND p.comm_rank = o.comm_peer
        WHERE o.job = $job AND o.op <> 'Barrier' AND o.bytes > 0 AND o.rank IS NOT NULL)
"""
_COMMUNICATORS = f"""{_CALLS}
    SELECT m.comm, m.members, greatest(m.size, len(m.members)), l.largest_bytes,
        coalesce(l.all_to_alls, 0)
    FROM (SELECT comm, list(rank) AS members, max(size) AS size FROM members WHERE job = $job
          GROUP BY comm) m
    JOIN (SELECT comm, max(bytes) AS largest_bytes, sum(times) FILTER (op = 'AllToAll')
              AS all_to_alls FROM calls WHERE peer IS NULL OR peer <> rank GROUP BY comm) l
        USING (comm)
    ORDER BY m.comm
"""
_COLLECTIVES = f"""{_CALLS}
    SELECT comm, rank, at_ns, times FROM calls
    WHERE kind = 'coll' AND op <> 'AllToAll' AND bytes >= $small_bytes AND comm IS NOT NULL
"""
_TRANSFERS = f"""{_CALLS}
    SELECT coalesce(comm, 0) AS comm, comm IS NOT NULL AS known, rank, min(at_ns) AS at_ns,
        min(op) = max(op) AS one_sided
    FROM calls WHERE kind = 'p2p' AND peer <> rank GROUP BY comm, rank, call
"""
# Each pair once, and its two places one after the other: all places of a communicator with one
# another are quadratic in its size.
_SENT = f"""{_CALLS},
    places AS (
        SELECT comm, rank, row_number() OVER (
            PARTITION BY comm ORDER BY coalesce(comm_rank, rank)) - 1 AS place
        FROM members WHERE job = $job),
    senders AS MATERIALIZED (
        SELECT s.*, a.place AS sender
        FROM (SELECT comm, rank, peer, count(*) AS sends, sum(bytes) AS sent_bytes,
                  var_pop(bytes) AS variance
              FROM calls WHERE op = 'Send' AND peer <> rank GROUP BY ALL) s
        JOIN places a USING (comm, rank)),
    edges AS (
        SELECT s.*, [s.sender, b.place] AS edge
        FROM senders s JOIN places b ON b.comm = s.comm AND b.rank = s.peer),
    means AS (SELECT comm, sum(sent_bytes) / sum(sends) AS mean_bytes FROM edges GROUP BY comm)
    SELECT comm, list(DISTINCT edge), sqrt(sum(sends * (
        variance + (sent_bytes / sends - mean_bytes) ** 2)) / sum(sends)) / any_value(mean_bytes)
    FROM edges JOIN means USING (comm) GROUP BY comm
"""

_COLUMNS = [
    "job comm size",
    ("parallelism", "VARCHAR", "", "tp, dp, pp, ep or cp; NULL: none of them"),
    ("because", "VARCHAR", "", "what in its use shows that"),
    ("recorded", "VARCHAR", "", "its role, as recorded; NULL: not recorded"),
    ("configured", "VARCHAR", "", "what the job's configuration lets it be: tp 8; NULL: fits"),
]


@relation(
    "parallelism",
    reads=["members|stage_tasks"],
    optional=["members", "operations", "jobs"],
    columns=_COLUMNS,
    source="Pulse 5.2, Figure 5",
    params={
        "layer_ns": Param("250 ms", "a layer's computation takes less"),
        "uneven": Param("2 %", "relative spread of sizes: above, they follow a routing"),
        "mesh": "lost_time.nearly_all",
    },
)
def parallelism(con: duckdb.DuckDBPyConnection, **params: Any) -> Mapping[str, Any]:
    """What each communicator is for, by its use, and whether that fits the job's configuration."""
    thresholds = Thresholds(**params)
    named = con.execute("SELECT DISTINCT job FROM members ORDER BY job").fetchall()
    uses = [use for (job,) in named for use in _uses(con, job)]
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
    return parallelism.by_column(rows)


def _uses(con: duckdb.DuckDBPyConnection, job: str) -> list[Use]:
    """How each communicator of a job was used, as far as it was used."""
    found = con.execute(_COMMUNICATORS, {"job": job}).fetchall()
    if not found:
        return []
    comms = np.array([comm for comm, *_ in found], dtype=np.uint64)
    wanted = {"job": job, "small_bytes": SMALL_BYTES}
    collectives = con.execute(_COLLECTIVES, wanted).fetchnumpy()
    transfers = con.execute(_TRANSFERS, {"job": job}).fetchnumpy()
    sent = con.execute(_SENT, {"job": job}).fetchall() if len(transfers["comm"]) else []
    place, here = _places(comms, collectives["comm"])
    pace = pace_of(
        place[here],
        _moments(collectives, here),
        collectives["times"][here],
        _moments(transfers, transfers["at_ns"] >= 0),
        len(comms),
        PAUSE_TIMES,
    )
    place, here = _places(comms, transfers["comm"])
    here &= transfers["known"]
    numbers = np.maximum(np.bincount(place[here], minlength=len(comms)), 1)
    one_sided = np.bincount(place[here], transfers["one_sided"][here], len(comms)) / numbers
    edges = {comm: (frozenset(map(tuple, pairs)), spread) for comm, pairs, spread in sent}
    return [
        Use(
            job=job,
            comm=comm,
            members=frozenset(members),
            size=size,
            edges=edges.get(comm, (frozenset(), 0.0))[0],
            collectives=float(pace.collectives[at]),
            largest_bytes=largest_bytes,
            long_pauses=float(np.nan_to_num(pace.long_pauses[at])),
            apart_ns=float(np.nan_to_num(pace.apart_ns[at])),
            interleaved=None if np.isnan(pace.interleaved[at]) else float(pace.interleaved[at]),
            all_to_alls=all_to_alls,
            one_sided=float(one_sided[at]),
            spread=edges.get(comm, (frozenset(), 0.0))[1],
        )
        for at, (comm, members, size, largest_bytes, all_to_alls) in enumerate(found)
    ]


def _moments(columns: Mapping[str, NDArray[Any]], kept: NDArray[np.bool_]) -> Moments:
    return Moments(columns["rank"][kept].astype(np.int64), columns["at_ns"][kept])


def _places(
    comms: NDArray[np.uint64], wanted: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where each is among the communicators, which are in order, and whether it is there."""
    place = np.minimum(np.searchsorted(comms, wanted), len(comms) - 1)
    return place, comms[place] == wanted


_SIZES = ("tp", "dp", "pp", "ep", "cp")


def _contradicted(role: str | None, size: int, sizes: Mapping[str, int | None]) -> str | None:
    """What the configuration says where a group of that role and size cannot be, else None.

    Gradients are reduced over replicas, over context-parallel ranks besides, or of experts over
    a part of the replicas only. Two neighbouring stages may have a communicator of their own.
    """
    if role is None or sizes.get(role) is None:
        return None
    allowed = {sizes[role]}
    if role == "dp":
        dp, cp, ep = (sizes.get(name) or 1 for name in ("dp", "cp", "ep"))
        allowed |= {dp * cp} | {dp * cp // ep} | {dp // ep}
    if role == "pp":
        allowed |= {2}
    return None if size in allowed else f"{role} {sizes[role]}"
