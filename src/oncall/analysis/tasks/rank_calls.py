"""The calls of each rank in order, each with its purpose.

The purpose of a communicator follows from its name or role, else from how the rank uses it (Pulse
5.2, seen from one rank): calls before nearly every Send belong to the computation of a task, large
and rare ones to gradients and parameters, all others to the end of an iteration.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import duckdb
import numpy as np

from oncall.analysis.common.group_names import EXPERT_DP, role_named
from oncall.analysis.common.ordering import in_order, rank_pieces
from oncall.analysis.tasks import thresholds
from oncall.analysis.tasks.call_patterns import group_order, likenesses
from oncall.analysis.tasks.schedules import Array
from oncall.analysis.traffic import parallelism

SEND, RECV, TASK, REPLICAS, OUTSIDE = range(5)
UNKNOWN = -1

# By the roles of `group_names`; all others lie outside.
_USES = {"pp": SEND, "tp": TASK, "ep": TASK, "cp": TASK, "dp": REPLICAS, EXPERT_DP: REPLICAS}

# Rows of an operation written while in flight and again when it ended count once.
_CALLS = """
    WITH seats AS (
        SELECT DISTINCT ON (job, comm, comm_rank) job, comm, comm_rank, rank FROM members
        ORDER BY ALL),
    pairs AS (
        SELECT job, comm, min(rank) + max(rank) AS both FROM members
        GROUP BY job, comm HAVING count(DISTINCT rank) = 2 AND coalesce(max(size), 2) = 2)
    SELECT * EXCLUDE known_peer FROM (
    SELECT o.rank, o.comm, o.kind = 'p2p' AS p2p, o.op = 'Send' AS send,
        hash(o.comm, o.op, o.dtype, coalesce(o.bytes, o.count)) AS word,
        hash(o.op, o.dtype, coalesce(o.bytes, o.count)) AS what,
        coalesce(o.bytes, o.count * $element_bytes, 0)::BIGINT AS size_bytes,
        o.op IN ('ReduceScatter', 'AllReduce', 'Reduce') AS reduces, o.op = 'AllReduce' AS sums,
        coalesce(o.seq, -1) AS seq, coalesce(o.group_id, -1) AS group_id,
        coalesce(o.peer, s.rank, two.both - o.rank) AS known_peer,
        coalesce(known_peer, o.rank + o.comm_peer - own.comm_rank, -1)::INTEGER AS peer,
        known_peer IS NOT NULL AS peer_recorded, o.called_ns, o.entered_ns,
        CASE WHEN o.on_device OR o.duration_ns IS NOT NULL
            THEN coalesce(o.ended_ns, o.entered_ns + o.duration_ns, -1) ELSE -1 END AS ended_ns
    FROM operations o
    LEFT JOIN seats s ON s.job = o.job AND s.comm = o.comm AND s.comm_rank = o.comm_peer
        AND o.peer IS NULL AND o.comm_peer IS NOT NULL
    LEFT JOIN members own ON own.job = o.job AND own.comm = o.comm AND own.rank = o.rank
        AND o.peer IS NULL AND o.comm_peer IS NOT NULL
    LEFT JOIN pairs two ON two.job = o.job AND two.comm = o.comm AND o.kind = 'p2p'
    WHERE o.job = $job AND o.rank BETWEEN $first AND $last AND o.called_ns IS NOT NULL
        AND (o.done IS NOT false OR o.ops_row IN (SELECT ops_row FROM in_flight)))
