"""What every rank does, as the relations of the wait-for graph have it; and one number for each as
last measured.

A rank that waits in an operation is hung if a chain of waiting leads from there to an operation
or a rank that a critical finding blames for a hang: that separates victims from ranks that are
merely busy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import numpy.typing as npt

from oncall.core.diagnosis import Diagnosis, Finding
from oncall.core.errors import UsageError
from oncall.core.units import NS_PER_S
from oncall.evidence.incident import Incident
from oncall.views.snapshot import JobLine, Ranks, RankState, Snapshot
from oncall.views.words import blaming, headline

if TYPE_CHECKING:
    import duckdb

    from oncall.views.snapshot import Ints

RELATIONS = ("heads", "members", "witnesses", "blocked_operations", "holders", "front")
# A world size beyond this is a damaged recording, not a job.
_MOST_RANKS = 1_000_000
_MOST_ROLES = 12

# An operation that a rank is blocked in: communicator, kind, number,
# for a Send or Recv also its rank.
_Operation = tuple[int, str, int, int | None]


@dataclass(frozen=True)
class _Blamed:
    """What the root findings name: ranks, whole nodes, and of hangs the operations (comm, seq)."""

    ranks: frozenset[int]
    nodes: frozenset[str]
    hang_ranks: frozenset[int]
    operations: frozenset[tuple[int, int]]


def ranks_of(incident: Incident, diagnosis: Diagnosis) -> Ranks:
    """Every rank that anything names, or that the world size promises, and what it does."""
    incident.provide_what_can_be(RELATIONS)  # what could not be computed is a gap of the snapshot's
    con = incident.con
    # No column can be NULL, so these are plain arrays.
    found = con.execute(_PLACES).fetchnumpy()
    rank = found["rank"].astype(np.int64)
    node = tuple(map(str, found["node"]))
    return Ranks(
        rank=rank,
        state=_states(con, diagnosis, rank, node, found["has_data"]),
        node=node,
        gpu=found["gpu"].astype(np.int64),
        nic=tuple(map(str, found["nic"])),
        waited_ns=found["waited_ns"].astype(np.int64),
        groups=_groups(con, rank),
        comm=found["comm"],
        seq=found["seq"].astype(np.int64),
    )


_PLACES = f"""
    WITH named AS (
        SELECT rank FROM comms UNION SELECT rank FROM ranks UNION SELECT rank FROM heads
        UNION SELECT rank FROM launches UNION SELECT rank FROM recordings
        UNION SELECT unnest(range(max(world_size)))::INTEGER FROM jobs
              WHERE world_size <= {_MOST_RANKS}),
    placed AS (SELECT DISTINCT ON (rank) rank, node, gpu, nic FROM ranks ORDER BY rank, node),
    -- Of several operations that it is blocked in, the one for longest.
    blocked AS (
        SELECT rank, comm, seq, waited_ns FROM blocked_operations
        QUALIFY row_number() OVER (PARTITION BY rank ORDER BY waited_ns DESC NULLS LAST, seq) = 1)
    SELECT n.rank, coalesce(p.node, '') AS node, coalesce(p.gpu, -1) AS gpu,
        coalesce(p.nic, '') AS nic, w.rank IS NOT NULL AS has_data,
        coalesce(s.comm, 0)::UBIGINT AS comm, coalesce(s.seq, -1) AS seq,
        CASE WHEN s.waited_ns IS NULL THEN -1 ELSE greatest(s.waited_ns, 0) END AS waited_ns
    FROM named n LEFT JOIN placed p USING (rank) LEFT JOIN blocked s USING (rank)
    LEFT JOIN (SELECT DISTINCT rank FROM witnesses) w USING (rank)
    WHERE n.rank >= 0 ORDER BY n.rank
