"""What members of a communicator transmitted in one operation, for a pane (Pulse 6.2)."""

from __future__ import annotations

from dataclasses import dataclass

from oncall.core.diagnosis import Diagnosis
from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall.views.traffic.operations import (
    NO_TRAFFIC,
    PICTURE,
    blamed_ranks,
    find_operation,
    has_traffic,
    operation_traffic,
    traffic_map,
)
from oncall.views.traffic.rate_curves import OperationTraffic
from oncall.views.traffic.traffic_map import TrafficMap
from oncall.views.words import roots


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
