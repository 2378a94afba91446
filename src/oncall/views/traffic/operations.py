"""What is drawn, read from an incident: the operation that a finding speaks of, its epochs, and
what went from whom to whom; for a pane, all of one operation (Pulse 6.2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from oncall.core.diagnosis import Diagnosis, Finding, Picture
from oncall.core.errors import MissingEvidence, UsageError
from oncall.core.nodeset import fold_ranks
from oncall.core.printable import clean
from oncall.evidence.incident import Incident
from oncall.views.traffic.rate_curves import Operation, OperationTraffic, Sender, TrafficMap
from oncall.views.words import roots

NO_TRAFFIC = "no traffic recorded; the verbs hook, the profiler plugin or the DPA record it"
PICTURE: Picture = "traffic"
_RELATIONS = ("rank_traffic", "traffic", "members", "flow_epochs", "flow_ends", "flow_comms")
_CLOCK = """
    clock AS (SELECT DISTINCT ON (node) node, offset_ns FROM clocks ORDER BY node, at_ns DESC)
"""


def has_traffic(incident: Incident) -> bool:
    """Whether any operation's traffic is known."""
    try:
        incident.require(["traffic"])
    except MissingEvidence:
        return False
    incident.provide(_RELATIONS)
    return incident.rows("rank_traffic") > 0


def blamed_ranks(incident: Incident, finding: Finding) -> frozenset[int]:
    """The ranks that a finding blames; all of a node, where it blames that."""
    ranks = {int(one.where["rank"]) for one in finding.blame if one.where.get("rank") is not None}
    nodes = [one.where["node"] for one in finding.blame if one.kind == "node"]
    if not ranks and nodes:
        rows = incident.con.execute(
            "SELECT DISTINCT rank FROM members WHERE list_contains(?, node)", [nodes]
        ).fetchall()
        ranks = {rank for (rank,) in rows}
    return frozenset(ranks)


def reported_operation(incident: Incident, finding: Finding) -> Operation | None:
    """The operation in which a finding shows best: one that is not over, else the longest of those
    that matter, on the communicators that it names, else on all of its ranks'."""
    comms = {int(one.where["comm"], 16) for one in finding.blame if one.where.get("comm")}
    ranks = blamed_ranks(incident, finding)
    if not comms and not ranks:
        return None
    return _operation(incident, comms, ranks, None)


def find_operation(incident: Incident, comm: int, number: int | None) -> Operation:
    """An operation of a communicator by its number; None: the longest. Raises UsageError."""
    found = _operation(incident, {comm}, (), number)
    if found is None:
        what = "traffic" if number is None else f"operation {number} with traffic"
        raise UsageError(f"communicator {comm:#x} has no {what}")
    return found


def _operation(
    incident: Incident, comms: Iterable[int], ranks: Iterable[int], number: int | None
) -> Operation | None:
    rows = incident.con.execute(
        """
        WITH shown AS (
            SELECT comm, kind, turn, any_value(op) AS op, count(*) AS senders,
                bool_or(ended_ns IS NULL AND started_ns IS NOT NULL) AS is_open,
                max(ended_ns) - min(started_ns) AS length_ns, min(started_ns) AS at_ns,
                sum(bytes) AS bytes
            FROM rank_traffic
            WHERE (len($comms) = 0 OR list_contains($comms, comm))
                AND (len($ranks) = 0 OR len($comms) > 0 OR comm IN (
                    SELECT comm FROM members WHERE list_contains($ranks, rank)))
            GROUP BY ALL)
        SELECT s.comm, s.kind, s.turn, s.op, any_value(m.name), any_value(m.role),
            list(DISTINCT m.rank ORDER BY m.rank)
        FROM shown s LEFT JOIN members m USING (comm)
        WHERE $number IS NULL OR turn = $number
        GROUP BY s.comm, s.kind, s.turn, s.op, is_open, length_ns, at_ns, senders, bytes
        -- A barrier is long for its few bytes; what moves a tenth of the most is worth a look.
        ORDER BY is_open DESC, senders > 1 DESC, bytes >= 0.1 * max(bytes) OVER () DESC,
            length_ns DESC NULLS LAST, at_ns, comm
        LIMIT 1
        """,
        {"comms": list(comms), "ranks": list(ranks), "number": number},
    ).fetchall()
    for comm, kind, turn, op, name, role, members in rows:
        known = [rank for rank in members if rank is not None]
        label = f"{name or role or 'ranks'} {fold_ranks(known)}"
        return Operation(comm, kind, turn, clean(op or "operation"), clean(label))
    return None


