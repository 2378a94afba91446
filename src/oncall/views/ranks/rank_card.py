"""One rank in full: where it runs, what was measured there last, its communicators, its last
operations and its stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import duckdb

from oncall.core.diagnosis import Stack
from oncall.core.errors import UsageError
from oncall.core.printable import clean
from oncall.core.units import format_bytes, format_duration, format_number, format_rate
from oncall.evidence.incident import Incident
from oncall.use_case.evidence import stacks_of
from oncall.views.ranks.communicators import label
from oncall.views.snapshot import Ranks, RankState, Snapshot, Table
from oncall.views.words import instant, ranks_phrase

RELATIONS = ("members", "operations", "frontier")
MOST_OPERATIONS = 30
_MOST_COMMUNICATORS = 12
_COLUMNS = ("seq", "op", "took", "state", "communicator", "size", "entered")  # narrow panes cut


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
    if (at := ranks.place(rank)) is None:
        raise UsageError(f"no rank {rank} in this job")
    incident.provide((*RELATIONS, *READINGS))
    facts = (
        *_state(ranks, at),
        *_place(incident.con, rank),
        *readings(incident.con, rank),
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
        far = "no collective" if entered is None else f"entered {entered:,}"
        if done is not None:
            far = f"completed {done:,}" if done == entered else f"{far}, completed {done:,}"
        yield "member of", f"{label(name, role, ())}, {far}: {ranks_phrase(ranks)}"


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
                "" if spent_ns is None else format_duration(spent_ns),
                "unknown" if done is None else "done" if done else "waiting",
                clean(str(name or role or "")),
                "" if size is None else format_bytes(size),
                "" if entered_ns is None else instant(entered_ns, date=False),
            )
        )
    return Table(_COLUMNS, tuple(lines), total).filled()


READINGS = ("gpu_states", "nic_rates", "host_states", "process_rates", "node_events")
MOST_EVENTS = 3

Row: TypeAlias = dict[str, Any]
_Shown = tuple[str, Callable[[Any], str]]  # what stands before a value, and how that is written


def _percent(share: float) -> str:
    return f"{format_number(round(100 * share, 1))} %"


# Columns in the order of reading; what is NULL is left out.
_GPU: dict[str, _Shown] = {
    "utilisation": ("busy", _percent),
    "sm_clock_mhz": ("at", lambda mhz: f"{format_number(mhz)} MHz"),
    "power_w": ("", lambda watts: f"{format_number(round(watts))} W"),
    "temp_c": ("", lambda degrees: f"{format_number(degrees)} °C"),
    "memory_share": ("memory", _percent),
    "throttled_by": ("throttled by", clean),
}
_NIC: dict[str, _Shown] = {
    "tx_bytes_per_s": ("sends", format_rate),
    "rx_bytes_per_s": ("receives", format_rate),
    "link_bytes_per_s": ("of", format_rate),
    "rx_paused": ("paused", _percent),
    "down": ("", str),
}
_HOST: dict[str, _Shown] = {
    "cpu_busy": ("CPUs busy", _percent),
    "cpu_pressure": ("waiting for a CPU", _percent),
    "memory_pressure": ("for memory", _percent),
    "io_pressure": ("for storage", _percent),
    "memory_available_share": ("memory available", _percent),
}
_PROCESS: dict[str, _Shown] = {
    "cpus_used": ("uses", lambda cpus: f"{format_number(round(cpus, 1))} CPUs"),
    "cpu_quota": ("of quota", format_number),
    "throttled": ("throttled", _percent),
    "waiting": ("waiting for a CPU", _percent),
    "rss_bytes": ("", format_bytes),
    "read_bytes_per_s": ("reads", format_rate),
}
_SHOWN_IF_SOME = {  # hindrances: shown only above a small value
    *("throttled", "waiting", "rx_paused"),
    *("cpu_pressure", "memory_pressure", "io_pressure"),
}
_SOME = 0.001


def readings(con: duckdb.DuckDBPyConnection, rank: int) -> Iterator[tuple[str, str]]:
    """(label, text) of the newest reading of each, and of the newest events. What was not measured
    has no line. `READINGS` must be ready."""
    placed = con.execute(
        "SELECT node, gpu, nic, pid FROM ranks WHERE rank = ? "
        "ORDER BY started_ns DESC NULLS LAST LIMIT 1",
        [rank],
    ).fetchall()
    for node, gpu, nic, pid in placed:
        yield from _line(
            "GPU now",
            _GPU,
            _newest(
                con,
                "*, CASE WHEN throttled THEN array_to_string(reasons, ', ') END AS throttled_by",
                "gpu_states WHERE node = ? AND gpu = ?",
                [node, gpu],
            ),
        )
        yield from _line(
            "NIC now",
            _NIC,
            _newest(
                con,
                "*, CASE WHEN NOT link_up THEN 'link down' END AS down",
                "nic_rates WHERE node = ? AND nic = ?",
                [node, nic],
            ),
        )
        yield from _line("host now", _HOST, _newest(con, "*", "host_states WHERE node = ?", [node]))
        yield from _line(
            "process now",
            _PROCESS,
            _newest(con, "*", "process_rates WHERE rank = ? AND pid = ?", [rank, pid]),
        )
        yield from _events(con, node, gpu, nic)


def _newest(
    con: duckdb.DuckDBPyConnection, columns: str, source: str, parameters: list[Any]
) -> Row | None:
    con.execute(f"SELECT {columns} FROM {source} ORDER BY at_ns DESC LIMIT 1", parameters)
    names = [name for name, *_ in con.description or ()]
    row = con.fetchone()
    return None if row is None else dict(zip(names, row, strict=True))


def _line(label: str, counts: dict[str, _Shown], row: Row | None) -> Iterator[tuple[str, str]]:
    if row is None:
        return
    parts = [
        f"{before} {written(row[name])}".strip()
        for name, (before, written) in counts.items()
        if row[name] is not None and not (name in _SHOWN_IF_SOME and row[name] < _SOME)
    ]
    if parts:
        yield label, f"{', '.join(parts)} ({instant(row['at_ns'], date=False)})"


def _events(
    con: duckdb.DuckDBPyConnection, node: str | None, gpu: int | None, nic: str | None
) -> Iterator[tuple[str, str]]:
    """What was said of its GPU and NIC, or of the node as a whole; the newest first."""
    rows = con.execute(
        f"""
        SELECT at_ns, text FROM node_events WHERE node = ?
            AND (gpu = ? OR nic = ? OR (gpu IS NULL AND nic IS NULL))
        ORDER BY at_ns DESC LIMIT {MOST_EVENTS}
        """,
        [node, gpu, nic],
    ).fetchall()
    for at_ns, text in rows:
        when = "" if at_ns is None else f"{instant(at_ns, date=False)} "
        yield "event", f"{when}{clean(str(text or ''))}"
