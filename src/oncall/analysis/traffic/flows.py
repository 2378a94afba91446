"""Flows: the epochs of each queue pair, or of each channel of the proxy, with both ends named.

A flow belongs to one communicator, since NCCL opens queue pairs of its own for each. If no record
names the communicator, it is the one whose operations were in flight while the flow sent (Pulse 5).

Which rank's traffic a queue pair carries, and to which rank: both of its sides matched (Pulse
5.1).

A side knows its own number, the number of its peer and the peer's GID, but not its own GID. Two
sides belong together if each names the other. Numbers are counted from low values on every host, so
unrelated sides may name each other too. Then the GID decides: a NIC has the same GID as in those of
its queue pairs whose match is unique. A number that is used again counts from its creation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np

from oncall.analysis.common.ordering import Ints
from oncall.evidence import Param, relation


@relation(
    "queue_pairs",
    reads=["qps"],
    columns=[
        "job node nic qpn",
        ("created_ns", "BIGINT", "ns", "it is this queue pair's from then on; NULL: always"),
        ("until_ns", "BIGINT", "ns", "... and until then; NULL: to the end"),
        ("rank", "INTEGER", "", "rank that sends on it"),
        ("peer", "INTEGER", "", "rank that receives; NULL: its other side is not recorded"),
        ("peer_side", "UBIGINT", "", "tells receivers apart, known or not"),
        "comm",
        ("channel", "INTEGER", "", "channel, as recorded"),
        ("how", "VARCHAR", "", "recorded, matched, ambiguous (left out), unmatched"),
    ],
    source="Pulse 5.1",
    at="node",
)
def queue_pairs() -> str:
    """Every queue pair with the ranks at both ends."""
    return """
        WITH sides AS (
            -- The hook and the kernel both tell; what one of them does not know the other may.
            SELECT any_value(job) AS job, node, nic, qpn, created_ns, any_value(rank) AS rank,
                any_value(peer_rank) AS peer_rank, any_value(peer_gid) AS peer_gid,
                any_value(peer_qpn) AS peer_qpn, any_value(comm) AS comm,
                any_value(channel) AS channel
            FROM (SELECT * REPLACE (coalesce(created_ns, min(created_ns) OVER one) AS created_ns)
                  FROM qps WHERE qpn IS NOT NULL
                  WINDOW one AS (PARTITION BY node, nic, qpn))
            GROUP BY node, nic, qpn, created_ns),
        lasting AS (
            SELECT *, row_number() OVER () AS side, lead(created_ns) OVER (
                PARTITION BY node, nic, qpn ORDER BY created_ns) AS until_ns
            FROM sides),
        mirrored AS (
            SELECT a.side, b.side AS other, b.rank AS other_rank, a.peer_gid, b.node AS other_node,
                b.nic AS other_nic, count(*) OVER (PARTITION BY a.side) AS candidates,
                abs(coalesce(a.created_ns - b.created_ns, 0)) AS apart_ns
            FROM lasting a JOIN lasting b ON a.qpn = b.peer_qpn AND a.peer_qpn = b.qpn
                AND a.job IS NOT DISTINCT FROM b.job AND (a.node, a.nic) <> (b.node, b.nic)
                AND coalesce(a.created_ns < b.until_ns, true)
                AND coalesce(b.created_ns < a.until_ns, true)),
        -- Which NIC has which GID: the one that most sides name, those without doubt first.
        gids AS (
            SELECT peer_gid, other_node, other_nic,
                (count(*) FILTER (candidates = 1), count(*)) AS support
            FROM mirrored WHERE peer_gid IS NOT NULL GROUP BY 1, 2, 3
            WINDOW by_gid AS (PARTITION BY peer_gid ORDER BY support DESC)
            QUALIFY row_number() OVER by_gid = 1
                AND support > coalesce(lead(support) OVER by_gid, (-1, -1))),
        fitting AS (
            SELECT m.*, count(*) OVER (PARTITION BY side) AS left_over FROM mirrored m
            WHERE candidates = 1 OR peer_gid IS NULL
                OR EXISTS (FROM gids g WHERE g.peer_gid = m.peer_gid
                           AND g.other_node = m.other_node AND g.other_nic = m.other_nic)),
        matched AS (
            SELECT side, any_value(other_rank) AS peer FROM fitting WHERE left_over = 1
            GROUP BY side)
        SELECT l.job, node, nic, qpn, created_ns, until_ns, rank,
            coalesce(peer_rank, m.peer) AS peer,
            hash(coalesce(peer_rank::VARCHAR, m.peer::VARCHAR, l.peer_gid, peer_qpn::VARCHAR))
                AS peer_side,
            comm, channel,
            CASE WHEN peer_rank IS NOT NULL THEN 'recorded' WHEN m.peer IS NOT NULL THEN 'matched'
                 WHEN EXISTS (FROM mirrored x WHERE x.side = l.side) THEN 'ambiguous'
                 ELSE 'unmatched' END AS how
        FROM lasting l LEFT JOIN matched m USING (side)
    """


def receiver_side(comm_peer: str) -> str:
    """SQL: what distinguishes receivers that are known by their number in the communicator."""
    return f"hash('receiver', {comm_peer})"


# What identifies a flow: its queue pair in one life, or what the source itself knows.
_FLOW = """hash(e.job, e.node, e.nic, e.qpn, e.rank, e.comm, e.peer, e.comm_peer, e.channel,
    q.created_ns)"""
# One source a queue pair, the most direct: the NIC's own count, then posts. What the proxy's steps
# tell counts where the rank has neither. A NIC knows no ranks, but the queue pair tells.
_CHOSEN = """
    SELECT job, node, nic, qpn, rank, source FROM (
        SELECT e.*, q.job AS pair_job, q.rank AS pair_rank,
            coalesce(list_position(['dpa', 'wr', 'proxy'], source), 4) AS nth
        FROM (SELECT DISTINCT job, node, nic, qpn, rank, source FROM epochs) e
        LEFT JOIN (
            SELECT node, nic, qpn, any_value(job) AS job, any_value(rank) AS rank
            FROM queue_pairs GROUP BY ALL) q USING (node, nic, qpn))
    QUALIFY nth = CASE WHEN qpn IS NOT NULL THEN min(nth) OVER (PARTITION BY node, nic, qpn)
        ELSE min(nth) OVER (
            PARTITION BY node, coalesce(job, pair_job), coalesce(rank, pair_rank)) END