def operation_traffic(
    incident: Incident, operation: Operation, blamed: frozenset[int] = frozenset()
) -> OperationTraffic:
    """An operation with the epochs of all its members that ever send on its communicator."""
    rows = incident.con.execute(
        """
        WITH mine AS (
            SELECT * FROM rank_traffic WHERE comm = $comm AND kind = $kind AND turn = $turn),
        ever AS (
            SELECT rank, any_value(node) AS node, max(epoch_ns) AS epoch_ns
            FROM rank_traffic WHERE comm = $comm AND kind = $kind GROUP BY rank)
        SELECT e.rank, e.node, started_ns, ended_ns, coalesce(active_ns, 0), coalesce(bytes, 0),
            coalesce(undercount, false), e.epoch_ns
        FROM ever e LEFT JOIN mine m USING (rank) ORDER BY e.rank
        """,
        {"comm": operation.comm, "kind": operation.kind, "turn": operation.turn},
    ).fetchall()
    starts = [row[2] for row in rows if row[2] is not None]
    if not starts:
        raise UsageError(f"no traffic in {operation.op} {operation.turn}")
    epoch_ns = max((row[7] for row in rows if row[7] is not None), default=32_000)
    ends = [row[3] for row in rows if row[3] is not None]
    is_open = any(row[3] is None for row in rows)
    first_ns, last_ns = min(starts), None if is_open else max(ends)
    epochs = _epochs(incident, operation.comm, first_ns, last_ns)
    sent_until = [int(start[-1]) + epoch_ns for start, _ in epochs.values() if len(start)]
    if last_ns is None:
        last_ns = max([first_ns + epoch_ns, *ends, *sent_until])
    recorded = {
        rank
        for (rank,) in incident.con.execute(
            "SELECT DISTINCT e.rank FROM flow_ends e JOIN flow_comms c USING (flow) "
            "WHERE c.comm = ?",
            [operation.comm],
        ).fetchall()
    }
    none = np.zeros(0, dtype=np.int64)
    senders = tuple(
        Sender(rank, clean(node or ""), started, ended, active, sent, lost, rank in recorded,
               *epochs.get(rank, (none, none)))
        for rank, node, started, ended, active, sent, lost, _ in rows
    )  # fmt: skip
    return OperationTraffic(operation, senders, epoch_ns, first_ns, last_ns, blamed)


