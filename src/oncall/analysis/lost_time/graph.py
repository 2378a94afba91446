"""What waits for what in one iteration, and how long it takes with other times (replay).

Node `rank * width + position`. A collective is over when its last member has arrived and the
transfer is done; a batch when that is so for each of its sends and receives. Who makes an
asynchronous call goes on at once, and waits for its end at the join. The order is found once; all
iterations of a class and all questions about them are replayed side by side.

Who computes the same at the same time is a tensor group. In Megatron-LM its first rank runs the
data loader (`get_batch_on_this_tp_rank`), in the stages that need samples, and broadcasts what it
has loaded. It comes later than its group by design; whether its loader is slow, the leaders of
other groups show.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from oncall.analysis.lost_time.arrays import NONE, Codes, Flags, Ints, Times, nth_of
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.programs import Programs, matched

_NUMBERS_AT_ONCE = 1 << 19  # of a replay, 4 MB


@dataclass(frozen=True)
class Rounds:
    """The collectives of an iteration (k,): their nodes one after the other, and where each begins;
    `comm`, `op`, `count` of each, and whether all members left a recording (`whole`)."""

    nodes: Ints
    start: Ints
    comm: Ints
    op: Codes
    count: Ints
    whole: Flags

    def __len__(self) -> int:
        return len(self.start)

    @property
    def size(self) -> Ints:
        return np.diff(self.start, append=len(self.nodes))

    @property
    def of(self) -> Ints:
        """The round of each entry of `nodes`."""
        return np.repeat(np.arange(len(self.start)), self.size)


@dataclass(frozen=True)
class Graph:
    """One iteration: `length` (r,) nodes a rank, `width` places a rank; rounds of collectives; and
    transfers, each with the node that sends and the one that receives (t,). `role` (r,) numbers
    ranks of one program; sends or receives of nodes `unmatched` (u,) have no other side here."""

    length: Ints
    width: int
    role: Ints
    rounds: Rounds
    sender: Ints
    receiver: Ints
    unmatched: Ints

    @property
    def ranks(self) -> int:
        return len(self.length)

    @property
    def one_chain(self) -> bool:
        """Whether all that ranks wait in are collectives of all of them: who came last is who
        was late (CCL-D 4.2.2), and no replay says more."""
        return (
            not len(self.sender)
            and not len(self.unmatched)
            and bool(len(self.rounds) and (self.rounds.size == self.ranks).all())
        )

    @property
    def exists(self) -> Flags:
        """Whether a place holds a node (r, width)."""
        return np.asarray(np.arange(self.width) < self.length[:, None])


def graph_of(programs: Programs, firsts: Ints, lengths: Ints) -> Graph:
    """The graph that like segments share, of `lengths` (r,) nodes from the first of the `firsts`
    (s, r) that each rank has."""
    ranks, width = len(programs.ranks), int(lengths.max())
    begin = firsts[np.argmax(firsts != NONE, axis=0), np.arange(ranks)]
    length = np.where(begin == NONE, 0, lengths)
    place = np.repeat(np.arange(ranks), length)
    step = np.arange(len(place)) - np.repeat(np.cumsum(length) - length, length)
    node = begin[place] + step
    flat = place * width + step
    where = np.full(len(programs.rank), NONE)
    where[node] = flat
    signature = np.zeros(ranks * width, dtype=np.uint64)
    signature[flat] = programs.signature[node]
    _, role = np.unique(signature.reshape(ranks, width), axis=0, return_inverse=True)

    rounds = _rounds(programs, node, flat, place)
    sender, receiver = matched(programs, np.where(where == NONE, NONE, 0))
    ends = where[sender], where[receiver]
    sides = where[programs.parts.node]
    sides, parts = np.unique(sides[sides != NONE], return_counts=True)
    unmatched = sides[parts > np.bincount(np.concatenate(ends), minlength=ranks * width)[sides]]
    return Graph(length, width, role.ravel(), rounds, *ends, unmatched)


def _rounds(programs: Programs, node: Ints, flat: Ints, place: Ints) -> Rounds:
    """Collectives by their communicator and how many of it each member called before."""
    mine = ~programs.batch[node]
    node, flat, place = node[mine], flat[mine], place[mine]
    comm = programs.comm[node]
    nth = nth_of(comm * (1 << 24) + place)
    key = comm * (1 << 24) + nth
    order = np.argsort(key, kind="stable")
    _, start = np.unique(key[order], return_index=True)
    first = node[order][start]
    of = comm[order][start]
    whole = np.array([len(line) for line in programs.members])[of] == programs.sizes[of]
    return Rounds(flat[order], start, of, programs.op[first], programs.count[first], whole)


@dataclass(frozen=True)
class Level:
    """Nodes that have arrived once all levels before are done, and what is over with them."""

    rounds: Ints
    members: Ints  # nodes of these rounds, one round after the other
    starts: Ints  # where each round begins among them
    sizes: Ints
    late: Ints  # members whose rank went on at once
    transfers: Ints
    sides: Ints  # the nodes that they end, one after the other
    by_side: Ints  # places in `transfers`: those of the first of these nodes, of the next, ...
    side_starts: Ints  # where each one's begin
    ended: Ints  # nodes
    passed: Ints  # nodes nobody waits at: asynchronous calls, and those without another side
    reached: Ints  # nodes that have arrived after it
    joins: Ints  # which of those also wait for all that their rank left behind


@dataclass(frozen=True)
class Order:
    """The levels of a graph; not `complete` where calls wait for one another in a cycle."""

    graph: Graph
    asynchronous: Flags
    join: Ints
    levels: tuple[Level, ...]
    complete: bool

    def lengths(self, own: Times, rounds: Times, transfers: Times) -> Times:
        """When the last rank is through (q,), some of the replays at a time."""
        each = max(1, _NUMBERS_AT_ONCE // max(1, len(own)))
        some = [slice(begin, begin + each) for begin in range(0, own.shape[1], each)]
        return np.concatenate(
            [self.replay(own[:, q].copy(), rounds[:, q], transfers[:, q])[0] for q in some]
        )

    def replay(self, own: Times, rounds: Times, transfers: Times) -> tuple[Times, Times]:
        """When the last rank is through (q,), and when each node was reached (nodes, q).

        `own` (nodes, q) is the time before each node, `rounds` (k, q) and `transfers` (t, q) take
        so long after the last one arrived; q replays side by side.
        """
        graph = self.graph
        width = graph.width
        arrived, ended = np.zeros(own.shape), np.zeros(own.shape)
        pending = np.zeros((graph.ranks, own.shape[1]))
        begins = np.flatnonzero(graph.length > 0) * width
        arrived[begins] = own[begins]
        for level in self.levels:
            if len(level.rounds):
                last = np.maximum.reduceat(arrived[level.members], level.starts, axis=0)
                over = last + rounds[level.rounds]
                ended[level.members] = np.repeat(over, level.sizes, axis=0)
                if len(level.late):
                    np.maximum.at(pending, level.late // width, ended[level.late])
            if len(level.transfers):
                a, b = graph.sender[level.transfers], graph.receiver[level.transfers]
                over = np.maximum(arrived[a], arrived[b]) + transfers[level.transfers]
                last = over[level.by_side]
                if len(level.sides) < len(last):
                    last = np.maximum.reduceat(last, level.side_starts, axis=0)
                ended[level.sides] = np.maximum(ended[level.sides], last)
            ended[level.passed] = arrived[level.passed]
            following = level.reached
            after = ended[following - 1]
            if len(level.joins):
                left = pending[following[level.joins] // width]
                after[level.joins] = np.maximum(after[level.joins], left)
            arrived[following] = after + own[following]
        final = np.arange(graph.ranks) * width + np.maximum(graph.length - 1, 0)
        return ended[final[graph.length > 0]].max(0), arrived


@dataclass(frozen=True)
class Spent:
    """Segments' time, ns: `own` (s, r, width) before each node, `rounds` (s, k) and `transfers`
    (s, t) once the last one has arrived; `asynchronous` (nodes,); `lead` of the host;
    `backwards` (s,): by how much ranks went on before others that they should have waited for.
    `in_step`: whether hosts call as devices go, so many calls ahead of them."""

    own: Times
    rounds: Times
    transfers: Times
    asynchronous: Flags
    lead: int
    backwards: Times
    in_step: bool = True


@dataclass(frozen=True)
class Account:
    """Segments' time and what it would be, ns: own (s, r, width), rounds (s, k) and transfers
    (s, t)."""

    own: Times
    rounds: Times
    transfers: Times
    baseline_own: Times
    baseline_rounds: Times
    baseline_transfers: Times


def gather(rounds: Rounds, chosen: Ints) -> tuple[Ints, Ints, Ints]:
    """The nodes of the chosen rounds, where each round begins among them, and their sizes."""
    sizes = rounds.size[chosen]
    start = np.cumsum(sizes) - sizes
    within = np.arange(sizes.sum()) - np.repeat(start, sizes)
    return rounds.nodes[np.repeat(rounds.start[chosen], sizes) + within], start, sizes


def ordered(graph: Graph, asynchronous: Flags) -> Order:
    """The levels of the graph, where `asynchronous` (nodes,) calls hold nobody up before the join:
    each rank's first other call after the last of them."""
    width = graph.width
    join = np.full(graph.ranks, NONE)
    for rank in np.flatnonzero(asynchronous.reshape(graph.ranks, width).any(1)):
        mine = asynchronous[rank * width : rank * width + graph.length[rank]]
        rest = np.flatnonzero(~mine[np.flatnonzero(mine)[-1] :])
        if len(rest):
            join[rank] = rank * width + np.flatnonzero(mine)[-1] + rest[0]
    levels = tuple(_levels(graph, asynchronous, join))
    reached = sum(len(level.ended) + len(level.passed) for level in levels)
    return Order(graph, asynchronous, join, levels, reached == int(graph.length.sum()))


