"""Communicators: one line of each, and one of them in full, members against its last rounds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import numpy.typing as npt

from oncall.core.diagnosis import Diagnosis
from oncall.core.errors import UsageError
from oncall.core.nodeset import fold_ranks
from oncall.core.printable import clean
from oncall.core.units import format_duration
from oncall.evidence.incident import Incident
from oncall.views.ranks.ranks import finding_operation
from oncall.views.snapshot import CommunicatorSummary
from oncall.views.traffic.operations import is_measured
from oncall.views.words import names_phrase, ranks_phrase

if TYPE_CHECKING:
    from oncall.views.snapshot import Ints

RELATIONS = (
    "members",
    "frontier",
    "blocked_operations",
    "holders",
    "witnesses",
    "operations",
    "in_flight",
)
NOT_ENTERED, WAITING, DONE, UNKNOWN = range(4)
_MOST_NAMED = 24  # characters of the ranks in a label
_MOST_WAITS = 8
_MOST_HOLDERS = 3


@dataclass(frozen=True)
class CommunicatorView:
    """One communicator: members against its last rounds.

    `state` (members, rounds): 0 not entered, 1 waiting in, 2 done, 3 unknown. `duration_ns` alike,
    -1 unknown. `finding_seq` is the operation that a finding is about, if any.
    """

    summary: CommunicatorSummary
    ranks: Ints
    seqs: Ints
    ops: tuple[str, ...]  # of each round
    state: npt.NDArray[np.int8]
    duration_ns: Ints
    finding_seq: int | None = None
    waits: tuple[str, ...] = ()  # who waits for whom across communicators, sentences
    round_bytes: tuple[int | None, ...] = ()  # of each round: what a member hands over, the most
    has_traffic: bool = False  # what ranks transmit was measured


def summaries_of(incident: Incident, diagnosis: Diagnosis) -> tuple[CommunicatorSummary, ...]:
    """Every communicator; those of findings first, then by how long their members have waited."""
    incident.provide_what_can_be(RELATIONS)
    found = {
        one[0] for finding in diagnosis.findings if (one := finding_operation(finding)) is not None
    }
    summaries = [_summary(row) for row in incident.con.execute(_SUMMARIES).fetchall()]
    return tuple(sorted(summaries, key=lambda one: one.comm not in found))


_SUMMARIES = """
    WITH waits AS (
        SELECT comm, count(DISTINCT rank) AS ranks, max(waited_ns) AS longest_ns
        FROM blocked_operations GROUP BY comm),
    reached AS (
        SELECT comm, rank, max(entered_seq) AS entered,
            max(max(entered_seq)) OVER (PARTITION BY comm) AS furthest
        FROM frontier GROUP BY comm, rank),
    progressed AS (
        SELECT comm, any_value(furthest) AS entered,
            count(*) FILTER (entered IS DISTINCT FROM furthest) AS behind
        FROM reached GROUP BY comm),
    known AS (
        SELECT comm, any_value(name) AS name, any_value(role) AS role,
            greatest(max(size), count(DISTINCT rank)) AS size,
            CASE WHEN count(DISTINCT rank) > 100 AND max(rank) - min(rank) < count(DISTINCT rank)
                 THEN range(min(rank), max(rank) + 1) ELSE list(DISTINCT rank ORDER BY rank)[:100]
                 END AS ranks
        FROM members WHERE comm IS NOT NULL GROUP BY comm)
    SELECT comm, name, role, size, k.ranks, coalesce(p.entered, -1),
        CASE WHEN p.entered IS NULL THEN 0 ELSE p.behind END,
        coalesce(w.ranks, 0), coalesce(w.longest_ns, -1)
    FROM known k LEFT JOIN progressed p USING (comm) LEFT JOIN waits w USING (comm)
    ORDER BY w.longest_ns DESC NULLS LAST, w.ranks DESC NULLS LAST, size DESC, role, comm
