"""Inferred edges of the wait-for graph: why a rank waits that is in no recorded call.

Without these edges, a rank that only seems to wait for no other would be named as a cause, beside
the rank that it waits for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from oncall.analysis.common.graph import reaching, sinks
from oncall.analysis.hang.counters import Lags


@dataclass(frozen=True, order=True)
class Place:
    """An operation that a rank is blocked in.

    `ends` names the ranks of a Send or Recv: one if unmatched, both if matched. Matched sides are
    one place whatever number each gave it, so there `number` is 0 and `seq` only for show.
    """

    comm: int
    kind: str
    number: int
    ends: tuple[int, ...] = ()
    seq: int = field(default=0, compare=False)


PAIR = 2  # a Send or Recv whose other half has been called
Node = int | Place  # a rank, or the operation it is blocked in
Edges = dict[Node, list[Node]]


# Ranks that are blocked nowhere, and who has not entered what they called asynchronously, or is
# with them in a transfer that does not end.
LACKED = """
    WITH idle AS (
        FROM in_flight ANTI JOIN blocked_operations USING (job, rank)
        ANTI JOIN halted USING (job, rank))
    SELECT i.job, i.rank, i.comm, i.kind, i.seq, []::INTEGER[] AS ends, m.rank AS lacked
    FROM idle i
    JOIN members m ON m.job = i.job AND m.comm = i.comm AND m.rank <> i.rank
    LEFT JOIN frontier f ON f.job = m.job AND f.comm = m.comm AND f.rank = m.rank
    WHERE i.kind = 'coll' AND coalesce(f.entered_seq < i.seq, true)
    UNION
    SELECT i.job, i.rank, i.comm, i.kind, i.seq,
        CASE o.state WHEN 'matched' THEN list_sort([i.rank, o.peer]) ELSE [i.rank] END, o.peer
    FROM idle i JOIN open_pairs o USING (job, comm, rank, seq, op)
    WHERE i.kind = 'p2p' AND o.state <> 'passed' ORDER BY ALL
"""

# The only rank that left no data; and ranks whose GPU or process failed, as hosts and logs say.
SILENT = """
    SELECT job, any_value(rank) AS rank FROM (
        SELECT DISTINCT job, rank FROM members ANTI JOIN witnesses USING (job, rank))
    GROUP BY job HAVING count(*) = 1
"""
FALLEN = """
    SELECT job, rank FROM reported_faults
    WHERE rank IS NOT NULL AND (fatal OR part = 'process') AND NOT (is_old OR is_outlived)
    UNION
    SELECT job, rank FROM log_causes
    WHERE rank IS NOT NULL AND NOT outlived AND reason NOT IN ('echo', 'warning')
        AND cause IN ('xid', 'ecc', 'gpu_error', 'oom_gpu', 'oom_host', 'error')
"""


def tie_unfinished(
    edges: Edges, lacked: Sequence[tuple[int, Place, int]], fallen: Collection[int]
) -> None:
    """A rank between its calls may wait for an operation that it called asynchronously.

    It is taken to be where the members that it lacks are held up (`lacked`: rank, operation and
    member), if another rank with nothing unfinished holds them up: that cause explains the rank as
    well. So it is of a member that has `fallen`. Else two that are both between their calls are in
    the transfer between them.
    """
    unfinished = {rank for rank, *_ in lacked}
    ends = {(rank, place) for rank, place, _ in lacked if len(place.ends) == PAIR}
    firm = [n for ends in sinks(edges) for n in ends if n not in unfinished]
    explained = reaching(edges, firm)
    for rank, place, member in lacked:
        if member in explained:
            edges.setdefault(rank, []).append(member)
        elif member in fallen:
            edges.setdefault(rank, []).append(place)
            edges.setdefault(place, []).append(member)
        elif (member, place) in ends:
            edges.setdefault(rank, []).append(place)
            edges.setdefault(place, [])


def untie_silent(edges: Edges, silent: set[int]) -> None:
    """Members without data are needed for a cause only where members that are blocked in an earlier
    operation do not lead to one: a rank that others lack there explains both, or a deadlock."""
    mixed = {
        node: [*holders]
        for node, holders in edges.items()
        if isinstance(node, Place) and silent.intersection(holders) and {*holders} - silent
    }
    for place in mixed:
        edges[place] = [rank for rank in mixed[place] if rank not in silent]
    firm = [node for ends in sinks(edges) for node in ends if isinstance(node, int)]
    explained = reaching(edges, firm)
    for place in mixed.keys() - explained:
        edges[place] = [rank for rank in mixed[place] if rank in silent]


# Jobs whose recorder keeps no sends and receives, as that of gloo: a stage of a pipeline seems to
# wait for nobody. And ranks that a recorded operation holds.
WITHOUT_TRANSFERS = """
    SELECT job FROM operations WHERE kind IS NOT NULL
    GROUP BY job HAVING count(*) FILTER (kind = 'p2p') = 0