"""


def _states(
    con: duckdb.DuckDBPyConnection,
    diagnosis: Diagnosis,
    rank: Ints,
    node: Collection[str],
    has_data: npt.NDArray[np.bool_],
) -> Ints:
    """The worst state of each rank that holds, (n,)."""
    blamed = _blamed(diagnosis)
    blocked = _blocked_in(con)
    held_by = _held_by(con)
    hung = _hung(blocked, held_by, blamed)
    # Also where calls alone are recorded and nothing is known of ends.
    called = con.execute("SELECT DISTINCT rank FROM front").fetchall()
    waiting = {*blocked, *(one for (one,) in called)}
    absent = {one for holders in held_by.values() for one, how in holders if how == "absent"}
    # Who waits elsewhere is kept from coming. In a healthy job someone is always waited for.
    late = set() if diagnosis.healthy and not diagnosis.pending else absent - waiting
    state = np.full(len(rank), RankState.RUNNING, dtype=np.int64)
    # The worst comes last and stays.
    state[np.isin(rank, list(waiting))] = RankState.WAITING
    state[np.isin(rank, list(late))] = RankState.LATE
    waits = [one for one, operations in blocked.items() if not hung.isdisjoint(operations)]
    state[np.isin(rank, waits)] = RankState.HUNG
    state[~has_data] = RankState.UNKNOWN
    state[np.isin(rank, list(blamed.ranks))] = RankState.BLAMED
    if blamed.nodes:
        state[np.array([name in blamed.nodes for name in node], dtype=bool)] = RankState.BLAMED
    return state


def _blocked_in(con: duckdb.DuckDBPyConnection) -> dict[int, set[_Operation]]:
    """Rank -> the operations it is blocked in."""
    blocked: dict[int, set[_Operation]] = defaultdict(set)
    rows = con.execute("SELECT rank, comm, kind, seq FROM blocked_operations").fetchall()
    for rank, comm, kind, seq in rows:
        blocked[rank].add((comm, kind, seq, rank if kind == "p2p" else None))
    return blocked


def _held_by(con: duckdb.DuckDBPyConnection) -> dict[_Operation, list[tuple[int, str]]]:
    """Operation -> the ranks that keep it from completing, each with how."""
    held: dict[_Operation, list[tuple[int, str]]] = defaultdict(list)
    rows = con.execute("SELECT comm, kind, seq, owner, rank, how FROM holders").fetchall()
    for comm, kind, seq, owner, rank, how in rows:
        held[comm, kind, seq, owner].append((rank, how))
    return held


def _hung(
    blocked: Mapping[int, set[_Operation]],
    held_by: Mapping[_Operation, Iterable[tuple[int, str]]],
    blamed: _Blamed,
) -> set[_Operation]:
    """The operations that a finding calls hung, and all that wait for these."""
    holds: dict[int, set[_Operation]] = defaultdict(set)
    for operation, holders in held_by.items():
        for rank, _ in holders:
            holds[rank].add(operation)
    blamed_waits = {
        one for each in blocked.values() for one in each if (one[0], one[2]) in blamed.operations
    }
    blocked_in: dict[_Operation, list[int]] = defaultdict(list)
    for rank, operations in blocked.items():
        for operation in operations:
            blocked_in[operation].append(rank)
    waiting = [*blamed_waits, *(one for rank in blamed.hang_ranks for one in holds.get(rank, ()))]
    hung: set[_Operation] = set()
    while waiting:
        operation = waiting.pop()
        if operation not in hung:
            hung.add(operation)
            for rank in blocked_in.get(operation, ()):
                waiting += holds.get(rank, ())
    return hung


def _blamed(diagnosis: Diagnosis) -> _Blamed:
    causes = blaming(diagnosis)
    hangs = [one for one in causes if (one.severity, one.fault_class) == ("critical", "hang")]
    return _Blamed(
        ranks=frozenset(rank for finding in causes for rank in blamed_ranks(finding)),
        nodes=frozenset(
            str(one.where.get("node"))
            for finding in causes
            for one in finding.blame
            if one.kind == "node" and one.where.get("rank") is None
        ),
        hang_ranks=frozenset(rank for finding in hangs for rank in blamed_ranks(finding)),
        operations=frozenset(
            one for finding in hangs if (one := finding_operation(finding)) is not None
        ),
    )


def blamed_ranks(finding: Finding) -> tuple[int, ...]:
    """The ranks that a finding names, each once."""
    named = (one.where.get("rank") for one in finding.blame)
    return tuple(dict.fromkeys(rank for rank in named if isinstance(rank, int)))


def finding_operation(finding: Finding) -> tuple[int, int] | None:
    """The communicator and the operation that a finding is about, if it is about one."""
    comm, seq = finding.case.get("comm"), finding.case.get("seq")
    if comm is None or not isinstance(seq, int):
        return None
    try:
        return int(str(comm), 16), seq
    except ValueError:
        return None


def _groups(con: duckdb.DuckDBPyConnection, rank: Ints) -> dict[str, Ints]:
    """Role -> which group of it each rank is in, (n,), numbered by their lowest ranks; -1: none."""
    rows = con.execute(
        f"""
        WITH named AS (
            SELECT role, comm, rank, min(rank) OVER (PARTITION BY role, comm) AS lowest
            FROM members WHERE role IS NOT NULL),
        known AS (
            SELECT role FROM named GROUP BY role
            ORDER BY count(DISTINCT rank) DESC, role LIMIT {_MOST_ROLES}),
        numbered AS (
            SELECT role, rank, dense_rank() OVER (PARTITION BY role ORDER BY lowest, comm) - 1 AS g
            FROM named SEMI JOIN known USING (role))
        SELECT role, list(rank) AS ranks, list(g) AS groups FROM (
            SELECT role, rank, min(g) AS g FROM numbered WHERE rank >= 0 GROUP BY role, rank)
        GROUP BY role ORDER BY role
        """
    ).fetchall()
    groups: dict[str, Ints] = {}
    for role, members, numbers in rows:
        group = np.full(len(rank), -1, dtype=np.int64)
        group[np.searchsorted(rank, np.array(members))] = numbers
        groups[role] = group
    return groups


def judged(line: JobLine, diagnosis: Diagnosis, ranks: Ranks, at_ns: int | None) -> JobLine:
    """A job of the list with the verdict of a diagnosis."""
    glyph, severity, said = headline(diagnosis, at_ns)
    waiting = int(np.isin(ranks.state, (RankState.HUNG, RankState.WAITING)).sum())
    return replace(line, verdict=f"{glyph} {said}", severity=severity, waiting=waiting)


MEASURES = ("lag", "rate", "temperature", "power", "NIC")
_RECENT_NS = 30 * NS_PER_S  # a rate is of so long before the moment shown
# A reading by (node, GPU): what no other row says, so that the newest is taken alone.
_GPU = """
    SELECT node, gpu, {column} FROM gpus WHERE {column} IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY node, gpu ORDER BY at_ns DESC) = 1
