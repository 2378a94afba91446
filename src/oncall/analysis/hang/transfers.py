"""Inside an operation that hangs: what each waiting transfer waits for, step by step.

NCCL's proxy moves a channel's data in steps. The state of the oldest step says what is missing:
this GPU has not filled the buffer, the receiver gives no credit, the wire has not acknowledged, no
data has arrived, or this GPU does not consume. Each state points at one other transfer or at an
end: a GPU that hangs, a link, a rank that has not begun. Only the order within one rank is used, so
clocks do not matter. (CCL-D compares counts of steps; states also show which of two ranks with
equal counts waits for the other.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import duckdb

from oncall.evidence import relation

Side = tuple[int, int, bool]  # rank, channel, whether it sends


@dataclass(frozen=True)
class Transfer:
    """A proxy operation in flight: what one rank's channel sends to, or receives from, a peer."""

    rank: int
    peer: int
    channel: int
    sends: bool
    waits_for: str | None = None
    steps_done: int = 0

    @property
    def answer(self) -> tuple[Side, int]:
        """The matching half of a transfer."""
        return (self.peer, self.channel, not self.sends), self.rank


@dataclass(frozen=True)
class End:
    """Where a chain of waiting transfers ends.

    `kind`: gpu (hangs: neither fills nor consumes), kernel (has data and does not consume),
    link (posted or sent, never arrived: between `ranks`), absent (has not begun), silent (leaves
    no transfers at all).
    `ranks` of a GPU are several where what goes on inside their host is not recorded.
    """

    kind: str
    ranks: tuple[int, ...]


@dataclass
class Operation:
    """The transfers of one operation: those in flight, and the sides that are over."""

    inside: Mapping[int, tuple[int, ...]]  # members on the same host, each with itself
    observed: frozenset[int]
    elsewhere: frozenset[int] = frozenset()  # their GPU is still in an operation before this one
    flying: dict[Side, dict[int, Transfer]] = field(default_factory=lambda: defaultdict(dict))
    over: set[tuple[Side, int]] = field(default_factory=set)

    def add(self, transfer: Transfer, ended: bool) -> None:
        side = transfer.rank, transfer.channel, transfer.sends
        if ended:
            self.over.add((side, transfer.peer))
        else:
            self.flying[side][transfer.peer] = transfer

    def transfers(self) -> Iterator[Transfer]:
        for side in self.flying.values():
            yield from side.values()

    def has_any(self, rank: int, channel: int, sends: bool) -> bool:
        """Whether this side of the rank goes over the network at all."""
        side = rank, channel, sends
        return side in self.flying or any(over == side for over, _ in self.over)

    def near(self, rank: int, channel: int, sends: bool) -> list[Transfer]:
        """The rank's own transfers of one direction in flight, the least advanced first.

        A rank without any in this direction is fed, or drained, by a rank of its own host.
        """
        who: Iterable[int] = (rank,)
        if not self.has_any(rank, channel, sends):
            who = self.inside.get(rank, (rank,))
        found = [t for one in who for t in self.flying.get((one, channel, sends), {}).values()]
        return sorted(found, key=lambda t: (t.steps_done, t.rank, t.peer))

    def end_of(self, transfer: Transfer) -> End | None:
        """Follow `transfer` to what it waits for; None if that is unknown, or is not here: a
        GPU that is still in another operation waits for what that one waits for."""
        end = self._followed(transfer)
        is_gpu = end is not None and end.kind in ("gpu", "kernel")
        return None if end is not None and is_gpu and self.elsewhere.issuperset(end.ranks) else end

    def _followed(self, transfer: Transfer) -> End | None:
        seen: dict[Transfer, None] = {}
        while transfer not in seen:
            seen[transfer] = None
            following = self._next(transfer)
            if isinstance(following, End):
                return following
            transfer = following
        path = [*seen]
        return self._surplus(path[path.index(transfer) :])

    def _surplus(self, cycle: list[Transfer]) -> End | None:
        """Around a ring all ranks wait for data: the chain ends at the rank that received more than
        it sent."""
        kept: dict[Transfer, int] = {}
        for sender, feeding in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            if sender.sends and not feeding.sends and sender.waits_for != "send_peer":
                kept[sender] = feeding.steps_done - sender.steps_done
        most = [sender for sender, steps in kept.items() if steps == max(kept.values())]
        if len(most) != 1:
            return None
        (sender,) = most
        recorded = self.has_any(sender.rank, sender.channel, False)
        alone = (sender.rank,)
        return End("gpu", alone if recorded else self.inside.get(sender.rank, alone))

    def _next(self, transfer: Transfer) -> Transfer | End:
        match transfer.waits_for:
            case "recv_wire" | "send_peer":
                return self._other_half(transfer)
            case "send_wire":
                return End("link", (transfer.rank, transfer.peer))
            case "recv_flush":
                return End("kernel", (transfer.rank,))
        return self._own_gpu(transfer)

    def _other_half(self, transfer: Transfer) -> Transfer | End:
        side, peer = transfer.answer
        other = self.flying.get(side, {}).get(peer)
        link = End("link", _along(transfer))
        if other is None:
            if (side, peer) in self.over:
                return link  # sent and never received, or received and never confirmed
            return End("absent" if transfer.peer in self.observed else "silent", (transfer.peer,))
        if not transfer.sends:
            return other
        # A receiver that has room and gets nothing gave a credit that never came.
        return link if other.waits_for == "recv_wire" else other

    def _own_gpu(self, transfer: Transfer) -> Transfer | End:
        """The transfer waits for its own GPU. In a ring, that GPU may wait itself: for data, or for
        room ahead."""
        rank, channel, sends = transfer.rank, transfer.channel, transfer.sends
        others = self.near(rank, channel, not sends)
        for other in others:
            if other.waits_for in (("recv_wire",) if sends else ("send_peer", "send_wire")):
                return other
        recorded = self.has_any(rank, channel, not sends)
        ranks = (rank,) if recorded else self.inside.get(rank, (rank,))
        return End("gpu" if sends or others else "kernel", ranks)


