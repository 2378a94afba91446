"""How much each other flow contributed to a collective being late (Vedrfolnir III-D3).

A flow's contribution to a port is its part of the queue there, and of the queues of the ports that
this port waited for (equation 1). Its contribution to a flow of the collective is that of the ports
where that flow was seen or was stopped; if both flows met at a port, the part of the packets that
were really met counts (equation 2). Steps on the critical path are weighted by what they lost
(equation 3).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import duckdb

from oncall.analysis.common.graph import components
from oncall.analysis.network.network_paths import Network, Port, label, network_of
from oncall.analysis.network.step_views import INPUTS, Thresholds, View, views
from oncall.evidence import params_of, relation

Scores = dict[int, float]  # flow -> score

_COLUMNS = [
    ("id", "INTEGER", "", "the late step"),
    ("job", "VARCHAR", "", "the job"),
    ("comm", "UBIGINT", "", "communicator"),
    ("seq", "BIGINT", "", "the collective"),
    ("critical", "BOOLEAN", "", "the step is on the longest path"),
    ("flow", "BIGINT", "", "a flow that is not the collective's"),
    ("score", "DOUBLE", "packets", "R(f, cf)"),
    ("meets", "BOOLEAN", "", "it shares a queue with the step's flow"),
    ("ports", "VARCHAR[]", "", "where it delayed the step"),
]


@relation(
    "flow_scores",
    reads=["late_steps"],
    optional=["provenance_edges", "network_roots", *INPUTS],
    empty_without=["late_steps", "step_flows"],
    columns=_COLUMNS,
    source="Vedrfolnir III-D3, equations 1 and 2",
    params=params_of(Thresholds, of="network_roots"),
)
def flow_scores(con: duckdb.DuckDBPyConnection, **params: Any) -> Mapping[str, Any]:
    """Each other flow's contribution to each late step."""
    thresholds = Thresholds(**params)
    net = network_of(con)
    base, chains = _edges(con)
    seen = _seen(con)
    begins = _where_waiting_begins(con)
    inferred = _inferred(con)
    rows: list[tuple[Any, ...]] = []
    for step, view in views(con, net, thresholds):
        scores = port_scores(base[step[0]], chains[step[0]])
        met = seen[step[0]]
        stopped = _stopped(view, net)
        unreported = inferred[step[0]]
        near = {port for port, at in met.items() if at.own} | stopped
        found: Scores = defaultdict(float)
        where: dict[int, list[str]] = defaultdict(list)
        for port in sorted(near):
            at = met.get(port)
            direct = (
                at.waits_for(port in unreported, thresholds.least_queue) if at is not None else {}
            )
            # Where pauses cost the step next to nothing, who is behind them did it no harm.
            at_port = scores if port in stopped else base[step[0]]
            for flow, score in at_port.get(port, {}).items():
                here = base[step[0]].get(port, {}).get(flow, 0.0)
                # Where both meet, what was met counts; a queue too short to wait in counts nothing.
                own = direct.get(flow, 0.0) if at is not None and at.own else here
                found[flow] += score - here + own
            for flow in direct:
                where[flow].append(label(port))
        # Who was seen where a queue must have been has a part in it, however short the report.
        for port in sorted(unreported - near):
            for flow, score in base[step[0]].get(port, {}).items():
                found[flow] += score
        rows += [
            (*step[:4], step[7], flow, score, bool(where[flow]), where[flow])
            for flow, score in found.items()
            if score > 0
            and (where[flow] or _fills_queue(flow, begins.get(step[0], set()), base[step[0]]))
        ]
    return {column[0]: [row[i] for row in rows] for i, column in enumerate(_COLUMNS)}


def port_scores(
    base: Mapping[Port, Scores], chains: Mapping[Port, Mapping[Port, float]]
) -> dict[Port, Scores]:
    """R(f, p) of equation 1: each port after those it waits for; O(edges and what they carry).

    Within a cycle of ports nothing flows: they have what lies outside of it, and their own.
    """
    scores: dict[Port, Scores] = {port: dict(flows) for port, flows in base.items()}
    order = {port: list(nexts) for port, nexts in chains.items()}
    for cycle in components(order):
        for port in cycle:
            own = scores.setdefault(port, {})
            for after, weight in chains.get(port, {}).items():
                if after in cycle:
                    continue
                for flow, score in scores.get(after, {}).items():
                    own[flow] = own.get(flow, 0.0) + score * weight
    return scores


