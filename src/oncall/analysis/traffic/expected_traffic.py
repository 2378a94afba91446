"""What each rank has to send in each operation, and to which rank (Pulse 5.1, appendix B).

Sends name their peer and their size. A collective's volume follows from its algorithm, as reported
by the profiler plugin or as the active peers show; its edges between nodes share that volume by the
queue pairs that carry it. Operations whose algorithm is unknown, or is neither ring nor tree, are
left out, with the reason in `edge_shares`. Operations of zero bytes send nothing; of those with
next to nothing, the sender is unknown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from oncall.analysis.traffic.active_peers import (
    RING,
    RING_OPERATIONS,
    TREE,
    Active,
    active_peers,
    double_tree,
    inferred_algorithm,
    ring_share,
)
from oncall.analysis.traffic.flows import receiver_side
from oncall.evidence import Param, relation

_SHARES = [
    "job comm",
    ("op", "VARCHAR", "", "a collective"),
    ("bytes", "BIGINT", "bytes", "its size, as the caller passed it"),
    ("algo", "VARCHAR", "", "RING or TREE; another as recorded; NULL: unknown"),
    ("how", "VARCHAR", "", "recorded, inferred, or why it is left out"),
    ("rank", "INTEGER", "", "a member that sends; NULL: left out"),
    ("peer", "INTEGER", "", "the receiver; NULL: unknown"),
    "peer_side",
    ("share", "DOUBLE", "ratio", "bytes along this edge for each byte the caller passed"),
]


@dataclass(frozen=True)
class Group:
    """A communicator: the place of the node of each member that is known, and how many nodes
    there are."""

    place: Mapping[int, int]
    nodes: int
    size: int


@relation(
    "edge_shares",
    reads=["operations", "members"],
    optional=["flow_ends", "flow_comms", "flow_epochs", "operation_spans"],
    empty_without=["flow_ends"],
    columns=_SHARES,
    source="Pulse 5.1, appendix B",
    at="node",
    params={
        "tree_edges": Param("80 %", "of a tree's edges are seen: some carry nothing for long"),
        "crumbs": Param("2 %", "of its rank's largest flow: a smaller one only announces buffers"),
    },
)
def edge_shares(
    con: duckdb.DuckDBPyConnection, *, tree_edges: float, crumbs: float
) -> Mapping[str, Any]:
    """How the volume of each shape of collective is shared by the edges between nodes."""
    groups = _groups(con)
    active = active_peers(con, crumbs)
    rows: list[tuple[Any, ...]] = []
    for job, comm, op, size_bytes, recorded in _shapes(con):
        group = groups.get((job, comm))
        peers = active.get((job, comm, op, size_bytes), [])
        if group is None or group.nodes < 2:
            continue
        algo, how = _algorithm(op, recorded, peers, group, tree_edges)
        # Members that were not seen in this shape go where they go in others of its operation.
        seen = {peer.rank for peer in peers}
        for (j, c, other, _), more in active.items():
            if (j, c, other) == (job, comm, op):
                peers = peers + [peer for peer in more if peer.rank not in seen]
                seen |= {peer.rank for peer in more}
        edges = _edges(op, algo, peers, group) if how in ("recorded", "inferred") else []
        rows += [(job, comm, op, size_bytes, algo, how, *edge) for edge in edges]
        if not edges:
            rows.append((job, comm, op, size_bytes, algo, how, None, None, None, None))
    return edge_shares.by_column(rows)


def _algorithm(
    op: str, recorded: str | None, peers: Sequence[Active], group: Group, tree_edges: float
) -> tuple[str | None, str]:
    """The algorithm, and the source of that knowledge."""
    if op not in RING_OPERATIONS:
        return recorded, "no ring or tree has this operation"
    if recorded is not None:
        return recorded, "recorded" if recorded in (
            RING,
            TREE,
        ) else f"volumes of {recorded} are not known"
    if not peers:
        return None, "no traffic seen"
    if any(peer.peer not in group.place for peer in peers):
        return _by_number(op, peers, group)
    edges = {(group.place[p.rank], group.place[p.peer]) for p in peers if p.peer is not None}
    algo = inferred_algorithm(op, edges, group.nodes, tree_edges)
    return algo, "inferred" if algo else "its peers are neither a ring's nor a tree's"


def _by_number(op: str, peers: Sequence[Active], group: Group) -> tuple[str | None, str]:
    """By how many peers a rank has, where it is not known which: on one node alone."""
    by_rank: dict[int, set[int]] = defaultdict(set)
    for peer in peers:
        by_rank[peer.rank].add(peer.side)
    if op != "AllReduce" or all(len(sides) == 1 for sides in by_rank.values()):
        return RING, "inferred"
    tree = double_tree(group.nodes)
    degrees = {rank: sum(a == group.place[rank] for a, _ in tree) for rank in by_rank}
    if all(len(sides) == degrees[rank] for rank, sides in by_rank.items()):
        return TREE, "inferred"
    return None, "its peers are neither a ring's nor a tree's"


def _edges(
    op: str, algo: str | None, peers: Sequence[Active], group: Group
) -> Iterable[tuple[int, int | None, int, float]]:
    """(rank, peer, side, share) of every edge between nodes."""
    ring = ring_share(op, group.size) or 0.0
    tree = double_tree(group.nodes)
    leaving: dict[int, int] = defaultdict(int)  # queue pairs that leave a node, one a channel
    along: dict[tuple[int, int | None], int] = defaultdict(int)
    for peer in peers:
        place, to = group.place[peer.rank], _place_of(peer, group)
        leaving[place] += peer.flows
        along[place, to] += peer.flows
    for peer in peers:
        place, to = group.place[peer.rank], _place_of(peer, group)
        if algo == RING:
            # A ring leaves each node once in every channel.
            share = ring * peer.flows / leaving[place]
        elif to is None:
            degree = sum(weight for (a, _), weight in tree.items() if a == place)
            share = degree * peer.flows / leaving[place]
        else:
            share = tree.get((place, to), 0.0) * peer.flows / along[place, to]
        yield peer.rank, peer.peer, peer.side, share


def _place_of(peer: Active, group: Group) -> int | None:
    """The place of the peer's node; None: it is not known which."""
    return None if peer.peer is None else group.place.get(peer.peer)


