"""Operations found in traffic: what each rank sent to each peer in each operation (Pulse 5.2).

Epochs of all queue pairs between two ranks in one communicator are one lane; Algorithm 1 cuts it
into its operations. Where the device's start of an operation is known, nothing sent before belongs
to it, so that neither retransmissions nor lost epochs add up to an error.

A node does this when it seals (`op_traffic`); what was not done there is done here, from epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from oncall.analysis.traffic.segmentation import (
    NONE,
    Segments,
    Thresholds,
    Traffic,
    carries_data,
    epochs_of,
    measure,
    segment,
)
from oncall.evidence import params_of, relation
from oncall.evidence.schema import BY_NAME

Ints = NDArray[np.int64]
Truths = NDArray[np.bool_]

# Sources that count what was posted, without headers or what was sent again.
_EXACT = ("wr", "proxy")

OP_TRAFFIC_COLUMNS = [one.name for one in BY_NAME["op_traffic"].columns]


_EXPECTED = """
    SELECT hash(job, comm, rank, peer_side) AS lane, job, comm, kind, seq, rank, peer, op, group_id,
        algo, expected_bytes, CASE kind WHEN 'coll' THEN $rounding ELSE 0 END AS rounding_bytes,
        coalesce(started_ns, -1) AS device_ns, called_ns,
        coalesce(ended_ns, -1) AS done_ns, coalesce(done, false) AS done,
        dense_rank() OVER (ORDER BY job, comm, rank, group_id,
            CASE WHEN group_id IS NULL THEN kind END, CASE WHEN group_id IS NULL THEN seq END)
            AS round, node
    FROM expected_traffic
    LEFT JOIN (SELECT DISTINCT ON (job, rank) job, rank, node FROM members ORDER BY ALL)
        USING (job, rank)
    ANTI JOIN (SELECT DISTINCT job, comm, rank FROM op_traffic)
        USING (job, comm, rank)
    WHERE called_ns IS NOT NULL ORDER BY lane, called_ns, seq
"""
# Queue pairs of a receiver only notify the sender of free buffers: next to nothing beside its data.
_CARRIERS = """
    carriers AS (
        SELECT *, hash(e.job, c.comm, e.rank, e.peer_side) AS lane
        FROM flow_ends e JOIN (SELECT flow, comm FROM flow_comms WHERE comm IS NOT NULL) c
            USING (flow)
        QUALIFY bytes >= $crumbs * max(bytes) OVER (PARTITION BY lane))
"""
_LANES = f"""
    WITH {_CARRIERS}
    SELECT lane, any_value(node) AS node, any_value(source) AS source,
        max(max(epoch_ns)) OVER () AS epoch_ns, min(nic) AS nic,
        arg_min(qpn, concat_ws(' ', nic, qpn)) AS qpn
    FROM carriers GROUP BY lane ORDER BY lane
"""
_EPOCHS = f"""
    WITH {_CARRIERS}
    SELECT lane, start_ns // $epoch_ns AS slot, sum(e.bytes)::BIGINT AS bytes,
        bool_or(undercount) AS undercount
    FROM flow_epochs e JOIN (SELECT flow, lane FROM carriers) USING (flow)
    GROUP BY lane, slot ORDER BY lane, slot