"""
_SOURCE = f"""
    epochs e SEMI JOIN ({_CHOSEN}) s
        ON s.node IS NOT DISTINCT FROM e.node AND s.nic IS NOT DISTINCT FROM e.nic
        AND s.qpn IS NOT DISTINCT FROM e.qpn AND s.job IS NOT DISTINCT FROM e.job
        AND s.rank IS NOT DISTINCT FROM e.rank AND s.source IS NOT DISTINCT FROM e.source
    LEFT JOIN queue_pairs q ON q.node = e.node AND q.nic = e.nic AND q.qpn = e.qpn
        AND coalesce(e.start_ns >= q.created_ns, true) AND coalesce(e.start_ns < q.until_ns, true)
"""


@relation(
    "flow_epochs",
    reads=["epochs"],
    columns=[
        ("flow", "UBIGINT", "", "the flow, as in flows"),
        "start_ns bytes undercount",
    ],
    source="Pulse 5",
    at="node",
)
def flow_epochs() -> str:
    """The epochs of every flow, of one source a queue pair."""
    return f"""
        SELECT {_FLOW} AS flow, e.start_ns, e.bytes, coalesce(e.undercount, false) AS undercount
        FROM {_SOURCE} WHERE e.bytes > 0
    """


@relation(
    "flow_ends",
    reads=["epochs"],
    columns=[
        ("flow", "UBIGINT", "", "the flow"),
        "job",
        ("node", "VARCHAR", "", "sending host"),
        "nic qpn",
        ("rank", "INTEGER", "", "sending rank; NULL: not known"),
        ("peer", "INTEGER", "", "receiving rank; NULL: not known"),
        ("peer_side", "UBIGINT", "", "distinguishes receivers, known or not"),
        "comm",
        ("comm_peer", "INTEGER", "", "receiving rank within it, as recorded"),
        ("channel", "INTEGER", "", "channel, as recorded"),
        ("bytes", "BIGINT", "bytes", "sent in all"),
        ("epoch_ns", "BIGINT", "ns", "length of its epochs"),
        "source",
    ],
    source="Pulse 5.1",
    at="node",
)
def flow_ends() -> str:
    """What its source and its queue pair record of each flow."""
    return f"""
        WITH ends AS (
            SELECT {_FLOW} AS flow, coalesce(any_value(e.job), any_value(q.job)) AS job,
                any_value(e.node) AS node, any_value(e.nic) AS nic, any_value(e.qpn) AS qpn,
                coalesce(any_value(e.rank), any_value(q.rank)) AS rank,
                any_value(e.peer) AS recorded_peer, any_value(q.peer) AS pair_peer,
                any_value(q.peer_side) AS pair_side,
                coalesce(any_value(e.comm), any_value(q.comm)) AS comm,
                any_value(e.comm_peer) AS comm_peer,
                coalesce(any_value(e.channel), any_value(q.channel)) AS channel,
                sum(e.bytes) AS bytes, max(e.epoch_ns) AS epoch_ns, any_value(e.source) AS source
            FROM {_SOURCE} GROUP BY 1)
        SELECT e.*, coalesce(recorded_peer, m.rank, pair_peer) AS peer,
            CASE WHEN coalesce(recorded_peer, m.rank) IS NOT NULL
                 THEN hash(coalesce(recorded_peer, m.rank)::VARCHAR)
                 WHEN e.comm_peer IS NOT NULL THEN {receiver_side("e.comm_peer")}
                 ELSE coalesce(pair_side, hash(qpn)) END AS peer_side
        FROM ends e LEFT JOIN (FROM members WHERE comm_rank IS NOT NULL) m
            ON m.job = e.job AND m.comm = e.comm AND m.comm_rank = e.comm_peer
    """


@relation(
    "operation_spans",
    reads=["operations"],
    columns=[
        "job comm kind rank",
        ("call", "BIGINT", "", "its group call, or less its own number where it is in none"),
        ("op", "VARCHAR", "", "operation; one of those in a group call"),
        ("bytes", "BIGINT", "bytes", "its size"),
        ("begin_ns", "BIGINT", "ns", "nothing of it is sent before"),
        ("end_ns", "BIGINT", "ns", "nothing of it is sent after"),
    ],
    source="Pulse 5",
    at="node",
    params={
        "before": Param("100 us", "clocks of device and NIC differ"),
        "after": Param("2 ms", "what is buffered is sent after a kernel's end"),
    },
)
def operation_spans() -> str:
    """When each operation, or group of them, may have sent. Where its end on the device is not
    recorded it is taken to end where the rank's next call begins."""
    return """
        WITH calls AS (
            SELECT job, comm, kind, rank, coalesce(group_id, -seq) AS call, min(op) AS op,
                sum(bytes) AS bytes, min(entered_ns) AS begin_ns, max(ended_ns) AS ended_ns,
                bool_or(on_device AND ended_ns IS NULL) AS is_open
            FROM operations WHERE entered_ns IS NOT NULL AND coalesce(bytes, 1) > 0
            GROUP BY ALL)
        SELECT job, comm, kind, rank, call, op, bytes, begin_ns - $before AS begin_ns,
            CASE WHEN is_open THEN 2**62::BIGINT
                 ELSE coalesce(ended_ns, lead(begin_ns) OVER (
                    PARTITION BY job, rank ORDER BY begin_ns, comm, kind, call), 2**62::BIGINT) END
                + $after AS end_ns
        FROM calls
    """