@relation(
    "flow_sizes",
    reads=["collective_steps"],
    empty_without=["flows"],
    columns=[
        "flow",
        ("name", "VARCHAR", "", "its name for display"),
        ("src_host", "VARCHAR", "", "its sender"),
        ("dst_host", "VARCHAR", "", "its receiver"),
        ("bytes", "BIGINT", "bytes", "its size"),
        "started_ns",
        ("ended_ns", "BIGINT", "ns", "its last byte; if not observed, the newest instant known"),
        "is_collective",
    ],
    source="flow records, host agents",
)
def flow_sizes() -> str:
    """Flows with their ends, where these are known."""
    return """
        WITH steps AS (
            SELECT DISTINCT flow FROM collective_steps WHERE flow IS NOT NULL),
        newest AS (
            SELECT max(coalesce(ended_ns, started_ns)) AS at_ns FROM collective_steps)
        SELECT f.flow, coalesce(any_value(f.name), coalesce(any_value(src_host),
                any_value(src_ip)) || '->' || coalesce(any_value(dst_host), any_value(dst_ip)),
                'flow ' || f.flow) AS name,
            coalesce(any_value(src_host), any_value(src_ip)) AS src_host,
            coalesce(any_value(dst_host), any_value(dst_ip)) AS dst_host,
            max(f.bytes) AS bytes, min(f.started_ns) AS started_ns,
            coalesce(max(f.ended_ns), (SELECT at_ns FROM newest)) AS ended_ns,
            coalesce(bool_or(f.is_collective), false) OR f.flow IN (FROM steps) AS is_collective
        FROM flows f WHERE f.flow IS NOT NULL GROUP BY f.flow
    """


@relation(
    "contributors",
    reads=["flow_scores", "critical_steps", "late_steps"],
    empty_without=["flow_scores"],
    columns=[
        "job comm seq flow name src_host dst_host started_ns",
        ("score", "DOUBLE", "packets", "R(f) over the critical path"),
        ("share", "DOUBLE", "", "of all scores; NULL where no critical step was seen"),
        ("place", "INTEGER", "", "1: the first to act on"),
        ("meets", "BOOLEAN", "", "it shares a queue with a flow of the collective"),
        ("critical", "BOOLEAN", "", "it did so, or stopped it, on the critical path"),
        ("ports", "VARCHAR[]", "", "where"),
    ],
    source="Vedrfolnir III-D3, equation 3",
)
def contributors() -> str:
    """Flows ranked by their part in a collective's lateness."""
    return """
        WITH weighed AS (
            SELECT s.*, CASE WHEN s.critical THEN coalesce(c.share, 0) ELSE 0 END AS weight
            FROM flow_scores s JOIN late_steps l USING (id)
            LEFT JOIN critical_steps c ON c.job = s.job AND c.comm = s.comm AND c.seq = s.seq
                AND c.src = l.src AND c.dst = l.dst AND c.step = l.step),
        summed AS (
            SELECT job, comm, seq, flow, sum(score * weight) AS score, max(score) AS most,
                bool_or(meets) AS meets, bool_or(critical) AS critical,
                list_distinct(flatten(list(ports))) AS ports
            FROM weighed GROUP BY ALL)
        SELECT s.job, s.comm, s.seq, s.flow,
            coalesce(n.name, 'flow ' || s.flow) AS name,
            n.src_host, n.dst_host, n.started_ns, s.score,
            s.score / nullif(sum(s.score) OVER c, 0) AS share,
            row_number() OVER (c ORDER BY s.score DESC, s.most DESC, s.flow) AS place,
            s.meets, s.critical, list_sort(s.ports) AS ports
        FROM summed s LEFT JOIN flow_sizes n USING (flow)
        WINDOW c AS (PARTITION BY s.job, s.comm, s.seq)
    """