"""
_COPIED = ("job", "comm", "seq", "kind", "rank", "peer", "op", "group_id", "algo", "expected_bytes")


@relation(
    "segmented_traffic",
    reads=["epochs", "expected_traffic"],
    optional=["flow_epochs", "flow_ends", "flow_comms", "op_traffic", "members"],
    empty_without=["epochs"],
    columns=OP_TRAFFIC_COLUMNS,
    source="Pulse 5.2, Algorithm 1",
    at="node",
    params={
        **params_of(Thresholds),
        "rounding": "expected_traffic.rounding",
        "crumbs": "edge_shares.crumbs",
    },
)
def segmented_traffic(
    con: duckdb.DuckDBPyConnection, *, rounding: int, crumbs: float, **params: Any
) -> Mapping[str, Any]:
    """Epochs cut into operations, of all ranks and communicators that `op_traffic` does not know.
    What a collector stores in `op_traffic` when it seals."""
    expected = con.execute(_EXPECTED, {"rounding": rounding}).fetchnumpy()
    lanes = con.execute(_LANES, {"crumbs": crumbs}).fetchnumpy()
    if not len(expected["lane"]) or not len(lanes["lane"]):
        return {name: [] for name in OP_TRAFFIC_COLUMNS}
    epoch_ns = int(lanes["epoch_ns"][0])
    found = con.execute(_EPOCHS, {"epoch_ns": epoch_ns, "crumbs": crumbs}).fetchnumpy()
    known = np.unique(np.concatenate([expected["lane"], lanes["lane"]]))
    operations = Operations(
        lane=np.searchsorted(known, expected["lane"]),
        **{
            name: np.asarray(expected[name])
            for name in Operations.__annotations__
            if name != "lane"
        },
    )
    exact = np.zeros(len(known), dtype=bool)
    exact[np.searchsorted(known, lanes["lane"])] = np.isin(lanes["source"].astype(str), _EXACT)
    epochs = Epochs(
        lane=np.searchsorted(known, found["lane"]),
        start_ns=found["slot"] * epoch_ns,
        bytes=found["bytes"],
        undercount=found["undercount"],
        epoch_ns=epoch_ns,
        exact=exact,
    )
    kept, columns = cut(operations, epochs, Thresholds(**params))
    place = np.searchsorted(lanes["lane"], expected["lane"][kept])
    place = np.minimum(place, len(lanes["lane"]) - 1)
    unseen = lanes["lane"][place] != expected["lane"][kept]
    of_lane = {
        name: np.ma.MaskedArray(lanes[name][place], mask=unseen | _null(lanes[name])[place])
        for name in ("source", "nic", "qpn")
    }
    node = np.where(unseen, expected["node"][kept], lanes["node"][place])
    return {
        **{name: expected[name][kept] for name in _COPIED},
        **columns,
        **of_lane,
        "node": node,
        "epoch_ns": epoch_ns,
    }


def _null(values: NDArray[Any]) -> Truths:
    """Where a column of strings or numbers is NULL (n,)."""
    if values.dtype == object:
        return np.array([value is None for value in values.tolist()], dtype=bool)
    return np.ma.getmaskarray(values)


@dataclass(frozen=True)
class Operations:
    """What is to be found: arrays (m,), by lane, then in the order of the calls. `round` numbers
    the operations, or group calls, whose lanes belong together; -1 is an unknown instant. Volumes
    may fall short of what is expected by `rounding_bytes`."""

    lane: Ints
    round: Ints
    expected_bytes: Ints
    rounding_bytes: Ints
    device_ns: Ints
    called_ns: Ints
    done_ns: Ints
    done: Truths


@dataclass(frozen=True)
class Epochs:
    """What was sent: arrays (n,), by lane, then by time. Of each lane (l,), whether its bytes are
    those of operations and nothing more."""

    lane: Ints
    start_ns: Ints
    bytes: Ints
    undercount: Truths
    epoch_ns: int
    exact: Truths


def cut(
    operations: Operations, epochs: Epochs, thresholds: Thresholds
) -> tuple[Ints, dict[str, Any]]:
    """The operations (k,) of which it is known what they sent, and columns (k,) of `op_traffic`.

    Where nothing was sent, that is known only of what is last in its lane and not done: epochs
    are kept for some time only, and what was before is not measured.
    """
    lossy = np.bincount(epochs.lane, epochs.undercount, int(operations.lane.max()) + 1) > 0
    pieces = _pieces(operations, epochs, lossy[operations.lane], thresholds.gap_ns)
    inside = np.flatnonzero(pieces.of_epoch >= 0)
    traffic = Traffic(
        pieces.of_epoch[inside], epochs.start_ns[inside], epochs.bytes[inside], epochs.epoch_ns
    )
    whole = operations.expected_bytes
    known = np.where(lossy[operations.lane], thresholds.undercounted, 1.0) * whole
    enough = np.ceil(known).astype(np.int64) - operations.rounding_bytes
    share = np.where(epochs.exact[operations.lane], 0.0, thresholds.next_share)
    segments = segment(
        traffic, pieces.of_operation, whole, thresholds.gap_ns, share, enough_bytes=enough
    )
    measured = measure(traffic, segments, thresholds.data_part)

    there = segments.first >= 0
    followed = _followed(operations.lane, there)
    silent = ~there & ~operations.done & ~followed
    silent &= operations.called_ns >= epochs.start_ns.min()
    kept = np.flatnonzero(there | silent)
    over = segments.complete | operations.done | followed
    lost = np.zeros(len(there), dtype=bool)
    of, epoch = epochs_of(segments)
    np.logical_or.at(lost, of, epochs.undercount[inside][epoch])
    columns = {
        "started_ns": np.ma.MaskedArray(measured.start_ns, mask=~there)[kept],
        "ended_ns": np.ma.MaskedArray(measured.end_ns, mask=~(there & over))[kept],
        "active_ns": measured.active_ns[kept],
        "rank_active_ns": _rank_active_ns(
            operations.round, traffic, segments, thresholds.data_part
        )[kept],
        "bytes": measured.bytes[kept],
        "undercount": (lost | (lossy[operations.lane] & ~there))[kept],
    }
    return kept, columns


@dataclass(frozen=True)
class _Pieces:
    """Lanes cut where the device began an operation: piece of each operation (m,), and of each
    epoch (n,), NONE for what was sent before the first or after the last ended."""

    of_operation: Ints
    of_epoch: Ints


def _pieces(operations: Operations, epochs: Epochs, lossy: Truths, gap_ns: int) -> _Pieces:
    """Where volumes cannot be trusted (`lossy`, (m,)) and the device's start is not known, a call
    during a pause opens a piece too: else what was lost would be made up from the next one."""
    origin = int(epochs.start_ns.min())
    until = int(epochs.start_ns.max())
    lane_slots = (until - origin) // epochs.epoch_ns + 4

    def slot(at_ns: Ints) -> Ints:
        slots: Ints = (np.clip(at_ns, origin, until) - origin) // epochs.epoch_ns + 1
        return slots

    place = epochs.lane * lane_slots + slot(epochs.start_ns)
    called = operations.lane * lane_slots + slot(operations.called_ns)
    quiet = lossy & (operations.device_ns < 0)
    quiet &= _in_pause(called, place, gap_ns // epochs.epoch_ns)
    # Nothing of a lane's first operation was sent before it was called.
    is_first = np.diff(operations.lane, prepend=-1) != 0
    quiet |= is_first & (operations.device_ns < 0)
    at_ns = np.where(quiet, operations.called_ns, operations.device_ns)
    # An epoch may have begun just before the operation that it carries.
    begin = operations.lane * lane_slots + np.where(at_ns >= 0, slot(at_ns) - 1, 0)
    so_far = np.maximum.accumulate(begin)
    opens = np.diff(so_far, prepend=-1) > 0
    sent = np.concatenate([[0], np.cumsum(epochs.bytes)])  # before each epoch, over all lanes
    first = np.searchsorted(place, so_far)
    at = np.flatnonzero(opens)
    of_operation = np.cumsum(opens) - 1
    last = np.append(at[1:], len(opens)) - 1
    ends = np.where(operations.done_ns >= 0, slot(operations.done_ns + gap_ns), lane_slots)
    piece = np.searchsorted(so_far[at], place, side="right") - 1
    there = (piece >= 0) & (operations.lane[last][piece] == epochs.lane)
    # After the end of its kernel there comes only what was left in buffers.
    unfinished = sent[:-1] - sent[first[at]][piece] < _volumes(operations, at)[piece]
    unfinished &= ~lossy[last][piece]
    there &= unfinished | (slot(epochs.start_ns) <= ends[last][piece])
    return _Pieces(of_operation, np.where(there, piece, NONE))


def _volumes(operations: Operations, at: Ints) -> Ints:
    """What is to be sent in the pieces that begin `at` (p,) operations."""
    volumes: Ints = np.add.reduceat(operations.expected_bytes, at)
    return volumes


def _in_pause(moment: Ints, epoch: Ints, gap: int) -> Truths:
    """Whether the epochs (n,) around each moment (m,) lie a pause apart; both ordered."""
    after = np.searchsorted(epoch, moment)
    around = np.concatenate([[-gap], epoch, [epoch[-1] + gap]])
    paused: Truths = around[after + 1] - around[after] >= gap
    return paused


def _followed(lane: Ints, there: Truths) -> Truths:
    """Whether a later operation of the same lane sent something (m,)."""
    index = np.where(there, np.arange(len(there)), -1)
    last = np.full(int(lane.max()) + 1, -1)
    np.maximum.at(last, lane, index)
    followed: Truths = last[lane] > np.arange(len(there))
    return followed


def _rank_active_ns(round_: Ints, traffic: Traffic, segments: Segments, data_part: float) -> Ints:
    """Time with data to any peer of the round (m,): "epochs during which at least one P2P operator
    is actively transmitting" (Pulse 6.2)."""
    operation, epoch = epochs_of(segments)
    data = carries_data(traffic, segments, data_part)[epoch]
    slot = traffic.start_ns[epoch[data]] // traffic.epoch_ns
    slot = slot - (slot.min() if len(slot) else 0)
    span = int(slot.max()) + 1 if len(slot) else 1
    distinct = np.unique(round_[operation[data]] * span + slot)
    counts = np.bincount(distinct // span, minlength=int(round_.max()) + 1)
    active: Ints = counts[round_] * traffic.epoch_ns
    return active


@relation(
    "traffic",
    reads=["op_traffic|epochs"],
    empty_without=["op_traffic|epochs"],
    columns=[
        *OP_TRAFFIC_COLUMNS,
        ("complete", "BOOLEAN", "", "its volume was sent; NULL: events were lost"),
    ],
    source="Pulse 5, 6.2",
    params={"rounding": "expected_traffic.rounding"},
)
def traffic() -> str:
    """What each rank sent to each peer in each operation: as its node found it, or found here. Of
    what a node reported while it was under way the last counts; peers that it does not know are
    known by their queue pairs."""
    names = ", ".join(OP_TRAFFIC_COLUMNS)
    return f"""
        WITH drawn_pairs AS (
            SELECT {names} FROM op_traffic
            QUALIFY row_number() OVER (
                PARTITION BY job, comm, kind, seq, rank, op, coalesce(peer, qpn), nic
                ORDER BY ended_ns IS NULL, bytes DESC) = 1
            UNION ALL BY NAME SELECT {names} FROM segmented_traffic),
        peers AS (SELECT node, nic, qpn, any_value(peer) AS pair_peer FROM queue_pairs
                  WHERE peer IS NOT NULL GROUP BY ALL HAVING count(DISTINCT peer) = 1)
        SELECT t.* REPLACE (coalesce(peer, pair_peer) AS peer),
            CASE WHEN bytes >= expected_bytes
                - CASE kind WHEN 'coll' THEN $rounding ELSE 0 END THEN true
                 WHEN NOT coalesce(undercount, false) THEN false END AS complete
        FROM drawn_pairs t LEFT JOIN peers USING (node, nic, qpn)
    """