def _epochs(
    incident: Incident, comm: int, first_ns: int, last_ns: int | None
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Rank -> starts and bytes of its epochs on a communicator, on the console's clock."""
    around_ns = 0 if last_ns is None else max((last_ns - first_ns) // 20, 100_000)
    found = incident.con.execute(
        f"""
        WITH {_CLOCK}, sent AS (
            SELECT e.rank, f.start_ns - coalesce(k.offset_ns, 0) AS start_ns, f.bytes
            FROM flow_epochs f JOIN flow_ends e USING (flow)
            JOIN (SELECT flow, comm FROM flow_comms WHERE comm = $comm) c USING (flow)
            LEFT JOIN clock k ON k.node = e.node WHERE e.rank IS NOT NULL)
        SELECT rank, start_ns, sum(bytes)::BIGINT AS bytes FROM sent
        WHERE start_ns >= $first AND ($last IS NULL OR start_ns <= $last)
        GROUP BY ALL ORDER BY rank, start_ns
        """,
        {
            "comm": comm,
            "first": first_ns - max(around_ns, 100_000),
            "last": None if last_ns is None else last_ns + around_ns,
        },
    ).fetchnumpy()
    rank = np.asarray(found["rank"])
    cuts = np.flatnonzero(np.diff(rank)) + 1
    starts, sent = (np.asarray(found[name], dtype=np.int64) for name in ("start_ns", "bytes"))
    return {
        int(of[0]): (start, size)
        for of, start, size in zip(
            np.split(rank, cuts), np.split(starts, cuts), np.split(sent, cuts), strict=True
        )
        if len(of)
    }


def traffic_map(
    incident: Incident,
    comm: int | None = None,
    operation: Operation | None = None,
    blamed: frozenset[int] = frozenset(),
) -> TrafficMap:
    """Bytes by rank and peer: of one operation, of a communicator, or of the whole job."""
    if operation is not None:
        where, title = "comm = $comm AND kind = $kind AND turn = $turn", operation.title
        of = {"comm": operation.comm, "kind": operation.kind, "turn": operation.turn}
    elif comm is not None:
        where, title, of = "comm = $comm", f"communicator {comm:#x}", {"comm": comm}
    else:
        where, title, of = "true", "the whole job", {}
    # A set of Sends is one call: its rows are found by the first of them and their group.
    rows = incident.con.execute(
        f"""
        WITH calls AS (SELECT job, comm, kind, rank, seq FROM rank_traffic WHERE {where}),
        groups AS (
            SELECT DISTINCT t.job, t.comm, t.kind, t.rank, t.group_id,
                CASE WHEN t.group_id IS NULL THEN t.seq END AS seq
            FROM traffic t JOIN calls USING (job, comm, kind, rank, seq))
        SELECT t.rank, t.peer, sum(t.bytes)::BIGINT FROM traffic t JOIN groups g
            ON (t.job, t.comm, t.kind, t.rank) = (g.job, g.comm, g.kind, g.rank)
            AND t.group_id IS NOT DISTINCT FROM g.group_id AND coalesce(t.seq = g.seq, true)
        GROUP BY t.rank, t.peer ORDER BY t.rank, t.peer
        """,
        of,
    ).fetchall()
    ranks = sorted({rank for row in rows for rank in row[:2] if rank is not None})
    place = {rank: number for number, rank in enumerate(ranks)}
    sent = np.zeros((len(ranks), len(ranks)), dtype=np.int64)
    unplaced = 0
    for rank, peer, size in rows:
        if rank is None or peer is None:
            unplaced += size
        else:
            sent[place[rank], place[peer]] += size
    return TrafficMap(title, tuple((rank,) for rank in ranks), sent, unplaced, blamed)


@dataclass(frozen=True)
class TrafficView:
    """One operation: the epochs of each member, and who sent how much to whom."""

    curves: OperationTraffic
    routes: TrafficMap


def traffic_of(incident: Incident, diagnosis: Diagnosis, comm: int, seq: int | None) -> TrafficView:
    """The operation that begins with number `seq`; None: one that is not over, else the longest.
    Raises UsageError with the reason where nothing of it was measured."""
    if not has_traffic(incident):
        raise UsageError(NO_TRAFFIC)
    operation = find_operation(incident, comm, None if seq is None else _turn(incident, comm, seq))
    blamed = frozenset[int]().union(
        *(blamed_ranks(incident, one) for one in roots(diagnosis) if one.picture == PICTURE)
    )
    return TrafficView(
        operation_traffic(incident, operation, blamed),
        traffic_map(incident, operation=operation, blamed=blamed),
    )


def is_measured(incident: Incident) -> bool:
    """Whether there is anything to ask about; looks at tables alone, so it costs nothing."""
    return not (incident.is_empty("epochs") and incident.is_empty("op_traffic"))


def _turn(incident: Incident, comm: int, seq: int) -> int:
    """A Send's number is that of its rank; its call is the last one that had begun by then."""
    ((turn,),) = incident.con.execute(
        "SELECT coalesce(max(turn) FILTER (seq <= $seq), $seq) FROM rank_traffic "
        "WHERE comm = $comm AND (kind = 'p2p' OR seq = $seq)",
        {"comm": comm, "seq": seq},
    ).fetchall()
    return int(turn)
