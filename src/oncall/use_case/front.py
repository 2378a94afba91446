"""Who waits for whom: the calls in which ranks are blocked, and the ranks that never made them."""

from __future__ import annotations

from dataclasses import dataclass

from oncall.analysis.hang.main_threads import COLLECTIVE
from oncall.core.diagnosis import Suspect
from oncall.core.errors import MissingEvidence, RelationFailed
from oncall.evidence.incident import Incident
from oncall.use_case import evidence
from oncall.use_case.doubt import blamed

_MOST_AWAITED = 3  # ranks of which it is said what their stacks show


@dataclass(frozen=True)
class BlockedCall:
    """One call in which ranks are blocked. `op` None: only counters are known; `since_ns`: when
    the first of them entered, None if unknown; `missing`: members that keep it from completing;
    `size`: all members, as far as they are known."""

    comm: int | None
    name: str
    kind: str
    op: str | None
    seq: int | None
    since_ns: int | None
    waiting: tuple[int, ...]
    missing: tuple[int, ...]
    size: int

    def __str__(self) -> str:
        """`63 of 64 ranks are in AllReduce 30`."""
        waiting = len(self.waiting)
        are = "is" if waiting == 1 else "are"
        return f"{waiting} of {self.size} ranks {are} in {self.op or 'call'} {self.seq}"


def blocked_calls(incident: Incident) -> tuple[BlockedCall, ...]:
    """The calls, the one with the fewest missing and most waiting ranks first; none if nobody
    waits. Raises MissingEvidence where operations and their counts are unknown."""
    incident.require(["front"])
    rows = incident.con.execute(
        """
        WITH groups AS (
            SELECT comm, any_value(coalesce(role, name)) AS name,
                coalesce(max(size), count(DISTINCT rank)) AS size
            FROM comms GROUP BY comm)
        SELECT f.comm, coalesce(any_value(g.name), ''), f.kind, f.op, f.seq, min(f.since_ns),
            list(f.rank ORDER BY f.rank), f.missing,
            greatest(any_value(g.size) FILTER (f.kind = 'coll'), count(*) + len(f.missing))
        FROM front f LEFT JOIN groups g USING (comm)
        GROUP BY f.comm, f.kind, f.op, f.seq, f.missing
        ORDER BY len(f.missing) = 0, len(f.missing), count(*) DESC, f.comm, f.seq
        """
    ).fetchall()
    return tuple(
        BlockedCall(comm, name, kind, op, seq, since_ns, tuple(waiting), tuple(missing), size)
        for comm, name, kind, op, seq, since_ns, waiting, missing, size in rows
    )


def front(incident: Incident) -> Suspect | None:
    """In which call ranks wait where their chains of waiting end, and for whom; None if nobody
    waits."""
    try:
        calls = blocked_calls(incident)
    except (MissingEvidence, RelationFailed):
        return None
    waits = {rank for each in calls for rank in each.waiting}
    missing = {rank for each in calls for rank in each.missing}
    awaited = evidence.awaited_ranks(incident) or sorted(missing - waits)
    if not calls:  # of counters, the waiting ranks may go unnamed
        return (
            Suspect(blamed(awaited), "others made calls that nothing shows it to have made")
            if awaited
            else None
        )
    call = max(calls, key=lambda one: (bool({*awaited} & {*one.missing}), len(one.waiting)))
    waiting = len(waits)
    said = str(call) if waiting == len(call.waiting) else f"{waiting} ranks wait: {call}"
    if not awaited or len(awaited) >= max(waiting, _MOST_AWAITED + 1):
        return Suspect((), said)
    doing = evidence.doing(incident) if len(awaited) <= _MOST_AWAITED else {}
    named = [rank for rank in awaited if doing.get(rank, ("",))[0] != COLLECTIVE] or awaited
    last = evidence.last_calls(incident, call.comm, named) if call.kind == "coll" else []
    where = [f"at {last[0]}"] if len(last) == 1 else []
    where += [f"in {': '.join(doing[rank])}" for rank in named if rank in doing]
    whom = "it is" if len(named) == 1 else "they are"
    return Suspect(blamed(named), f"{said}; {whom} {', '.join(where)}" if where else said)