def _along(transfer: Transfer) -> tuple[int, int]:
    """Sender and receiver."""
    pair = transfer.rank, transfer.peer
    return pair if transfer.sends else (pair[1], pair[0])


def merged(ends: Mapping[Transfer, End]) -> dict[Transfer, End]:
    """One end for all links between the same two ranks, and one for links that all meet in one
    rank: then that rank's NIC is at fault rather than several links."""
    links = {tuple(sorted(end.ranks)) for end in ends.values() if end.kind == "link"}
    shared = set.intersection(*map(set, links)) if len(links) > 1 else set()

    def of(end: End) -> End:
        if end.kind != "link":
            return end
        return End("nic", tuple(shared)) if shared else End("link", tuple(sorted(end.ranks)))

    return {transfer: of(end) for transfer, end in ends.items()}


_COLUMNS = [
    ("job", "VARCHAR", "", "the job"),
    ("comm", "UBIGINT", "", "communicator"),
    ("kind", "VARCHAR", "", "coll or p2p"),
    ("seq", "BIGINT", "", "the operation that waits, as hang_roots has it"),
    ("rank", "INTEGER", "", "a rank with a transfer that waits"),
    ("peer", "INTEGER", "", "its other side"),
    ("channel", "INTEGER", "", "its channel"),
    ("waits_for", "VARCHAR", "", "the state of its oldest step"),
    ("waited_ns", "BIGINT", "ns", "for how long"),
    ("end_kind", "VARCHAR", "", "gpu, kernel, link, nic, absent or silent (no data)"),
    ("end_ranks", "INTEGER[]", "", "the rank it leads to; of a link sender and receiver"),
]


@relation(
    "transfer_ends",
    reads=["transfers", "hang_roots"],
    optional=["members", "ops"],
    empty_without=["transfers", "hang_roots"],
    columns=_COLUMNS,
    source="beyond the papers: NCCL proxy steps, from waiter to waited-for",
)
def transfer_ends(con: duckdb.DuckDBPyConnection) -> Mapping[str, Any]:
    """Where each stuck transfer leads, in every operation where a hang begins."""
    rows: list[tuple[Any, ...]] = []
    for case, operation, waited in _operations(con):
        ends = {
            transfer: end
            for transfer in operation.transfers()
            if (end := operation.end_of(transfer)) is not None
        }
        for t, end in merged(ends).items():
            facts = (t.rank, t.peer, t.channel, t.waits_for, waited[t])
            rows.append((*case, *facts, end.kind, list(end.ranks)))
    names = [column[0] for column in _COLUMNS]
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