"""


def _summary(row: tuple[Any, ...]) -> CommunicatorSummary:
    comm, name, role, size, ranks, *counted = row
    return CommunicatorSummary(comm, label(name, role, ranks), clean(role or ""), size, *counted)


def label(name: object, role: object, ranks: Iterable[int]) -> str:
    """What people call a communicator: `dp_1 1,3,5,7`, its name or role and the ranks in it.
    PyTorch numbers its groups: `group 3: 1,3,5,7`."""
    called = str(name or role or "communicator")
    if called.isdecimal():
        called = f"group {called}:"
    folded = fold_ranks(ranks)
    if len(folded) > _MOST_NAMED:
        folded = folded[: folded.rfind(",", 0, _MOST_NAMED) + 1 or _MOST_NAMED] + "…"
    return clean(f"{called} {folded}".strip(" :"))


def view_of(
    incident: Incident, diagnosis: Diagnosis, summary: CommunicatorSummary, rounds: int
) -> CommunicatorView:
    """The members of one communicator against its last `rounds` operations.

    Collectives; Sends and Receives where there are no collectives.
    """
    incident.provide(RELATIONS)
    con, comm = incident.con, summary.comm
    kind, seqs, ops, sizes = _rounds(con, comm, rounds)
    members = con.execute(
        "SELECT m.rank, any_value(f.entered_seq), any_value(f.done_seq), any_value(w.rank) "
        "FROM members m LEFT JOIN frontier f USING (job, comm, rank) "
        "LEFT JOIN witnesses w ON (w.job, w.rank) = (m.job, m.rank) "
        "WHERE m.comm = ? GROUP BY m.rank ORDER BY m.rank",
        [comm],
    ).fetchall()
    if not members:
        raise UsageError(f"no communicator {comm:#x} in this evidence")
    ranks = np.array([row[0] for row in members], dtype=np.int64)
    state = np.full((len(ranks), len(seqs)), UNKNOWN, dtype=np.int8)
    if kind == "coll":
        # What no row tells: the counters say who has not come so far.
        for row, (_, entered, done, observed) in enumerate(members):
            if observed is not None:
                state[row, seqs > (-1 if entered is None else entered)] = NOT_ENTERED
            if done is not None:
                state[row, seqs <= done] = DONE
    duration_ns = np.full(state.shape, -1, dtype=np.int64)
    rows = con.execute(
        "SELECT rank, seq, bool_or(done), max(duration_ns) FROM operations "
        "WHERE comm = ? AND kind = ? AND seq BETWEEN ? AND ? GROUP BY ALL",
        [comm, kind, int(seqs[0]) if len(seqs) else 0, int(seqs[-1]) if len(seqs) else -1],
    ).fetchall()
    row_of = {rank: row for row, rank in enumerate(ranks.tolist())}
    column_of = {seq: column for column, seq in enumerate(seqs.tolist())}
    for rank, seq, done, took_ns in rows:
        if rank in row_of and seq in column_of:
            at = row_of[rank], column_of[seq]
            state[at] = UNKNOWN if done is None else DONE if done else WAITING
            duration_ns[at] = -1 if took_ns is None else took_ns
    found = (finding_operation(finding) for finding in diagnosis.findings)
    return CommunicatorView(
        summary=summary,
        ranks=ranks,
        seqs=seqs,
        ops=ops,
        state=state,
        duration_ns=duration_ns,
        finding_seq=next((one[1] for one in found if one is not None and one[0] == comm), None),
        waits=tuple(_waits(con, comm)),
        round_bytes=sizes,
        has_traffic=is_measured(incident),
    )


def _rounds(
    con: duckdb.DuckDBPyConnection, comm: int, rounds: int
) -> tuple[str, Ints, tuple[str, ...], tuple[int | None, ...]]:
    """The kind of the last rounds, their numbers, operations and sizes."""
    rows: list[tuple[int, str | None, int | None]] = []
    for kind in ("coll", "p2p"):
        # A hang may be found by counters alone: an operation that nobody's record holds.
        rows = con.execute(
            "SELECT seq, string_agg(DISTINCT op, ' or ' ORDER BY op), max(bytes) FROM ("
            "SELECT seq, op, bytes FROM operations WHERE comm = $comm AND kind = $kind UNION ALL "
            "SELECT seq, op, bytes FROM blocked_operations WHERE comm = $comm AND kind = $kind) "
            "WHERE seq IS NOT NULL GROUP BY seq ORDER BY seq DESC LIMIT $rounds",
            {"comm": comm, "kind": kind, "rounds": rounds},
        ).fetchall()
        if rows:
            break
    rows.reverse()
    return (
        kind,
        np.array([seq for seq, _, _ in rows], dtype=np.int64),
        tuple(clean(op or "?") for _, op, _ in rows),
        tuple(size for _, _, size in rows),
    )


# ------------------------------------------------------------------- who waits


def _waits(con: duckdb.DuckDBPyConnection, comm: int) -> Iterable[str]:
    """Who waits on a communicator for whom, and where those stand: one sentence an operation."""
    rows = con.execute(
        """
        WITH waiting AS (
            SELECT comm, kind, seq, any_value(op) AS op, max(waited_ns) AS waited_ns,
                list(DISTINCT rank ORDER BY rank) AS ranks
            FROM blocked_operations WHERE comm = ?
            GROUP BY comm, kind, seq, CASE kind WHEN 'p2p' THEN rank END),
        held AS (
            SELECT h.comm, h.kind, h.seq, h.owner, h.how,
                list(DISTINCT h.rank ORDER BY h.rank) AS by,
                s.op AS in_op, s.seq AS in_seq, s.comm AS in_comm
            FROM holders h LEFT JOIN blocked_operations s ON s.job = h.job AND s.rank = h.rank
                AND (s.comm, s.seq) IS DISTINCT FROM (h.comm, h.seq)
            WHERE h.comm = ? GROUP BY ALL)
        SELECT w.op, w.seq, w.ranks, w.waited_ns, h.how, h.by, h.in_op, h.in_seq, n.name, n.role
        FROM waiting w
        LEFT JOIN held h ON (h.comm, h.kind, h.seq) = (w.comm, w.kind, w.seq)
            AND (h.owner IS NULL OR h.owner = w.ranks[1])
        LEFT JOIN (SELECT comm, any_value(name) AS name, any_value(role) AS role
                   FROM members GROUP BY comm) n ON n.comm = h.in_comm
        ORDER BY w.waited_ns DESC NULLS LAST, w.seq, h.by
        """,
        [comm, comm],
    ).fetchall()
    waits: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for op, seq, ranks, waited_ns, how, by, in_op, in_seq, name, role in rows:
        key = (op, seq, tuple(ranks), waited_ns)
        if by:
            elsewhere = f", in {in_op or 'operation'} {in_seq} of {label(name, role, ())}"
            silent = ", no data" if how == "silent" else ""
            waits[key].append(ranks_phrase(by) + (elsewhere if in_seq is not None else silent))
        else:
            waits[key] = []
    for (op, seq, ranks, waited_ns), holders in list(waits.items())[:_MOST_WAITS]:
        assert isinstance(ranks, tuple)
        long = f" for {format_duration(waited_ns)}" if isinstance(waited_ns, int) else ""
        whom = (
            f", waiting for {names_phrase(holders, _MOST_HOLDERS)}" if holders else ", all entered"
        )
        yield clean(f"{ranks_phrase(ranks)} blocked in {op or 'operation'} {seq}{long}{whom}")
    if len(waits) > _MOST_WAITS:
        yield f"and {len(waits) - _MOST_WAITS} more"