"""
_NIC = """
    WITH steps AS (
        SELECT node, nic, at_ns, at_ns - lag(at_ns) OVER w AS took_ns,
            tx_bytes + rx_bytes - lag(tx_bytes + rx_bytes) OVER w AS moved
        FROM nics WINDOW w AS (PARTITION BY node, nic, port ORDER BY at_ns))
    SELECT node, nic, sum(moved) * 1e9 / sum(took_ns) FROM steps
    WHERE took_ns > 0 AND moved >= 0 AND at_ns > $since_ns GROUP BY node, nic
"""
# By how many operations a rank is behind its group, where it is furthest behind: a rank that waits
# for another is behind nobody.
_LAG = """
    WITH fronts AS (
        SELECT rank, max(entered_seq) OVER (PARTITION BY job, comm) - entered_seq AS behind
        FROM frontier WHERE entered_seq IS NOT NULL)
    SELECT rank, max(behind) FROM fronts GROUP BY rank
"""
_RATE = """
    SELECT rank, sum(coalesce(stands_for, 1)) FROM operations
    WHERE done IS DISTINCT FROM false AND coalesce(ended_ns, entered_ns) > $since_ns GROUP BY rank
"""


@dataclass(frozen=True, eq=False)
class RankValues:
    """A number for each rank of a snapshot, (n,) in the order of its ranks; NaN: not recorded."""

    measure: str  # lag, rate, temperature, power, NIC
    unit: str
    value: npt.NDArray[np.float64]


def rank_values(incident: Incident, snapshot: Snapshot, measure: str) -> RankValues:
    """One of MEASURES by rank, in the order of the snapshot's; NaN where nothing was recorded.

    Raises UsageError for another, and where it was recorded for no rank.
    """
    con, ranks, at_ns = incident.con, snapshot.ranks, snapshot.moment.at_ns
    since_ns = 0 if at_ns is None else at_ns - _RECENT_NS
    gpus = list(zip(ranks.node, ranks.gpu.tolist(), strict=True))
    nics = list(zip(ranks.node, ranks.nic, strict=True))
    unit = {"lag": "ops", "rate": "ops/s", "temperature": "°C", "power": "W", "NIC": "B/s"}
    match measure:
        case "lag":
            incident.provide_what_can_be(("frontier",))
            behind = dict(con.execute(_LAG).fetchall())
            value = np.array([behind.get(rank, np.nan) for rank in ranks.rank.tolist()], float)
        case "rate":
            incident.provide_what_can_be(("operations",))
            value = _rates(con, ranks.rank.tolist(), since_ns)
        case "temperature":
            value = _of(con, _GPU.format(column="temp_c"), gpus, {})
        case "power":
            value = _of(con, _GPU.format(column="power_w"), gpus, {})
        case "NIC":
            value = _of(con, _NIC, nics, {"since_ns": since_ns})
        case _:
            raise UsageError(f"unknown measure `{measure}`; choose one of {', '.join(MEASURES)}")
    if not np.isfinite(value).any():
        raise UsageError(f"{measure} was recorded for no rank")
    return RankValues(measure, unit[measure], value)


def _of(
    con: duckdb.DuckDBPyConnection,
    sql: str,
    keys: Sequence[tuple[str, object]],
    params: dict[str, int],
) -> npt.NDArray[np.float64]:
    found = {(node, device): value for node, device, value in con.execute(sql, params).fetchall()}
    return np.array([found.get(key, np.nan) for key in keys], dtype=np.float64)


def _rates(
    con: duckdb.DuckDBPyConnection, ranks: list[int], since_ns: int
) -> npt.NDArray[np.float64]:
    """Zero for a rank that completed something earlier and nothing since."""
    ever = {rank for (rank,) in con.execute("SELECT DISTINCT rank FROM operations").fetchall()}
    found = dict(con.execute(_RATE, {"since_ns": since_ns}).fetchall())
    seconds = _RECENT_NS / NS_PER_S
    return np.array(
        [found.get(rank, 0) / seconds if rank in ever else np.nan for rank in ranks],
        dtype=np.float64,
    )
