"""Who waits for whom: the calls in which ranks are blocked, and the ranks that never made them."""

from __future__ import annotations

from dataclasses import dataclass

from oncall.evidence.incident import Incident


@dataclass(frozen=True)
class BlockedCall:
    """One call in which ranks are blocked. `op` None: only counters are known; `since_ns`: when
    the first of them entered, None if unknown; `missing`: members that keep it from completing."""

    comm: int | None
    name: str
    kind: str
    op: str | None
    seq: int | None
    since_ns: int | None
    waiting: tuple[int, ...]
    missing: tuple[int, ...]


def blocked_calls(incident: Incident) -> tuple[BlockedCall, ...]:
    """The calls, the one with the fewest missing and most waiting ranks first; none if nobody
    waits. Raises MissingEvidence where operations and their counts are unknown."""
    incident.require(["front"])
    rows = incident.con.execute(
        """
        WITH names AS (
            SELECT comm, any_value(coalesce(role, name)) AS name FROM comms GROUP BY comm)
        SELECT f.comm, coalesce(any_value(n.name), ''), f.kind, f.op, f.seq, min(f.since_ns),
            list(f.rank ORDER BY f.rank), f.missing
        FROM front f LEFT JOIN names n USING (comm)
        GROUP BY f.comm, f.kind, f.op, f.seq, f.missing
        ORDER BY len(f.missing) = 0, len(f.missing), count(*) DESC, f.comm, f.seq
        """
    ).fetchall()
    return tuple(
        BlockedCall(comm, name, kind, op, seq, since_ns, tuple(waiting), tuple(missing))
        for comm, name, kind, op, seq, since_ns, waiting, missing in rows
    )