"""
# What ranks that are alike share, and what each has of its own, as _CALLS names it.
_SHARED = ("word", "size_bytes", "reduces", "sums", "seq", "group_id", "peer_recorded")
_OWN = ("place", "peer", "called_ns", "entered_ns", "ended_ns")


@dataclass(frozen=True)
class RankCalls:
    """One rank's calls; arrays (n,) in the order of the calls, times in ns, -1 unknown.

    `use`: SEND and RECV of the pipeline, TASK (within forwards and backwards), REPLICAS, OUTSIDE.
    `peer` is the rank of the other side where `peer_recorded`; else it lies on this one's side.
    `word` is equal for equal calls; `lost`: calls are missing just before this one.

    Ranks that are `alike` by number, replicas as a rule, make the same calls in the same order,
    among members at the same distance: of these all but times, `comm` and `peer` is the same, and
    what follows from that alone is worked out once.
    """

    job: str
    rank: int
    use: Array
    comm: Array  # numbers; names: `comms`
    word: Array
    size_bytes: Array
    reduces: Array
    sums: Array  # an AllReduce
    seq: Array
    group: Array
    peer: Array
    peer_recorded: Array
    called_ns: Array
    entered_ns: Array
    ended_ns: Array
    lost: Array
    partners: Array  # positions of one Send or Recv of the pipeline of each communicator and peer
    comms: tuple[int | None, ...]
    alike: int = 0

    def __len__(self) -> int:
        return len(self.use)

    @cached_property
    def knows_ends(self) -> bool:
        """The recorder records when operations ended."""
        return bool((self.ended_ns >= 0).any())


def read_calls(con: duckdb.DuckDBPyConnection) -> Iterator[RankCalls]:
    """The calls of every rank of which all were kept; from relations operations, members and
    in_flight."""
    comms: dict[str, list[int | None]] = {}
    for job, comm in con.execute(
        "SELECT DISTINCT job, comm FROM operations ORDER BY job, comm"
    ).fetchall():
        comms.setdefault(job, []).append(comm)
    thinned = set(
        con.execute(
            "SELECT DISTINCT job, rank FROM operations WHERE stands_for IS NOT NULL"
        ).fetchall()
    )
    names = _names(con)
    kinds: dict[Hashable, _Kind] = {}
    for job, mine in comms.items():
        named = {
            place: names.get((job, comm)) for place, comm in enumerate(mine) if comm is not None
        }
        every = tuple(mine)  # one for all ranks: a job may have thousands
        for first, last in rank_pieces(con, job):
            columns = _columns(con, job, (first, last), mine)
            begins = np.flatnonzero(np.diff(columns["rank"], prepend=-1))
            bounds = pairwise([*begins.tolist(), len(columns["rank"])])
            alike = likenesses(columns, begins, named)
            for (begin, end), likeness in zip(bounds, alike, strict=True):
                part = {name: values[begin:end] for name, values in columns.items()}
                if (job, int(part["rank"][0])) in thinned:
                    continue
                kind = kinds.get((job, likeness))
                if kind is None:
                    kind = _kind(part, named, len(kinds))
                    kinds[job, likeness] = kind
                if kind.by_time:
                    kind = _kind(part, named, len(kinds))
                    kind = kinds.setdefault((job, likeness, kind.use.tobytes()), kind)
                yield _of_rank(job, part, every, kind)


def _columns(
    con: duckdb.DuckDBPyConnection,
    job: str,
    ranks: tuple[int, int],
    comms: list[int | None],
) -> dict[str, Array]:
    """The calls of some ranks, from the first to the last, each rank's in its order; `place`: the
    place of a call's communicator among `comms`, those of the job in order."""
    first, last = ranks
    wanted = {"job": job, "first": first, "last": last, "element_bytes": thresholds.ELEMENT_BYTES}
    found = con.execute(_CALLS, wanted).fetchnumpy()
    named = np.array([comm for comm in comms if comm is not None], dtype=np.uint64)
    columns = {name: np.ma.getdata(values) for name, values in found.items()}
    columns["place"] = np.searchsorted(named, columns.pop("comm"))
    columns["place"][np.ma.getmaskarray(found["comm"])] = len(named)  # one not known comes last
    order = in_order(*(columns[name] for name in ("rank", "called_ns", "seq", "place")))
    if order is not None:
        columns = {name: values[order] for name, values in columns.items()}
    order = group_order(columns, thresholds.GOES_ON_NS)
    for name in columns:
        columns[name] = columns[name][order]
    return columns


def _names(con: duckdb.DuckDBPyConnection) -> dict[tuple[str, int], int]:
    """What communicators are for by their name or role, where that shows it."""
    named = f"any_value({role_named()})"
    query = f"SELECT job, comm, {named} FROM members GROUP BY ALL HAVING {named} IS NOT NULL"
    found = con.execute(query).fetchall()
    return {(job, comm): _USES.get(role, OUTSIDE) for job, comm, role in found}


@dataclass(frozen=True)
class _Kind:
    """What ranks that are alike share: of which calls they keep which are `kept`, and of those what
    is in RankCalls. `by_time`: pauses show what the calls are for, which others may differ in."""

    number: int
    kept: Array
    use: Array
    lost: Array
    by_time: bool
    partners: Array
    shared: Mapping[str, Array]


