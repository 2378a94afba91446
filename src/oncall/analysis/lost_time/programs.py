"""What each rank called, in order: the nodes of the execution graph.

A node is one collective, or one batch of sends and receives. A group call of as many sends and
receives as the communicator has members is an AllToAll, and so a collective.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from oncall.analysis.common.ordering import AT_ONCE, in_order, rank_pieces, sorted_by
from oncall.analysis.lost_time.arrays import (
    NONE,
    Codes,
    Flags,
    Hashes,
    Ints,
    Times,
    nth_of,
    pairs_of,
)
from oncall.analysis.lost_time.limits import Limits
from oncall.core import room

ABSENT = -2  # less the number of a rank that left nothing behind

_OPERATIONS = """
    SELECT o.rank, CASE WHEN $on_device THEN o.entered_ns ELSE o.called_ns END AS at_ns,
        o.duration_ns, coalesce(o.comm, 0) AS comm, coalesce(o.seq, -1) AS seq,
        o.kind = 'p2p' AS p2p,
        (list_position($ops, coalesce(o.op, '?')) - 1)::SMALLINT AS op,
        coalesce(o.count, o.bytes, 0) AS count,
        coalesce(o.peer, m.rank, -2 - o.comm_peer, -1) AS peer,
        coalesce(o.group_id, -1) AS batch, o.ops_row
    FROM operations o
    LEFT JOIN members m ON m.job = o.job AND m.comm = o.comm AND m.comm_rank = o.comm_peer
    WHERE o.job = $job AND coalesce(o.done, true) AND o.stands_for IS NULL
        -- Recorders that name no communicator of a send or receive name its other side.
        AND o.rank BETWEEN $first AND $last AND (o.comm IS NOT NULL OR o.kind = 'p2p')
        AND at_ns IS NOT NULL