class _Meeting:
    """The flows at one port while a late step ran."""

    def __init__(self) -> None:
        self.own = False
        self.all_queued = self.packets = 0.0
        self.others: dict[int, tuple[float, float]] = {}  # flow -> met of it, deepest queue with it

    def waits_for(self, inferred: bool, least_queue: float) -> Scores:
        """w(cf, f): of the packets that the step's flow met, each other flow's part.

        A queue that delays no step is none, unless pauses show that it was `inferred`.
        """
        deep = inferred or self.all_queued >= least_queue * self.packets
        return {
            flow: met
            for flow, (met, deepest) in self.others.items()
            if self.own and met > 0 and (deep or deepest >= least_queue)
        }


def _seen(con: duckdb.DuckDBPyConnection) -> dict[int, dict[Port, _Meeting]]:
    meetings: dict[int, dict[Port, _Meeting]] = defaultdict(lambda: defaultdict(_Meeting))
    rows = con.execute(
        """SELECT id, switch, port, flow, packets, queued, met, deepest, own, member
        FROM step_flows"""
    ).fetchall()
    for step, switch, port, flow, packets, queued, met, deepest, own, member in rows:
        meeting = meetings[step][switch, port]
        meeting.packets += packets
        meeting.all_queued += queued or 0.0
        if own:
            meeting.own = True
        elif not member:
            meeting.others[flow] = met or 0.0, deepest or 0.0
    return meetings


def _where_waiting_begins(con: duckdb.DuckDBPyConnection) -> dict[int, set[Port] | None]:
    """The ports with the queues that each late step waits for; None: one of them is not known."""
    rows = con.execute(
        """SELECT id, switch, port, seen FROM network_roots
        WHERE kind IN ('contention', 'backpressure')"""
    ).fetchall()
    begins: dict[int, set[Port] | None] = {}
    for step, switch, port, seen in rows:
        ports = begins.setdefault(step, set())
        if ports is not None:
            begins[step] = ports | {(switch, port)} if seen else None
    return begins


def _inferred(con: duckdb.DuckDBPyConnection) -> dict[int, set[Port]]:
    """The ports where each late step must have waited though no report shows a queue there."""
    ports: dict[int, set[Port]] = defaultdict(set)
    for step, switch, port in con.execute(
        "SELECT id, switch, port FROM network_roots WHERE NOT seen"
    ).fetchall():
        ports[step].add((switch, port))
    return ports


def _fills_queue(flow: int, begins: set[Port] | None, base: Mapping[Port, Scores]) -> bool:
    """Whether a flow that never meets the step's own flow fills a queue where the step's waiting
    begins. Flows that only wait in a stopped port are victims, as the step is."""
    return begins is None or any(base.get(port, {}).get(flow, 0.0) > 0 for port in begins)


def _edges(
    con: duckdb.DuckDBPyConnection,
) -> tuple[dict[int, dict[Port, Scores]], dict[int, dict[Port, dict[Port, float]]]]:
    """w(p, f) of flows that are not the collective's, and w(p, p), for each step."""
    base: dict[int, dict[Port, Scores]] = defaultdict(lambda: defaultdict(dict))
    chains: dict[int, dict[Port, dict[Port, float]]] = defaultdict(lambda: defaultdict(dict))
    rows = con.execute(
        """SELECT id, kind, flow, switch, port, next_switch, next_port, weight
        FROM provenance_edges WHERE kind <> 'flow_port' AND NOT coalesce(member, false)"""
    ).fetchall()
    for step, kind, flow, switch, port, next_switch, next_port, weight in rows:
        if kind == "port_flow":
            base[step][switch, port][flow] = weight or 0.0
        else:
            chains[step][switch, port][next_switch, next_port] = weight
    return base, chains


def _stopped(view: View, net: Network) -> set[Port]:
    """Ports of the step's path whose pauses explain what it lost."""
    return {
        net.ports[port]
        for port in view.path
        if view.paused.get(port, (0.0, 0))[0] > view.thresholds.paused * view.excess_ns
    }