"""
UNFINISHED = "SELECT DISTINCT job, rank FROM in_flight WHERE rank IS NOT NULL"
# Ranks whose process lived to write a recording, which was damaged since.
UNREADABLE = "SELECT job, rank FROM recordings WHERE rank IS NOT NULL AND problem IS NOT NULL"


def tie_unrecorded(
    edges: Edges,
    unwritten: set[int],
    unfinished: Collection[int],
    fallen: Collection[int],
    *,
    both: bool,
) -> None:
    """A rank that is in no recorded call may wait for one that has `fallen`. Where no transfers are
    recorded (`both`), it may wait for the one process that could not even write a recording; and
    two ranks that are absent at the same number of their communicators may wait for each other: one
    operation shows them all."""
    ends = {n for each in sinks(edges) for n in each if isinstance(n, int)}
    stopped, idle = ends & unwritten, ends - unwritten - {*unfinished}
    awaited = {*fallen}.intersection({*edges}.union(*edges.values()))
    if awaited or (both and len(stopped) == 1):
        for rank in idle - awaited:
            edges.setdefault(rank, []).extend(sorted(awaited or stopped))
    elif both and not stopped and len(ends) > 1 and idle == ends:
        places = [p for p, held in edges.items() if isinstance(p, Place) and ends & {*held}]
        if len({place.seq for place in places}) == 1 and len(places) == len(ends):
            edges[min(places)] = sorted(ends)


# What a rank called before the collective that it is blocked in, and others are blocked in.
EARLIER = """
    SELECT DISTINCT b.job, b.rank, [b.comm, b.seq] AS place, [i.comm, i.seq] AS before
    FROM blocked_operations b
    JOIN in_flight i ON i.job = b.job AND i.rank = b.rank AND i.comm <> b.comm
        AND i.called_ns < b.called_ns
    SEMI JOIN (FROM blocked_operations WHERE kind = 'coll') q
        ON q.job = i.job AND q.comm = i.comm AND q.seq = i.seq
    WHERE b.kind = 'coll' AND i.kind = 'coll' ORDER BY ALL
"""


def tie_earlier(edges: Edges, earlier: Sequence[tuple[Place, int, Place]]) -> None:
    """A collective that all members have called may wait for the device of one of them, which has
    not finished what its host called `earlier` on another communicator. `earlier` has the
    collective, the rank and the earlier operation."""
    ends = {node for component in sinks(edges) for node in component if len(component) == 1}
    for place, rank, before in earlier:
        if place in ends and before in edges:
            edges[place].append(rank)
            edges[rank].append(before)


# Where only counters are known: members of what waits that do not answer. Whoever else lags there
# may well wait for them.
UNANSWERING = """
    SELECT DISTINCT s.job, s.comm, s.seq, m.rank
    FROM blocked_operations s JOIN members m USING (job, comm)
    SEMI JOIN launches l ON l.job = m.job AND l.rank = m.rank
        AND l.state IN ('unresponsive', 'dead')
    ANTI JOIN witnesses w ON w.job = m.job AND w.rank = m.rank
    ANTI JOIN operations o ON o.job = s.job
    WHERE s.kind = 'coll' ORDER BY ALL
"""


def tie_common_lags(edges: Edges, lags: Lags, gone: set[int], *, always: bool) -> set[int]:
    """Where only counters are known: a lag that similar communicators show too is a consequence.

    What its ranks wait for, such as a Recv, is not recorded. So they are taken to wait for the
    processes that are `gone`, else for the ranks furthest behind in the communicators whose lag is
    odd (returned). `always`: even if no lag is odd. If all lag alike, nothing distinguishes them,
    and one operation shows them all.
    """
    ends = {node for component in sinks(edges) for node in component if isinstance(node, int)}
    odd = lags.oddest(ends)
    began = gone & ends or lags.furthest(odd, ends)
    if (odd or always) and began:
        for rank in ends - began:
            edges.setdefault(rank, []).extend(sorted(began))
    elif lags.shape and not odd and len(ends) > 1:
        places = [place for place, holders in edges.items() if ends.intersection(holders)]
        for place in sorted(one for one in places if isinstance(one, Place))[:1]:
            edges[place] = sorted(ends)
    return odd


# The communicator of the ranks with which each rank of a pipeline calls before each transfer, and
# more often than that: its tensor group. Replicas call once an iteration.
TEAMS = """
    WITH calls AS (
        SELECT job, rank, comm, kind, lag(comm) OVER before AS comm_before,
            lag(kind) OVER before AS kind_before
        FROM operations SEMI JOIN (FROM holders WHERE kind = 'p2p' AND how = 'absent') h
            USING (job, rank)
        WINDOW before AS (PARTITION BY job, rank ORDER BY called_ns, seq)),
    preceding AS (
        SELECT job, rank, mode(comm_before) FILTER (kind_before = 'coll') AS comm,
            count(*) AS transfers
        FROM calls WHERE kind = 'p2p' GROUP BY ALL)
    SELECT job, rank, comm FROM calls JOIN preceding USING (job, rank, comm)
    GROUP BY job, rank, comm, transfers HAVING count(*) > transfers
"""


def tie_groups(edges: Edges) -> None:
    """A matched Send or Recv of a group call completes only when its whole group can."""
    matched = {node for node, holders in edges.items() if isinstance(node, Place) and not holders}
    for rank, places in list(edges.items()):
        if isinstance(rank, int) and len(places) > 1:
            for place in matched.intersection(places):
                edges[place].append(rank)