@dataclass(frozen=True)
class _Member:
    rank: int
    comm_rank: int | None
    host: object  # its node, or itself where that is not known


def _groups(con: duckdb.DuckDBPyConnection) -> dict[tuple[str, int], Group]:
    """Communicators with the places of their nodes, numbered in the order of their members."""
    found = con.execute(
        """SELECT job, comm, rank, comm_rank, coalesce(node, rank::VARCHAR), max(size) OVER (
               PARTITION BY job, comm)
           FROM members ORDER BY job, comm, coalesce(comm_rank, rank)"""
    ).fetchall()
    members: dict[tuple[str, int], list[_Member]] = defaultdict(list)
    sizes: dict[tuple[str, int], int] = {}
    for job, comm, rank, comm_rank, host, size in found:
        members[job, comm].append(_Member(rank, comm_rank, host))
        sizes[job, comm] = max(size or 0, len(members[job, comm]))
    return {key: _group(known, sizes[key]) for key, known in members.items()}


def _group(members: Sequence[_Member], size: int) -> Group:
    """Places of nodes; where members are not seen, each node is taken to hold as many as the
    fullest that is, one after another."""
    hosts = list(dict.fromkeys(member.host for member in members))
    each = max(Counter(member.host for member in members).values())
    place = {
        member.rank: hosts.index(member.host)
        if len(members) == size or member.comm_rank is None
        else member.comm_rank // each
        for member in members
    }
    return Group(place, len(hosts) + -(-(size - len(members)) // each), size)


def _shapes(con: duckdb.DuckDBPyConnection) -> list[tuple[str, int, str, int, str | None]]:
    """Shapes of collectives, with the algorithm that most of their operations show."""
    return con.execute(
        """SELECT job, comm, op, bytes, mode(upper(algo) ORDER BY upper(algo)) FROM operations
           WHERE kind = 'coll' AND bytes > 0 AND op <> 'Barrier' GROUP BY ALL ORDER BY ALL"""
    ).fetchall()


@relation(
    "expected_traffic",
    reads=["operations"],
    columns=[
        "job comm kind seq",
        ("rank", "INTEGER", "", "sending rank"),
        ("peer", "INTEGER", "", "receiving rank; NULL: not known"),
        "peer_side op group_id",
        ("algo", "VARCHAR", "", "RING or TREE; NULL for a Send"),
        ("expected_bytes", "BIGINT", "bytes", "to be sent there"),
        ("started_ns", "BIGINT", "ns", "start on the device, where known"),
        "called_ns",
        ("ended_ns", "BIGINT", "ns", "end on the device, where known"),
        ("done", "BOOLEAN", "", "completed, as the recorder of operations knows"),
    ],
    source="Pulse 5.1, appendix B",
    at="node",
    params={
        "rounding": Param(
            "1 KiB",
            "by which a rank may fall short of its share: NCCL rounds it up to 16 bytes in each "
            "channel (alignUp in device/all_reduce.h), a rank misses at most two of these, and "
            "there are up to 32 channels; of less than that it is unknown who sends it",
        )
    },
)
def expected_traffic() -> str:
    """Each operation's volume between nodes, by sender and receiver."""
    return f"""
        WITH ops AS (
            SELECT job, comm, kind, seq, rank, op, bytes, root, group_id, comm_peer,
                coalesce(peer, -1) AS recorded_peer,
                CASE WHEN on_device THEN entered_ns END AS started_ns, called_ns, ended_ns, done
            FROM operations WHERE bytes > 0 AND (kind = 'coll' OR op = 'Send')
            -- In flight it is written at each seal: the last row knows most.
            QUALIFY row_number() OVER (PARTITION BY job, comm, kind, seq, rank, op
                ORDER BY done DESC NULLS LAST, observed_ns DESC NULLS LAST, called_ns,
                    ended_ns) = 1),
        placed AS (SELECT job, comm, rank, comm_rank, node FROM members)
        SELECT o.job, o.comm, o.kind, o.seq, o.rank, s.peer, s.peer_side, o.op, o.group_id, s.algo,
            round(o.bytes * s.share)::BIGINT AS expected_bytes, o.started_ns, o.called_ns,
            o.ended_ns, o.done
        FROM ops o JOIN edge_shares s USING (job, comm, op, bytes, rank)
        LEFT JOIN placed p ON p.job = o.job AND p.comm = o.comm AND p.rank = s.peer
        -- What closes the ring carries nothing of a broadcast, and the root sends no reduction.
        WHERE o.kind = 'coll' AND round(o.bytes * s.share) > $rounding
            AND NOT (o.op = 'Broadcast' AND coalesce(p.comm_rank = o.root, false))
            AND NOT (o.op = 'Reduce' AND EXISTS (FROM placed r WHERE r.job = o.job
                AND r.comm = o.comm AND r.rank = o.rank AND r.comm_rank = o.root))
        UNION ALL
        SELECT o.job, o.comm, o.kind, o.seq, o.rank,
            coalesce(to_.rank, nullif(recorded_peer, -1), s.peer),
            coalesce(s.peer_side, hash(coalesce(to_.rank, nullif(recorded_peer, -1))::VARCHAR),
                {receiver_side("o.comm_peer")}),
            o.op, o.group_id, NULL, o.bytes, o.started_ns, o.called_ns, o.ended_ns, o.done
        FROM ops o
        LEFT JOIN placed to_ ON to_.job = o.job AND to_.comm = o.comm
            AND CASE WHEN recorded_peer >= 0 THEN to_.rank = recorded_peer
                     ELSE to_.comm_rank = o.comm_peer END
        LEFT JOIN placed me ON me.job = o.job AND me.comm = o.comm AND me.rank = o.rank
        LEFT JOIN send_sides s ON s.job = o.job AND s.comm = o.comm AND s.rank = o.rank
            AND s.receiver = coalesce(to_.rank, nullif(recorded_peer, -1), o.comm_peer)
        WHERE o.op = 'Send' AND coalesce(to_.node <> me.node, true)
    """