_COLUMNS = [
    "flow",
    ("comm", "UBIGINT", "", "the communicator it belongs to; NULL: not known"),
    ("how", "VARCHAR", "", "recorded, in flight, or why not: no rank, no operation in flight"),
]


@relation(
    "flow_comms",
    reads=["flow_ends", "flow_epochs", "operation_spans"],
    optional=["members"],
    columns=_COLUMNS,
    source="Pulse 5",
    at="node",
    params={
        "mostly": Param(
            "50 %",
            "of a flow is sent while operations of its communicator are in flight: the rest is "
            "what buffers hold when a kernel ends, and clocks that differ",
        )
    },
)
def flow_comms(con: duckdb.DuckDBPyConnection, *, mostly: float) -> Mapping[str, Any]:
    """The communicator of each flow: as recorded, else by what was in flight while it sent."""
    ends = con.execute("SELECT flow, job, rank, peer, comm FROM flow_ends").fetchall()
    unknown = {flow for flow, _, rank, _, comm in ends if comm is None and rank is not None}
    sent = sent_by_flow(con, unknown) if unknown else {}
    busy = _busy(con) if unknown else {}
    members = _members(con) if unknown else {}
    rows: list[tuple[int, int | None, str]] = []
    for flow, job, rank, peer, comm in ends:
        if comm is not None:
            rows.append((flow, comm, "recorded"))
        elif rank is None:
            rows.append((flow, None, "no rank"))
        else:
            candidates = [
                (of, spans)
                for of, spans in busy.get((job, rank), ())
                if peer is None or members.get((job, of), _NOBODY).may_hold(peer)
            ]
            best = _best(sent[flow], candidates, mostly) if flow in sent else None
            rows.append((flow, best, "no operation in flight" if best is None else "in flight"))
    return flow_comms.by_column(rows)


