"""Which side of a sender's flows belongs to which receiver of its Sends, where only the sender has
data.

A node knows only its own members of a communicator, and the receiver of a Send by its number in the
communicator; of its queue pairs it knows the other side's address. If both know the receiver's
rank, they match. The others are matched by volume: of all ways to pair receivers with sides, the
one in which each side carried, call by call, what its receiver was to get. Receivers that get the
same volume at the same time cannot be distinguished: each has a side, but `peer` is unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from oncall.analysis.traffic.flows import Sent, sent_by_flow
from oncall.evidence import Param, relation

Ints = NDArray[np.int64]
_COLUMNS = [
    "job comm",
    ("rank", "INTEGER", "", "a member that sends"),
    ("receiver", "INTEGER", "", "as its Sends name it: global rank if known, else comm_peer"),
    ("peer", "INTEGER", "", "the receiver's global rank; NULL: not known"),
    ("peer_side", "UBIGINT", "", "its side of the flows; NULL: none was seen"),
]

# Sends by who gets them, in the calls (group calls, or single Sends) that they belong to.
_SENDS = """
    SELECT o.job, o.comm, o.rank, coalesce(to_.rank, o.peer, o.comm_peer) AS receiver,
        coalesce(to_.rank, o.peer) AS peer, coalesce(o.group_id, -o.seq) AS call, sum(o.bytes)
    FROM operations o
    LEFT JOIN members to_ ON to_.job = o.job AND to_.comm = o.comm
        AND CASE WHEN o.peer IS NULL THEN to_.comm_rank = o.comm_peer ELSE to_.rank = o.peer END
    LEFT JOIN members me ON me.job = o.job AND me.comm = o.comm AND me.rank = o.rank
    WHERE o.op = 'Send' AND o.bytes > 0 AND coalesce(to_.node <> me.node, true)
    GROUP BY ALL ORDER BY ALL
"""
# What is sent late must not be taken for the next call's: each ends where that one begins.
_SPANS = """
    SELECT job, comm, rank, call, begin_ns, least(end_ns, lead(begin_ns) OVER (
        PARTITION BY job, comm, rank ORDER BY begin_ns)) AS end_ns
    FROM operation_spans WHERE kind = 'p2p' ORDER BY ALL
"""
_SIDES = """
    SELECT e.job, c.comm, e.rank, e.peer_side, e.peer, e.comm_peer, list(flow ORDER BY flow)
    FROM flow_ends e JOIN flow_comms c USING (flow)
    WHERE c.comm IS NOT NULL AND e.rank IS NOT NULL GROUP BY ALL ORDER BY ALL