def _levels(graph: Graph, asynchronous: Flags, join: Ints) -> Iterator[Level]:
    width, nodes = graph.width, graph.ranks * graph.width
    round_of = np.full(nodes, NONE)
    round_of[graph.rounds.nodes] = graph.rounds.of
    absent = graph.rounds.size.copy()
    pairs = np.stack([graph.sender, graph.receiver]) if len(graph.sender) else np.zeros((2, 0), int)
    ends = np.concatenate([pairs[0], pairs[1]])
    by_node = np.argsort(ends, kind="stable")
    first = np.searchsorted(ends[by_node], np.arange(nodes + 1))
    alone = np.full(pairs.shape[1], 2)
    waits = np.bincount(ends, minlength=nodes)
    late = np.bincount(
        np.flatnonzero(asynchronous & (round_of != NONE)) // width, minlength=graph.ranks
    )
    held: Ints = np.zeros(0, dtype=np.int64)  # joins whose program is through, not their rounds
    arrived = np.flatnonzero(graph.length > 0) * width
    while len(arrived):
        collective = arrived[round_of[arrived] != NONE]
        np.subtract.at(absent, round_of[collective], 1)
        touched = np.unique(round_of[collective])
        over = touched[absent[touched] == 0]
        none = (collective[:0], over, over)
        members, starts, sizes = gather(graph.rounds, over) if len(over) else none
        late_members = members[asynchronous[members]]
        count = first[arrived + 1] - first[arrived]
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        mine = by_node[np.repeat(first[arrived], count) + within] % max(pairs.shape[1], 1)
        np.subtract.at(alone, mine, 1)
        touched = np.unique(mine)
        met = touched[alone[touched] == 0]
        both = np.concatenate([pairs[0][met], pairs[1][met]])
        np.subtract.at(waits, both, 1)
        by_side = np.argsort(both, kind="stable")
        sides, side_starts = np.unique(both[by_side], return_index=True)
        ended = np.concatenate([members[~asynchronous[members]], sides[waits[sides] == 0]])
        free = (round_of[arrived] == NONE) & (first[arrived + 1] == first[arrived])
        passed = arrived[free | (asynchronous[arrived] & (round_of[arrived] != NONE))]
        np.subtract.at(late, late_members // width, 1)
        done = np.concatenate([ended, passed])
        following = done[(done % width) + 1 < graph.length[done // width]] + 1
        following = np.concatenate([following, held])
        waiting = (join[following // width] == following) & (late[following // width] > 0)
        held, arrived = following[waiting], following[~waiting]
        joins = np.flatnonzero(join[arrived // width] == arrived)
        yield Level(
            rounds=over,
            members=members,
            starts=starts,
            sizes=sizes,
            late=late_members,
            transfers=met,
            sides=sides,
            by_side=by_side % max(len(met), 1),
            side_starts=side_starts,
            ended=ended,
            passed=passed,
            reached=arrived,
            joins=joins,
        )


@dataclass(frozen=True)
class Groups:
    """`group` (r,) is the number of each rank's tensor group, NONE without one: the communicator
    that it calls most, if all members do the same. `tight_rounds` (k,) are collectives of one.
    `ops` are names of operations. `broadcasts` as in `leaders.broadcasts_of`."""

    group: Ints
    tight_rounds: Flags
    ops: list[str]
    broadcasts: list[Ints]

    def mates(self, rank: int) -> Ints:
        """The others of its tensor group."""
        mine = self.group[rank]
        if mine == NONE:
            return np.zeros(0, dtype=np.int64)
        others = np.flatnonzero(self.group == mine)
        return np.asarray(others[others != rank])


def groups_of(programs: Programs, graph: Graph, limits: Limits) -> Groups:
    """The tensor groups of a class of segments."""
    rounds = graph.rounds
    exchange = np.array([name.startswith("AllToAll") for name in programs.ops], dtype=np.bool_)
    mine = ~exchange[rounds.op][rounds.of]
    rank, comm = rounds.nodes[mine] // graph.width, rounds.comm[rounds.of[mine]]
    both, calls = np.unique(rank << 32 | comm, return_counts=True)
    pairs = both >> 32, both & 0xFFFFFFFF
    uniform = {}
    for one in np.unique(comm):
        members = programs.members[int(one)]
        uniform[int(one)] = (
            1 < len(members) < graph.ranks and len(set(graph.role[members].tolist())) == 1
        )
    group = np.full(graph.ranks, NONE)
    order = np.lexsort((-pairs[1], -calls, pairs[0])) if len(calls) else np.zeros(0, np.int64)
    for at in order:
        one, used = int(pairs[0][at]), int(pairs[1][at])
        if (
            group[one] == NONE
            and uniform[used]
            and calls[at] >= limits.ordinary * graph.length[one]
        ):
            group[one] = used
    tight = np.zeros(len(rounds), dtype=np.bool_)
    if len(rounds):
        leader = rounds.nodes[rounds.start] // graph.width
        tight = group[leader] == rounds.comm
    broadcasts = list(broadcasts_of(programs, graph))
    return Groups(group, np.asarray(tight), programs.ops, broadcasts)


def leaders_of(programs: Programs) -> Flags:
    """Whether each rank (r,) leads a group; nobody does where only one group has a leader."""
    found = np.zeros(len(programs.ranks), dtype=np.bool_)
    calls = _broadcasts(programs)[programs.op] & ~programs.batch
    for comm in np.unique(programs.comm[calls]):
        members = programs.members[int(comm)]
        if 1 < len(members) < len(found):
            found[members[0]] = True
    return found if found.sum() > 1 else np.zeros_like(found)


def broadcasts_of(programs: Programs, graph: Graph) -> Iterator[Ints]:
    """The nodes in which leaders broadcast to their groups (leaders, broadcasts): those of leaders
    whose calls are the same, together. Another stage loads at another time of its iteration."""
    rounds = graph.rounds
    chosen = _broadcasts(programs)[rounds.op] & (rounds.size > 1) & (rounds.size < graph.ranks)
    first = rounds.nodes[rounds.start[chosen]]
    first = np.sort(first[leaders_of(programs)[first // graph.width]])
    rank, begin, count = np.unique(first // graph.width, return_index=True, return_counts=True)
    for one in np.unique(graph.role[rank]):
        mine = graph.role[rank] == one
        yield first[begin[mine][:, None] + np.arange(count[mine][0])]


def _broadcasts(programs: Programs) -> Flags:
    """Whether each operation of `programs.ops` is one."""
    return np.array([name == "Broadcast" for name in programs.ops], dtype=np.bool_)