# The newest row of each transfer of operations of which some transfer is in flight.
IN_FLIGHT = """
    WITH newest AS (
        SELECT * FROM transfers
        QUALIFY row_number() OVER (
            PARTITION BY job, comm, kind, seq, rank, channel, direction, coalesce(comm_peer, peer)
            ORDER BY ended_ns IS NULL, observed_ns DESC NULLS LAST, steps_done DESC) = 1)
    SELECT job, comm, seq, kind, rank, channel, peer, direction = 'send' AS sends,
        coalesce(steps_done, 0) AS steps_done, waits_for, observed_ns - since_ns AS waited_ns,
        ended_ns IS NOT NULL AS ended
    FROM newest SEMI JOIN (SELECT * FROM newest WHERE ended_ns IS NULL) USING (job, comm, kind)
    WHERE peer IS NOT NULL
"""
# The sides of a Send and a Recv may number it differently: a pair is found by its ranks.
_CASES = f"""
    WITH places AS (SELECT DISTINCT job, comm, kind, seq, ends FROM hang_roots)
    SELECT p.job, p.comm, p.kind, p.seq AS shown, t.* EXCLUDE (job, comm, kind, seq)
    FROM places p JOIN ({IN_FLIGHT}) t ON t.job = p.job AND t.comm = p.comm
        AND t.kind = p.kind AND CASE p.kind WHEN 'coll' THEN t.seq = p.seq
            ELSE list_contains(p.ends, t.rank) AND NOT t.ended END
    ORDER BY ALL
"""
_INSIDE = """
    SELECT m.job, m.comm, m.rank, list(n.rank ORDER BY n.rank)
    FROM members m JOIN members n ON n.job = m.job AND n.comm = m.comm
        AND (n.node = m.node OR n.rank = m.rank)
    SEMI JOIN hang_roots r ON r.job = m.job AND r.comm = m.comm AND r.kind = 'coll'
    GROUP BY ALL
"""


_ELSEWHERE = """
    WITH flying AS (SELECT * FROM ops WHERE ended_ns IS NULL AND done = false)
    SELECT DISTINCT f.job, f.comm, f.kind, f.seq, f.rank
    FROM flying f SEMI JOIN hang_roots USING (job, comm, kind, seq)
    SEMI JOIN (SELECT job, rank FROM flying WHERE started_ns IS NOT NULL) USING (job, rank)
    WHERE f.started_ns IS NULL
"""


def _operations(
    con: duckdb.DuckDBPyConnection,
) -> Iterator[tuple[tuple[Any, ...], Operation, dict[Transfer, int | None]]]:
    """Each operation where a hang begins, with how long its transfers have waited."""
    observed: dict[str, set[int]] = defaultdict(set)
    # A process without the profiler leaves operations and no transfers: nothing follows from that.
    for job, rank in con.execute("SELECT DISTINCT job, rank FROM transfers").fetchall():
        observed[job].add(rank)
    inside: dict[Any, dict[int, tuple[int, ...]]] = defaultdict(dict)
    for job, comm, rank, ranks in con.execute(_INSIDE).fetchall():
        inside[job, comm, "coll"][rank] = tuple(ranks)
    elsewhere: dict[Any, set[int]] = defaultdict(set)
    for *place, rank in con.execute(_ELSEWHERE).fetchall():
        elsewhere[tuple(place)].add(rank)
    found: dict[tuple[Any, ...], tuple[Operation, dict[Transfer, int | None]]] = {}
    for job, comm, kind, seq, *recorded in con.execute(_CASES).fetchall():
        case = job, comm, kind, seq
        if case not in found:
            busy = frozenset(elsewhere[case])
            found[case] = Operation(inside[job, comm, kind], frozenset(observed[job]), busy), {}
        operation, waited = found[case]
        rank, channel, peer, sends, steps_done, waits_for, waited_ns, ended = recorded
        transfer = Transfer(rank, peer, channel, sends, waits_for, steps_done)
        operation.add(transfer, ended)
        waited[transfer] = waited_ns
    for case, (operation, waited) in found.items():
        yield case, operation, waited