"""


@dataclass(frozen=True)
class Parts:
    """The sends and receives of all batches (m,): the node of each, its communicator, direction,
    who is on the other side (a place in `Programs.ranks`; ABSENT or less: a rank that left nothing
    behind; NONE where that is not known), and how much is sent."""

    node: Ints
    comm: Ints
    sends: Flags
    peer: Ints
    count: Ints


@dataclass(frozen=True)
class Programs:
    """The nodes of all ranks (n,), each rank's in the order of its calls.

    `ranks` (r,) are the job's ranks, `rank` the place of each node's in it. `at_ns` is when the
    host called, or on the device when the rank entered; `duration_ns` NaN where unknown.
    `signature` is equal for calls that ask for the same: operation, size, size of the group.
    `members` names the ranks of each communicator, by their places; `sizes` (c,) counts those that
    left nothing behind as well.
    """

    ranks: Ints
    rank: Ints
    at_ns: Ints
    duration_ns: Times
    comm: Ints
    seq: Ints
    batch: Flags
    op: Codes
    ops: list[str]
    count: Ints
    signature: Hashes
    parts: Parts
    members: list[Ints]
    sizes: Ints
    on_device: bool


def read_programs(con: duckdb.DuckDBPyConnection, job: str, limits: Limits) -> Programs | None:
    """The programs of a job's ranks; None if nothing is recorded. Sends and receives whose batch is
    not recorded are one batch where little time lies between them."""
    ((on_device, calls, *ranks_read),) = con.execute(
        "SELECT coalesce(avg((on_device AND duration_ns IS NOT NULL)::INT)"
        " FILTER (coalesce(done, true)) > ?, false), count(rank), min(rank), max(rank)"
        " FROM operations WHERE job = ?",
        [limits.nearly_all, job],
    ).fetchall()
    if not calls:
        return None
    named = con.execute(
        "SELECT DISTINCT coalesce(op, '?') AS op FROM operations WHERE job = ? ORDER BY op", [job]
    ).fetchall()
    ops = [op for (op,) in named]
    parameters = {"job": job, "on_device": on_device, "ops": ops}
    pieces: Iterable[Sequence[int]] = [ranks_read] if calls <= AT_ONCE else rank_pieces(con, job)
    send = ops.index("Send") if "Send" in ops else NONE
    read = (_operations(con, parameters, *piece) for piece in pieces)
    found = [_nodes(_once(rows), send, limits) for rows in read if len(rows["rank"])]
    if len(found) > 1:
        room.give_back()  # what the database needed for its answers
    return _of_nodes(con, job, found, ops, bool(on_device), limits) if found else None


def matched(programs: Programs, number: Ints) -> tuple[Ints, Ints]:
    """The nodes of each send in an iteration (m,) and of its receive (m,): those between two ranks
    in their order. `number` (n,) is the iteration of each node, NONE outside."""
    parts = programs.parts
    mine = np.flatnonzero((number[parts.node] != NONE) & (parts.peer >= 0))
    node, peer, sends = parts.node[mine], parts.peer[mine], parts.sends[mine]
    rank, ranks = programs.rank[node], len(programs.ranks)
    pair = np.where(sends, rank * ranks + peer, peer * ranks + rank)
    pair = 2 * (pair + number[node] * ranks * ranks)
    key = pair << 14 | np.minimum(nth_of(pair + sends), (1 << 14) - 1)
    out, into = np.flatnonzero(sends), np.flatnonzero(~sends)
    _, a, b = np.intersect1d(key[out], key[into], return_indices=True)
    return node[out[a]], node[into[b]]


def with_unseen(programs: Programs, seen: Flags) -> Flags:
    """Who may have waited for a rank that left nothing behind, or is not among the `seen` (r,): who
    exchanges with it, and who shares a group with it, unless all ranks do, and wait alike (r,)."""
    found = np.zeros(len(programs.ranks), dtype=np.bool_)
    peer = programs.parts.peer
    unseen = np.where(peer < 0, peer <= ABSENT, ~seen[np.maximum(peer, 0)])
    found[programs.rank[programs.parts.node[unseen]]] = True
    for members, size in zip(programs.members, programs.sizes.tolist(), strict=True):
        found[members] |= len(members) < min(size, len(found))
    return found


def _nodes(rows: dict[str, NDArray[Any]], send: int, limits: Limits) -> dict[str, NDArray[Any]]:
    """The nodes (n,) of some ranks, from their operations, which are emptied; of those that are
    `batch`, in their order, a hash of what they ask for and how much is `sent` in exchange; and
    the parts of all batches, named `part_...`. Ranks as they are recorded, communicators as places
    in `comms`."""
    rank, p2p, at_ns = (rows.pop(name) for name in ("rank", "p2p", "at_ns"))
    comms = np.unique(rows["comm"])  # few: to look each up is faster than to sort them
    comm = np.searchsorted(comms, rows.pop("comm"))
    seq, given, op, count = (rows.pop(name) for name in ("seq", "batch", "op", "count"))
    same = (given[1:] >= 0) & (given[1:] == given[:-1])
    same |= (seq[1:] >= 0) & (seq[1:] == seq[:-1]) & (comm[1:] == comm[:-1])
    same |= np.diff(at_ns) < limits.at_once
    same &= (rank[1:] == rank[:-1]) & p2p[1:] & p2p[:-1]
    begins = np.append(True, ~same)
    first = np.flatnonzero(begins)
    duration = rows.pop("duration_ns")
    part = np.flatnonzero(p2p)
    node = (np.cumsum(begins) - 1)[part]
    # Where there are no batches, nodes are the operations themselves.
    firsts = first if len(first) < len(begins) else slice(None)
    sends = op[part] == send
    start = np.flatnonzero(np.diff(node, prepend=NONE))
    return {
        "comms": comms,
        "rank": rank[firsts],
        "at_ns": at_ns[firsts],
        "duration_ns": np.maximum.reduceat(duration, first),
        "comm": comm[firsts],
        "seq": seq[firsts],
        "batch": p2p[firsts],
        "op": op[firsts],
        "count": count[firsts],
        "asked": np.add.reduceat(_mixed(2 * count[part] + sends), start),
        "sent": _sent(comm[part], sends, start),
        "part_node": node,
        "part_comm": comm[part],
        "part_sends": sends,
        "part_peer": rows.pop("peer")[part],
        "part_count": count[part],
    }


def _of_nodes(
    con: duckdb.DuckDBPyConnection,
    job: str,
    found: list[dict[str, NDArray[Any]]],
    ops: list[str],
    on_device: bool,
    limits: Limits,
) -> Programs:
    """The programs of a job, from the nodes of all its ranks as `_nodes` has them."""
    ranks, comms = _numbered(found)
    nodes = _joined(found)
    rank, comm, node = (nodes.pop(name) for name in ("rank", "comm", "part_node"))
    members, sizes = _members(con, job, ranks, comms, rank, comm)
    batch, count, seq = nodes["batch"], nodes["count"], nodes["seq"]
    batches, op = np.flatnonzero(batch), nodes.pop("op")
    exchange = batches[_exchanges(comm[batches], nodes.pop("sent"), sizes, limits)]
    op[batches] = NONE
    op[exchange] = len(ops)
    batch[exchange] = False
    uneven = _uneven(comm, seq, count, op, limits)
    calls = np.flatnonzero(~batch)
    asked = count[calls] * 64
    asked[np.isin(op[calls], uneven)] = 0
    signature = np.empty(len(op), dtype=np.uint64)
    signature[batches] = nodes.pop("asked")
    signature[calls] = _mixed(_mixed(asked + op[calls]) ^ sizes[comm[calls]].astype(np.uint64))
    kept: Any = batch[node] if len(exchange) else slice(None)
    other = nodes.pop("part_peer").astype(np.int64)[kept]
    peer = _places(ranks, other)
    parts = Parts(
        node=node[kept],
        comm=nodes.pop("part_comm")[kept],
        sends=nodes.pop("part_sends")[kept],
        peer=np.where((peer == NONE) & (other >= 0), ABSENT - other, peer),
        count=nodes.pop("part_count")[kept],
    )
    return Programs(
        ranks=ranks,
        rank=rank,
        at_ns=nodes["at_ns"],
        duration_ns=nodes["duration_ns"],
        comm=comm,
        seq=seq,
        batch=batch,
        op=op,
        ops=[*ops, "AllToAll"],
        count=count,
        signature=signature,
        parts=parts,
        members=members,
        sizes=sizes,
        on_device=on_device,
    )


def _operations(
    con: duckdb.DuckDBPyConnection, parameters: dict[str, Any], first: int, last: int
) -> dict[str, NDArray[Any]]:
    """The operations of some ranks, each rank's in the order of its calls; durations not recorded
    are NaN."""
    wanted = parameters | {"first": first, "last": last}
    found = con.execute(_OPERATIONS, wanted).fetchnumpy()
    durations = np.ma.asarray(found["duration_ns"], dtype=np.float64)
    rows = {name: np.ma.getdata(values) for name, values in found.items()}
    rows["duration_ns"] = np.ma.filled(durations, np.nan)
    # What has no number comes behind what has.
    seq = np.where(rows["seq"] == NONE, np.iinfo(np.int64).max, rows["seq"])
    order = in_order(rows["rank"], rows["at_ns"], rows["batch"], seq, rows.pop("ops_row"))
    return rows if order is None else {name: values[order] for name, values in rows.items()}


def _numbered(found: list[dict[str, NDArray[Any]]]) -> tuple[Ints, NDArray[np.uint64]]:
    """The ranks and the communicators of all nodes; in each piece these are places in them then."""
    ranks = np.unique(np.concatenate([np.unique(one["rank"]) for one in found])).astype(np.int64)
    comms = np.unique(np.concatenate([one["comms"] for one in found]))
    for one in found:
        one["rank"] = _places(ranks, one["rank"])
        place = _places(comms, one.pop("comms"))
        one["comm"], one["part_comm"] = place[one["comm"]], place[one["part_comm"]]
    return ranks, comms


def _joined(parts: list[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The nodes and parts of all pieces, which are emptied, so that each column is held twice at
    most."""
    begins = np.cumsum([0, *(len(part["rank"]) for part in parts)])
    for part, begin in zip(parts, begins.tolist(), strict=False):
        part["part_node"] += begin
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part.pop(name) for part in parts]) for name in [*parts[0]]}