@dataclass(frozen=True)
class Sent:
    """When a flow sent (n,), ordered, and how much before each (n + 1,)."""

    start_ns: Ints
    before: Ints


@dataclass(frozen=True)
class Spans:
    """Disjoint spans of time, ordered: begins and ends (m,), ns."""

    begin_ns: Ints
    end_ns: Ints


def union_of(begin_ns: Ints, end_ns: Ints) -> Spans:
    """The union of spans (m,), in order."""
    order = np.argsort(begin_ns, kind="stable")
    begin, end = begin_ns[order], np.maximum.accumulate(end_ns[order])
    new = np.concatenate([[True], begin[1:] > end[:-1]])
    return Spans(begin[new], end[np.append(np.flatnonzero(new)[1:] - 1, len(end) - 1)])


def _best(sent: Sent, candidates: Sequence[tuple[int, Spans]], mostly: float) -> int | None:
    """The communicator during whose operations most was sent; of equals the one that was in flight
    for the shortest time, as it explains the flow most exactly."""
    scored = []
    for comm, spans in candidates:
        inside = (
            sent.before[np.searchsorted(sent.start_ns, spans.end_ns, side="right")]
            - sent.before[np.searchsorted(sent.start_ns, spans.begin_ns)]
        ).sum()
        share = inside / sent.before[-1]
        lasted = np.minimum(spans.end_ns, sent.start_ns[-1]) - spans.begin_ns
        scored.append((round(float(share), 2), -int(np.maximum(lasted, 0).sum()), comm))
    if not scored:
        return None
    share, _, comm = max(scored)
    return comm if share >= mostly else None


def sent_by_flow(con: duckdb.DuckDBPyConnection, flows: set[int]) -> dict[int, Sent]:
    """When each of the flows sent, and how much."""
    found = con.execute(
        "SELECT flow, start_ns, bytes FROM flow_epochs ORDER BY flow, start_ns"
    ).fetchnumpy()
    flow = found["flow"]
    begins = np.flatnonzero(np.diff(flow, prepend=flow[:1] + 1))
    stops = np.append(begins, len(flow))[1:]
    return {
        int(flow[a]): Sent(
            found["start_ns"][a:b], np.concatenate([[0], np.cumsum(found["bytes"][a:b])])
        )
        for a, b in zip(begins, stops, strict=True)
        if int(flow[a]) in flows
    }


def _busy(con: duckdb.DuckDBPyConnection) -> dict[tuple[str, int], list[tuple[int, Spans]]]:
    """For each rank its communicators, with when it was in operations of them."""
    found = con.execute(
        "SELECT job, rank, comm, list(begin_ns), list(end_ns) FROM operation_spans "
        "GROUP BY job, rank, comm ORDER BY job, rank, comm"
    ).fetchall()
    busy: dict[tuple[str, int], list[tuple[int, Spans]]] = defaultdict(list)
    for job, rank, comm, begins, ends in found:
        spans = union_of(np.array(begins, dtype=np.int64), np.array(ends, dtype=np.int64))
        busy[job, rank].append((comm, spans))
    return busy


@dataclass(frozen=True)
class _Members:
    """Who is known to belong to a communicator, and whether that is all: one node knows only its
    own ranks."""

    ranks: frozenset[int]
    all_known: bool

    def may_hold(self, rank: int) -> bool:
        return rank in self.ranks or not self.all_known


_NOBODY = _Members(frozenset(), all_known=True)


def _members(con: duckdb.DuckDBPyConnection) -> dict[tuple[str, int], _Members]:
    found = con.execute(
        "SELECT job, comm, list(rank), count(*) >= coalesce(max(size), 0) FROM members "
        "GROUP BY job, comm"
    ).fetchall()
    return {
        (job, comm): _Members(frozenset(ranks), all_known) for job, comm, ranks, all_known in found
    }