"""
Sender = tuple[str, int, int]  # job, communicator, rank


@dataclass
class _Receiver:
    """One that a rank sends to, and how much in each call."""

    peer: int | None
    bytes: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Side:
    side: int
    peer: int | None
    comm_peer: int | None
    flows: Sequence[int]


@relation(
    "send_sides",
    reads=["operations", "operation_spans", "flow_ends", "flow_comms", "flow_epochs"],
    optional=["members"],
    columns=_COLUMNS,
    source="Pulse 5.1",
    at="node",
    params={
        "alike": Param("2 %", "of all bytes: pairings this near one another are not distinguished")
    },
)
def send_sides(con: duckdb.DuckDBPyConnection, *, alike: float) -> Mapping[str, Any]:
    """The side of each receiver of Sends."""
    receivers: dict[Sender, dict[int, _Receiver]] = defaultdict(dict)
    for job, comm, rank, name, peer, call, size in con.execute(_SENDS).fetchall():
        to = receivers[job, comm, rank].setdefault(name, _Receiver(peer))
        to.bytes[call] = int(size)
    sides: dict[Sender, list[_Side]] = defaultdict(list)
    for job, comm, rank, *side in con.execute(_SIDES).fetchall():
        sides[job, comm, rank].append(_Side(*side))
    paired = {sender: _by_rank(receivers[sender], sides[sender]) for sender in receivers}
    left = {
        sender: [side for side in sides[sender] if side.side not in set(paired[sender].values())]
        for sender in receivers
        if len(paired[sender]) < len(receivers[sender])
    }
    flows = {flow for some in left.values() for side in some for flow in side.flows}
    sent = sent_by_flow(con, flows) if flows else {}
    spans = _spans(con) if flows else {}
    rows: list[tuple[Any, ...]] = []
    for sender, of in receivers.items():
        pairs, known = paired[sender], {side.side: side.peer for side in sides[sender]}
        unpaired = {name: each for name, each in of.items() if name not in pairs}
        found, is_clear = _by_volume(
            unpaired, left.get(sender, []), sent, spans.get(sender, {}), alike
        )
        for name, each in of.items():
            at = pairs[name] if name in pairs else found.get(name)
            peer = each.peer
            if peer is None and at is not None and is_clear:
                peer = known[at]
            rows.append((*sender, name, peer, at))
    return send_sides.by_column(rows)


def _by_rank(receivers: Mapping[int, _Receiver], sides: Sequence[_Side]) -> dict[int, int]:
    """The side of each receiver whose rank both know, in the job or in the communicator."""
    of_rank = {side.peer: side.side for side in sides if side.peer is not None}
    of_place = {side.comm_peer: side.side for side in sides if side.comm_peer is not None}
    found = {}
    for name, each in receivers.items():
        if each.peer in of_rank:
            found[name] = of_rank[each.peer]
        elif each.peer is None and name in of_place:
            found[name] = of_place[name]
    return found


def _spans(con: duckdb.DuckDBPyConnection) -> dict[Sender, dict[int, tuple[int, int]]]:
    spans: dict[Sender, dict[int, tuple[int, int]]] = defaultdict(dict)
    for job, comm, rank, call, begin_ns, end_ns in con.execute(_SPANS).fetchall():
        spans[job, comm, rank][call] = (begin_ns, end_ns)
    return spans


def _by_volume(
    receivers: Mapping[int, _Receiver],
    sides: Sequence[_Side],
    sent: Mapping[int, Sent],
    spans: Mapping[int, tuple[int, int]],
    alike: float,
) -> tuple[dict[int, int], bool]:
    """The side of each receiver by what was sent there, and whether no other pairing is as good.

    The best pair first, then the best of what is left; a receiver may be left without a side."""
    if not receivers or not sides:
        return {}, False
    calls = sorted(call for call in spans if any(call in each.bytes for each in receivers.values()))
    begin_ns, end_ns = np.array([spans[call] for call in calls], np.int64).reshape(-1, 2).T
    wanted = np.array([[each.bytes.get(call, 0) for call in calls] for each in receivers.values()])
    seen = np.array([_sent_within(side, sent, begin_ns, end_ns) for side in sides])
    # (receivers, sides): bytes that the pair would leave unexplained
    wrong = np.abs(wanted[:, None, :] - seen[None, :, :]).sum(axis=2).astype(np.float64)
    margin = alike * wanted.sum()
    found, is_clear = {}, True
    names = list(receivers)
    for _ in range(min(wrong.shape)):
        row, column = divmod(int(np.argmin(wrong)), len(sides))
        best = wrong[row, column]
        wrong[row, column] = np.inf
        others = np.append(wrong[row, :], wrong[:, column])
        is_clear &= not bool((others < best + margin).any())
        wrong[row, :], wrong[:, column] = np.inf, np.inf
        found[names[row]] = sides[column].side
    return found, is_clear


def _sent_within(side: _Side, sent: Mapping[int, Sent], begin_ns: Ints, end_ns: Ints) -> Ints:
    """Bytes that a side's flows sent in each span (calls,)."""
    total = np.zeros(len(begin_ns), np.int64)
    for flow in side.flows:
        if flow in sent:
            before, start_ns = sent[flow].before, sent[flow].start_ns
            until, since = np.searchsorted(start_ns, end_ns), np.searchsorted(start_ns, begin_ns)
            total += before[until] - before[since]
    return total