def _kind(
    part: dict[str, Array],
    named: dict[int, int | None],
    number: int,
) -> _Kind:
    use, by_time = _uses(part, named)
    kept = ~_repeated(part, use)
    size_bytes = part["size_bytes"]
    announced = (use <= RECV) & (size_bytes < thresholds.SHAPE_BYTES) & (size_bytes > 0) & kept
    if announced.any() and not announced[(use <= RECV) & kept].all():
        kept &= ~announced
    lanes = (part["place"] * 2 + part["p2p"])[kept]
    lost = lost_before(lanes, part["seq"][kept])
    shared = {name: part[name][kept] for name in _SHARED}
    partners = _partners(part, np.flatnonzero((use <= RECV) & kept))
    partners = np.searchsorted(np.flatnonzero(kept), partners)
    return _Kind(number, kept, use[kept], lost, by_time, partners, shared)


def _partners(part: dict[str, Array], at: Array) -> Array:
    """Of the calls `at`, the first in each communicator with each peer, recorded or not (k,)."""
    names = ("place", "peer", "peer_recorded")
    with_whom = np.stack([part[name][at].astype(np.int64) for name in names])
    _, first = np.unique(with_whom, axis=1, return_index=True)
    return at[np.sort(first)]


def _of_rank(
    job: str,
    part: dict[str, Array],
    comms: tuple[int | None, ...],
    kind: _Kind,
) -> RankCalls:
    own, shared = {name: part[name][kind.kept] for name in _OWN}, dict(kind.shared)
    return RankCalls(
        job=job,
        rank=int(part["rank"][0]),
        use=kind.use,
        comm=own.pop("place"),
        group=shared.pop("group_id"),
        peer=own.pop("peer").astype(np.int64),
        lost=kind.lost,
        partners=kind.partners,
        comms=comms,
        alike=kind.number,
        **own,
        **shared,
    )


def _repeated(part: dict[str, Array], use: Array) -> Array:
    """Sends and Recvs within tasks that belong to the group call of one before them (n,): to each
    member and from each, they are one exchange."""
    together = np.zeros(len(use), dtype=np.bool_)
    together[1:] = (np.diff(part["group_id"]) == 0) & (np.diff(part["place"]) == 0)
    exchanged = part["p2p"].astype(np.bool_) & (use == TASK) & (part["group_id"] >= 0)
    return np.asarray(together & exchanged)


def lost_before(lane: Array, seq: Array) -> Array:
    """The first calls after a recorder lost some (n,), as numbers jump; of calls in order.

    A recorder that loses calls loses those of all communicators; each shows it at its next call.
    """
    order = np.lexsort((seq, lane))
    jumps = (np.diff(lane[order]) == 0) & (np.diff(seq[order]) > 1)
    # Those of one group call are called in any order: the last before, and the first behind.
    ordered = np.cumsum(np.diff(lane[order], prepend=lane[order[:1]]) != 0) * len(lane) + order
    before = (np.maximum.accumulate(ordered) % len(lane))[:-1][jumps]
    behind = (np.minimum.accumulate(ordered[::-1])[::-1] % len(lane))[1:][jumps]
    first = np.argsort(behind, kind="stable")
    lost = np.zeros(len(lane), dtype=np.bool_)
    last = -1
    for begin, end in zip(before[first].tolist(), behind[first].tolist(), strict=True):
        if last <= begin:
            last = end
            lost[end] = True
    return lost


# ------------------------------------------------------------------ what for


def _uses(part: dict[str, Array], named: dict[int, int | None]) -> tuple[Array, bool]:
    """What each call is for (n,), and whether that follows from when they were called, too."""
    pipeline = _pipeline(part, named)
    use = np.full(len(pipeline), OUTSIDE, dtype=np.int8)
    use[pipeline] = np.where(part["send"][pipeline], SEND, RECV)
    unnamed: list[_Use] = []
    for place in np.unique(part["place"][~pipeline]).tolist():
        mine = ~pipeline & (part["place"] == place)
        named_use = named.get(place)
        if named_use is not None:
            use[mine] = named_use if named_use != SEND else OUTSIDE
        elif part["p2p"][mine].any():
            use[mine] = TASK  # keys around a ring, tokens to experts
        else:
            unnamed.append(_use(part, mine, pipeline))
    is_named = bool((use == TASK).any())
    for one in unnamed:
        use[one.mine] = _inferred(one, unnamed, is_named)
    return use, bool(unnamed)