def _once(rows: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Rows of one operation, written again, are one: of the same rank at the same time."""
    together = (np.diff(rows["rank"]) == 0) & (np.diff(rows["at_ns"]) == 0)
    mine = np.flatnonzero(np.append(False, together) | np.append(together, False))
    key = np.zeros(len(mine), dtype=np.uint64)
    for name in ("rank", "at_ns", "comm", "p2p", "seq", "op", "peer"):
        key = _mixed(key ^ np.ma.getdata(rows[name])[mine].astype(np.int64).view(np.uint64))
    again = np.ones(len(mine), dtype=np.bool_)
    again[np.unique(key, return_index=True)[1]] = False
    if not again.any():
        return rows
    kept = np.ones(len(together) + 1, dtype=np.bool_)
    kept[mine[again]] = False
    return {name: values[kept] for name, values in rows.items()}


def _members(
    con: duckdb.DuckDBPyConnection,
    job: str,
    ranks: Ints,
    comms: NDArray[np.uint64],
    rank: Ints,
    comm: Ints,
) -> tuple[list[Ints], Ints]:
    """The places of the ranks of each communicator, in the order of their ranks there: as recorded,
    else those seen in it. And how many it has, with those that left nothing behind."""
    members = con.execute(
        "SELECT comm, rank, coalesce(size, 0) AS size FROM members"
        " WHERE job = ? AND comm IS NOT NULL ORDER BY comm, coalesce(comm_rank, rank)",
        [job],
    ).fetchnumpy()
    place = _places(ranks, np.asarray(members["rank"], dtype=np.int64))
    number = _places(comms, np.asarray(members["comm"], dtype=np.uint64))
    here = (place != NONE) & (number != NONE)
    acting = pairs_of(comm, rank)
    silent = ~np.isin(acting[0], number[here])
    numbers = np.concatenate([number[here], acting[0][silent]])
    order = np.argsort(numbers, kind="stable")
    found = np.concatenate([place[here], acting[1][silent]])[order]
    lines = np.split(found, np.searchsorted(numbers[order], np.arange(1, len(comms))))
    sizes = np.array([len(line) for line in lines], dtype=np.int64)
    known = number != NONE
    np.maximum.at(sizes, number[known], np.asarray(members["size"], dtype=np.int64)[known])
    return lines, np.maximum(sizes, np.bincount(number[known], minlength=len(comms)))


def _places(known: NDArray[Any], wanted: NDArray[Any]) -> Ints:
    """Where each is among what is known, in order; NONE where it is not."""
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[place] == wanted, place, NONE)


def _exchanges(comm: Ints, sent: Ints, sizes: Ints, limits: Limits) -> Flags:
    """Whether batches are an AllToAll: of communicators whose batches nearly all send to all
    members, or to all but the own rank, whose part needs no transfer."""
    others = sizes[comm] - sent
    to_all = (others == 0) | ((others == 1) & (sent > 1))
    number = np.bincount(comm, minlength=len(sizes))
    always = np.bincount(comm, to_all, len(sizes)) >= limits.nearly_all * number
    return np.asarray(to_all & always[comm])


def _sent(comm: Ints, sends: Flags, start: Ints) -> Ints:
    """Of batches, which begin so among their parts, how many sends each has, where it has as many
    receives and they are of one communicator; else NONE."""
    calls = np.diff(start, append=len(comm))
    sent = np.add.reduceat(sends, start, dtype=np.int64)
    one = np.minimum.reduceat(comm, start) == np.maximum.reduceat(comm, start)
    return np.where((calls > 2) & (calls == 2 * sent) & one, sent, NONE)


def _uneven(comm: Ints, seq: Ints, count: Ints, op: Codes, limits: Limits) -> Ints:
    """Of collectives the operations whose members bring different sizes to one call, as experts do:
    sizes that the data decide, not the program."""
    at = np.flatnonzero((op != NONE) & (seq >= 0))
    if not len(at):
        return at
    at = at[sorted_by(comm[at], seq[at])]
    same = np.diff(comm[at]) == 0
    same &= np.diff(seq[at]) == 0
    first = np.flatnonzero(np.append(True, ~same))
    sizes = count[at]
    differ = np.maximum.reduceat(sizes, first) != np.minimum.reduceat(sizes, first)
    of = op[at[first]]
    return np.flatnonzero(np.bincount(of, differ) > limits.hardly * np.bincount(of))


def _mixed(values: Ints | Hashes) -> Hashes:
    """Numbers spread over 64 bits (splitmix64), so that sums of them tell sets apart."""
    mixed = values.astype(np.uint64)
    mixed += np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed
