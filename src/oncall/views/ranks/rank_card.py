"""One rank in full: where it runs, what was measured there, its communicators, its last operations
and its stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import numpy as np

from oncall.core.diagnosis import Stack
from oncall.core.errors import UsageError
from oncall.core.printable import clean
from oncall.core.units import format_bytes, format_duration
from oncall.evidence.incident import Incident
from oncall.use_case.evidence import stacks_of
from oncall.views.ranks import readings
from oncall.views.ranks.communicators import label
from oncall.views.snapshot import Ranks, RankState, Snapshot
from oncall.views.table import Table
from oncall.views.words import instant

RELATIONS = ("members", "operations", "frontier")
MOST_OPERATIONS = 30
_MOST_COMMUNICATORS = 12
_COLUMNS = ("seq", "op", "communicator", "took", "state", "size", "entered")  # narrow panes cut


@dataclass(frozen=True)
class RankCard:
    """One rank in full."""

    rank: int
    facts: tuple[tuple[str, str], ...]  # label, value: node, GPU, NIC, process, communicators ...
    operations: Table  # its most recent ones, newest first
    stack: Stack | None = None


def card_of(incident: Incident, snapshot: Snapshot, rank: int) -> RankCard:
    """The card of a rank that the snapshot knows. Raises UsageError for another."""
    ranks = snapshot.ranks
    at = int(np.searchsorted(ranks.rank, rank))
    if at >= len(ranks) or ranks.rank[at] != rank:
        raise UsageError(f"no rank {rank} in this job")
    incident.provide((*RELATIONS, *readings.RELATIONS))
    facts = (
        *_state(ranks, at),
        *_place(incident.con, rank),
        *readings.readings(incident.con, rank),
        *_memberships(incident.con, rank),
    )
    stack = stacks_of(incident, [rank]).get(rank)
    return RankCard(rank, facts, _operations(incident.con, rank), stack)


def _state(ranks: Ranks, at: int) -> Iterator[tuple[str, str]]:
    state = RankState(int(ranks.state[at])).name.lower()
    waited_ns = int(ranks.waited_ns[at])
    yield "state", state + (f" for {format_duration(waited_ns)}" if waited_ns >= 0 else "")


def _place(con: duckdb.DuckDBPyConnection, rank: int) -> Iterator[tuple[str, str]]:
    """Node, GPU, NIC and process, as far as they are known; the newest process of several."""
    rows = con.execute(
        "SELECT node, gpu, pci_bus, nic, pid, started_ns, local_rank FROM ranks WHERE rank = ? "
        "ORDER BY started_ns DESC NULLS LAST LIMIT 1",
        [rank],
    ).fetchall()
    for node, gpu, pci_bus, nic, pid, started_ns, local_rank in rows:
        if node is not None:
            yield "node", clean(node)
        if gpu is not None or local_rank is not None:
            yield "GPU", clean(f"{local_rank if gpu is None else gpu} {pci_bus or ''}")
        if nic is not None:
            yield "NIC", clean(nic)
        if pid is not None:
            born = f", started {instant(started_ns)}" if started_ns is not None else ""
            yield "process", f"pid {pid}{born}"


def _memberships(con: duckdb.DuckDBPyConnection, rank: int) -> Iterator[tuple[str, str]]:
    """Each communicator: its members, and how far the rank has come on it."""
    rows = con.execute(
        f"""
        SELECT m.role, m.name, o.ranks, f.entered_seq, f.done_seq
        FROM members m JOIN frontier f USING (job, comm, rank)
        JOIN (SELECT job, comm, list(DISTINCT rank ORDER BY rank) AS ranks
              FROM members GROUP BY job, comm) o USING (job, comm)
        WHERE m.rank = ? ORDER BY f.entered_seq DESC NULLS LAST, m.name
        LIMIT {_MOST_COMMUNICATORS}
        """,
        [rank],
    ).fetchall()
    for role, name, ranks, entered, done in rows:
        far = "no collective recorded" if entered is None else f"entered {entered}"
        far += f", completed {done}" if done is not None else ""
        yield "member of", f"{label(name, role, ranks)}: {far}"


def _operations(con: duckdb.DuckDBPyConnection, rank: int) -> Table:
    """Its last operations on all communicators, the newest first."""
    ((total,),) = con.execute("SELECT count(*) FROM operations WHERE rank = ?", [rank]).fetchall()
    rows = con.execute(
        f"""
        WITH latest AS (
            SELECT * FROM operations WHERE rank = ?
            ORDER BY coalesce(entered_ns, ended_ns) DESC NULLS LAST, seq DESC
            LIMIT {MOST_OPERATIONS})
        SELECT l.seq, l.op, l.peer, l.bytes, l.entered_ns, l.duration_ns,
            l.observed_ns - l.entered_ns AS waited_ns, l.done, m.name, m.role
        FROM latest l LEFT JOIN (SELECT DISTINCT ON (comm) comm, name, role FROM members) m
            USING (comm)
        ORDER BY coalesce(l.entered_ns, l.ended_ns) DESC NULLS LAST, l.seq DESC
        """,
        [rank],
    ).fetchall()
    lines = []
    for seq, op, peer, size, entered_ns, took_ns, waited_ns, done, name, role in rows:
        call = clean(str(op or "?")) + (f" with {peer}" if peer is not None else "")
        spent_ns = waited_ns if done is False else took_ns
        lines.append(
            (
                seq,
                call,
                clean(str(name or role or "")),
                "" if spent_ns is None else format_duration(spent_ns),
                "unknown" if done is None else "done" if done else "waiting",
                "" if size is None else format_bytes(size),
                "" if entered_ns is None else instant(entered_ns, date=False),
            )
        )
    return Table(_COLUMNS, tuple(lines), total)