def _pipeline(part: dict[str, Array], named: dict[int, int | None]) -> Array:
    """Which calls are the pipeline's Sends and Recvs (n,)."""
    p2p = part["p2p"].astype(np.bool_)
    sending = [place for place, use in named.items() if use == SEND]
    if sending:
        return p2p & np.isin(part["place"], sending)
    for place in np.unique(part["place"][p2p]).tolist():
        mine = np.flatnonzero(p2p & (part["place"] == place))
        if named.get(place) is not None or not _is_chain(part, mine):
            p2p[mine] = False
    return p2p


def _is_chain(part: dict[str, Array], mine: Array) -> bool:
    """Sends and Recvs with at most two others, and some that go one way only."""
    peers = np.unique(part["peer"][mine])
    known = bool((peers != UNKNOWN).all())
    return not (known and len(peers) > 2) and not _goes_both_ways(part, mine)


def _goes_both_ways(part: dict[str, Array], mine: Array) -> bool:
    """Every group call has as many Sends as Recvs, but for those at whose ends calls were lost."""
    if not (part["group_id"][mine] >= 0).all():
        return False
    _, group = np.unique(part["group_id"][mine], return_inverse=True)
    uneven = np.bincount(group, np.where(part["send"][mine], 1, -1)) != 0
    losses = int((np.diff(np.unique(part["seq"][mine])) > 1).sum())
    return bool(uneven.sum() <= 2 * (losses + 2) and uneven.mean() < thresholds.CUT_GROUPS)


@dataclass(frozen=True)
class _Use:
    """How the rank uses a communicator of collectives."""

    mine: Array  # (n,) bool
    calls: int
    largest_bytes: int
    before_sends: float | None  # share of Sends that it is called before
    long_pauses: float  # share of its time in pauses far longer than its median one


def _use(part: dict[str, Array], mine: Array, pipeline: Array) -> _Use:
    at = part["called_ns"][mine]
    pauses = np.diff(at)
    median = np.median(pauses) if len(pauses) else 0
    long = pauses[pauses > parallelism.PAUSE_TIMES * median].sum() / max(1, pauses.sum())
    events = np.flatnonzero(pipeline)
    sends = part["send"][events].astype(np.bool_)
    before_sends = None
    if sends.any():
        upto = np.concatenate([[0], np.cumsum(mine)])
        group, at_ns = part["group_id"][events], part["called_ns"][events]
        first = exchange_starts(group, at_ns, events, thresholds.GOES_ON_NS)
        calls = np.where(first, upto[events] - upto[np.concatenate([[0], events[:-1]])], 0)
        sends_of = np.bincount(np.cumsum(first) - 1, sends)
        before_sends = float(np.average(calls[first] > 0, weights=sends_of))
    largest = int(part["size_bytes"][mine].max(initial=0))
    return _Use(mine, len(at), largest, before_sends, float(long))


def exchange_starts(group: Array, at_ns: Array, position: Array, goes_on_ns: int) -> Array:
    """Which Sends and Recvs (n,) begin an exchange: what one group call makes, or the host calls
    one directly after the other, has the same calls before it.

    `group`: their group calls, UNKNOWN if not known; `position`: among all calls of the rank.
    """
    together = (np.diff(group) == 0) & (group[1:] != UNKNOWN)
    together |= (np.diff(position) == 1) & (np.diff(at_ns) < goes_on_ns)
    return np.concatenate([[True], ~together])


def _inferred(one: _Use, others: list[_Use], is_named: bool) -> int:
    """What a communicator of collectives without a name that says it is for."""
    if one.before_sends is not None and one.before_sends > parallelism.INTERLEAVED:
        return TASK
    if one.largest_bytes < parallelism.SMALL_BYTES:
        return OUTSIDE
    if one.before_sends is not None or is_named:
        return REPLICAS
    large = [other for other in others if other.largest_bytes >= parallelism.SMALL_BYTES]
    if any(other.calls > parallelism.MORE * one.calls for other in large):
        return REPLICAS
    if any(parallelism.MORE * other.calls < one.calls for other in large):
        return TASK
    return REPLICAS if one.long_pauses > parallelism.LONG_PAUSES else TASK
