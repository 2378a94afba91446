"""What the network did to a collective, for a pane: who waited, the way to where that begins, who
contributed, what latencies hosts have; each with the rows behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from oncall.analysis.network.network_paths import network_of
from oncall.core.errors import UsageError
from oncall.core.printable import clean
from oncall.core.units import format_duration
from oncall.evidence.incident import Incident
from oncall.views.network import waiting
from oncall.views.network.provenance import (
    Contributor,
    Provenance,
    contributors,
    late_step_id,
    provenance,
    why_unseen,
)
from oncall.views.network.topology import Topology, topology
from oncall.views.network.waiting import Collective, Step, WaitingGraph
from oncall.views.snapshot import Table

_MOST_ROWS = 200


@dataclass(frozen=True)
class NodeLatency:
    """A ping between a NIC and an ordinary one, when it was measured last; None: not measured."""

    node: str
    nic: str
    network_ns: float | None
    host_ns: float | None
    end_to_end_ns: float | None


@dataclass(frozen=True)
class NetworkView:
    """All collectives whose steps are known, in order, and one of them."""

    collectives: tuple[Collective, ...]
    graph: WaitingGraph
    contributors: tuple[Contributor, ...]
    latencies: tuple[NodeLatency, ...]


@dataclass(frozen=True)
class StepView:
    """What the switches reported about a step. `why_not`: why there is no data."""

    step: Step
    topology: Topology | None
    provenance: Provenance | None
    why_not: str | None


@dataclass(frozen=True)
class Opened:
    """Something on the screen whose rows are asked for: a `step`, a `flow` or a `node`."""

    kind: Literal["step", "flow", "node"]
    collective: Collective
    step: Step | None = None
    flow: int | None = None
    node: str = ""


def network_view(incident: Incident, key: tuple[int, int] | None) -> NetworkView:
    """One collective by (comm, seq); None: the one that lost most. Raises UsageError with the
    reason where it is not there."""
    found = waiting.find_collective(incident, *(key or (None, None)))
    return NetworkView(
        waiting.collectives(incident),
        waiting.waiting_graph(incident, found, waiting.MOST_LANES),
        contributors(incident, found),
        _latencies(incident),
    )


def step_view(incident: Incident, collective: Collective, step: Step) -> StepView:
    """The way of a late step through the network, or why it is not known."""
    if not step.late:
        return StepView(step, None, None, _in_time(step))
    if (why_not := why_unseen(incident, collective, step)) is not None:
        return StepView(step, None, None, why_not)
    net = network_of(incident.con)
    return StepView(
        step,
        topology(incident, net, collective, step),
        provenance(incident, net, collective, step),
        None,
    )


def _in_time(step: Step) -> str:
    if step.expected_ns is None:
        return "the expected time of this step is unknown"
    due = format_duration(step.expected_ns)
    return f"this step took the expected time ({due}); the network did not delay it"


def _latencies(incident: Incident) -> tuple[NodeLatency, ...]:
    """Each NIC's latencies, the slowest first."""
    incident.provide(("latency_shares",))
    rows = incident.con.execute(
        """
        SELECT node, coalesce(nic, ''), network_ns, host_ns, end_to_end_ns FROM latency_shares
        QUALIFY row_number() OVER (PARTITION BY node, nic ORDER BY part DESC) = 1
        ORDER BY coalesce(end_to_end_ns, network_ns) DESC NULLS LAST, node, nic
        """
    ).fetchall()
    return tuple(NodeLatency(clean(node), clean(nic), *times) for node, nic, *times in rows)


# ------------------------------------------------------------------------ rows


def network_rows(incident: Incident, opened: Opened) -> Table:
    """The rows of relations behind what was opened."""
    match opened:
        case Opened("step", step=Step() as step):
            return _step_rows(incident, opened.collective, step)
        case Opened("flow", flow=int() as flow):
            return _table(
                incident,
                """
                SELECT l.step, l.src, l.dst, f.switch || 'P' || f.port AS port,
                    f.packets::BIGINT AS packets,
                    round(f.queued) AS met, round(f.part) AS part, s.score, s.critical
                FROM step_flows f JOIN late_steps l USING (id)
                LEFT JOIN flow_scores s ON s.id = f.id AND s.flow = f.flow
                WHERE l.comm = $comm AND l.seq = $seq AND f.flow = $flow
                ORDER BY s.score DESC NULLS LAST, l.id, port
                """,
                {**opened.collective.parameters, "flow": flow},
                ("flow_scores", "step_flows", "late_steps"),
            )
        case Opened("node", node=str() as node) if node:
            return _table(
                incident,
                """
                SELECT nic, target_node, target_nic, part, network_ns, end_to_end_ns, host_ns,
                    pings, lost FROM latency_split WHERE node = $node
                ORDER BY part DESC, end_to_end_ns DESC NULLS LAST, target_node
                """,
                {"node": node},
                ("latency_split",),
            )
    raise UsageError("there is nothing to open here")


def _step_rows(incident: Incident, collective: Collective, step: Step) -> Table:
    """The ports that reported while a late step ran; of one in time, the step itself."""
    key = {**collective.parameters, "src": step.src, "dst": step.dst, "step": step.step}
    if step.late and late_step_id(incident, collective, step) is not None:
        ports = _table(
            incident,
            """
            SELECT p.switch || 'P' || p.port AS port, p.packets::BIGINT AS packets,
                round(p.depth, 1) AS queue,
                round(p.paused_ns)::BIGINT AS paused_ns, p.longest_ns
            FROM step_ports p JOIN late_steps l USING (id)
            WHERE l.comm = $comm AND l.seq = $seq AND l.src = $src AND l.dst = $dst
                AND l.step = $step
            ORDER BY p.paused_ns DESC NULLS LAST, p.depth DESC NULLS LAST, port
            """,
            key,
            ("step_ports", "late_steps"),
        )
        if ports.rows:
            return ports
    return _table(
        incident,
        """
        SELECT src, dst, step, bytes, started_ns, ended_ns, expected_ns::BIGINT AS expected_ns,
            waited_for, after_src, after_dst, after_step, gap_ns, waiters
        FROM step_waits WHERE comm = $comm AND seq = $seq AND src = $src AND dst = $dst
            AND step = $step
        """,
        key,
        ("step_waits",),
    )


def _table(
    incident: Incident, sql: str, parameters: dict[str, Any], relations: tuple[str, ...]
) -> Table:
    incident.provide(relations)
    cursor = incident.con.execute(sql, parameters)
    columns = tuple(name for name, *_ in cursor.description or ())
    rows = cursor.fetchall()
    lines = tuple(
        tuple(clean(value) if isinstance(value, str) else value for value in row)
        for row in rows[:_MOST_ROWS]
    )
    return Table(columns, lines, len(rows))
