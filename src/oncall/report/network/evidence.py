"""What is drawn of the network, read from an incident: its collectives, and one's waiting graph."""

from __future__ import annotations

from contextlib import suppress
from textwrap import wrap
from typing import Any

from oncall.analysis.network.network_paths import network_of
from oncall.core.diagnosis import Diagnosis, Finding, Picture
from oncall.core.errors import UsageError
from oncall.core.printable import clean
from oncall.evidence.incident import Incident
from oncall.report.network.step_evidence import why_unseen
from oncall.report.network.topology_evidence import topology
from oncall.report.network.topology_text import topology_lines
from oncall.report.network.waiting import Collective, Lane, Step, WaitingGraph, window
from oncall.report.network.waiting_text import waiting_lines
from oncall.report.words import roots

NO_STEPS = (
    "no step of a collective's flows is known here: host agents, switches beside the hooks' "
    "traffic, or telemetry files tell them"
)
PICTURE: Picture = "network"
MOST_LANES = 16
PATH_STEPS = 14  # of the path that are drawn to scale; a picture of more tells no step apart
_MOST_COLLECTIVES = 400
_MOST_DRAWN = 2  # of findings; more would bury the report
_COMPACT_WIDTH, _COMPACT_LANES = 76, 10
_STEP = """w.src, w.dst, w.step, w.started_ns, w.ended_ns, w.over, w.expected_ns,
    coalesce(w.excess_ns, 0), coalesce(w.late, false), w.critical, w.waited_for, w.after_src,
    w.after_dst, w.after_step, w.gap_ns, w.waiters"""
_HOMES = "(SELECT rank, any_value(node) AS node FROM ranks GROUP BY rank)"
_NODES = f"LEFT JOIN {_HOMES} a ON a.rank = w.src LEFT JOIN {_HOMES} b ON b.rank = w.dst"


def has_steps(incident: Incident) -> bool:
    """Whether any collective's steps are known; makes ready what is read here."""
    incident.provide(("step_waits", "critical_steps"))
    return incident.rows("step_waits") > 0


def collectives(incident: Incident) -> tuple[Collective, ...]:
    """Those whose steps are known, by time; of very many the ones that lost most. `has_steps`
    comes first."""
    rows = incident.con.execute(
        f"""
        WITH told AS (
            SELECT job, comm, seq, any_value(op) AS op FROM ops WHERE kind = 'coll' GROUP BY ALL),
        steps AS (
            SELECT job, comm, seq, count(DISTINCT src) AS ranks, min(started_ns) AS started_ns,
                max(ended_ns) - min(started_ns) AS took_ns, bool_and(over) AS over
            FROM step_waits GROUP BY ALL),
        lost AS (
            SELECT job, comm, seq, any_value(lost_ns) AS lost_ns FROM critical_steps GROUP BY ALL),
        worst AS (
            SELECT s.job, s.comm, s.seq, t.op, s.ranks, s.started_ns, s.took_ns,
                coalesce(l.lost_ns, 0) AS lost_ns, s.over
            FROM steps s LEFT JOIN lost l USING (job, comm, seq)
            LEFT JOIN told t USING (job, comm, seq)
            ORDER BY lost_ns DESC LIMIT {_MOST_COLLECTIVES})
        FROM worst ORDER BY started_ns, comm, seq
        """
    ).fetchall()
    return tuple(Collective(clean(row[0] or ""), *row[1:]) for row in rows)


def find_collective(
    incident: Incident, comm: int | None = None, seq: int | None = None
) -> Collective:
    """That one; without `seq` the one that lost most. Raises UsageError where it is not there."""
    if not has_steps(incident):
        raise UsageError(NO_STEPS)
    found = [
        one for one in collectives(incident) if comm in (None, one.comm) and seq in (None, one.seq)
    ]
    if not found:
        named = " ".join(
            part
            for part in (
                "" if seq is None else f"{seq}",
                "" if comm is None else f"of {comm:#x}",
            )
            if part
        )
        raise UsageError(f"no steps of a collective {named} are known here")
    return max(found, key=lambda one: (one.lost_ns, one.took_ns))


def waiting_graph(
    incident: Incident, collective: Collective, most: int = MOST_LANES
) -> WaitingGraph:
    """Its critical path, and at most `most` senders around where the path lost most."""
    key = {"comm": collective.comm, "seq": collective.seq}
    path = tuple(
        _step(row)
        for row in incident.con.execute(
            f"""
            SELECT {_STEP}, a.node, b.node FROM step_waits w {_NODES}
            WHERE w.comm = $comm AND w.seq = $seq AND w.critical
            ORDER BY w.started_ns, w.step
            """,
            key,
        ).fetchall()
    )
    if not path:
        raise UsageError(f"no step of {collective.name} is known")
    first, last = window(path, PATH_STEPS)
    if len(path) <= PATH_STEPS:
        first, last = collective.started_ns, collective.started_ns + collective.took_ns
    lanes, senders = _lanes(incident, collective, first, last, most)
    return WaitingGraph(collective, path, lanes, (first, last), senders - len(lanes))


def _lanes(
    incident: Incident, collective: Collective, first: int, last: int, most: int
) -> tuple[tuple[Lane, ...], int]:
    """The senders that tell most of that time: of late critical steps, those on the path, those
    that waited for a late one, those that were late beside it."""
    rows = incident.con.execute(
        f"""
        WITH shown AS (
            FROM step_waits WHERE comm = $comm AND seq = $seq
                AND started_ns < $last AND ended_ns > $first),
        blocked AS (
            SELECT w.src, max(l.excess_ns) AS lost_ns FROM shown w JOIN shown l
                ON (w.after_src, w.after_dst, w.after_step) = (l.src, l.dst, l.step)
            WHERE l.late AND l.critical GROUP BY w.src),
        told AS (
            SELECT s.src, max(excess_ns) FILTER (late AND critical) AS lost_ns,
                bool_or(critical) AS critical, any_value(b.lost_ns) AS waited_ns,
                max(excess_ns) FILTER (late) AS late_ns, count(*) OVER () AS senders
            FROM shown s LEFT JOIN blocked b USING (src) GROUP BY s.src),
        senders AS (
            -- Of many, those that have nothing to do with it would only be in the way.
            FROM told WHERE senders <= $most OR critical OR waited_ns > 0 OR late_ns > 0
            ORDER BY lost_ns DESC NULLS LAST, critical DESC, waited_ns DESC NULLS LAST,
                late_ns DESC NULLS LAST, src LIMIT {int(most)})
        SELECT {_STEP}, a.node, b.node, n.senders FROM shown w JOIN senders n USING (src) {_NODES}
        ORDER BY w.src, w.started_ns, w.step, w.dst
        """,
        {
            "comm": collective.comm,
            "seq": collective.seq,
            "first": first,
            "last": last,
            "most": most,
        },
    ).fetchall()
    steps: dict[int, list[Step]] = {}
    for row in rows:
        steps.setdefault(row[0], []).append(_step(row[:-1]))
    lanes = tuple(Lane(rank, own[0].src_node, tuple(own)) for rank, own in steps.items())
    return lanes, rows[0][-1] if rows else 0


def _step(row: tuple[Any, ...]) -> Step:
    src, dst, step, started_ns, ended_ns, over, expected_ns, excess_ns, late, critical = row[:10]
    waited_for, after_src, after_dst, after_step, gap_ns, waiters, src_node, dst_node = row[10:]
    return Step(
        src=src,
        dst=dst,
        step=step,
        started_ns=started_ns,
        ended_ns=ended_ns,
        over=over,
        expected_ns=expected_ns,
        excess_ns=excess_ns,
        late=late,
        critical=critical,
        waited_for=waited_for,
        after=None if after_src is None else (after_src, after_dst, after_step),
        gap_ns=gap_ns,
        waiters=waiters,
        src_node=clean(src_node or ""),
        dst_node=clean(dst_node or ""),
    )


# ------------------------------------------------------------------- findings


def told_collective(incident: Incident, finding: Finding) -> Collective | None:
    """The collective a finding of a rulebook is about: of its communicator the one that lost
    most."""
    comm = finding.case.get("comm")
    if comm is None:
        return None
    seq = finding.case.get("seq")
    number = int(comm, 16) if isinstance(comm, str) else int(comm)
    return find_collective(incident, number, None if seq is None else int(seq))


def drawings(incident: Incident, diagnosis: Diagnosis, *, plain: bool) -> dict[str, list[str]]:
    """Lines for each root cause in the network: who waits, and the way to where that begins."""
    causes = [one for one in roots(diagnosis) if one.picture == PICTURE]
    if not causes or not has_steps(incident):
        return {}
    shown: dict[str, list[str]] = {}
    for cause in causes[:_MOST_DRAWN]:
        # Of a collective found in whole operations, no steps are known.
        with suppress(UsageError):
            collective = told_collective(incident, cause)
            if collective is not None:
                shown[cause.id] = explained_lines(incident, collective, plain)
    return shown


def explained_lines(incident: Incident, collective: Collective, plain: bool) -> list[str]:
    """Who waits for whose step, and the way from the late step to where its waiting begins."""
    graph = waiting_graph(incident, collective, _COMPACT_LANES)
    lines = waiting_lines(graph, _COMPACT_WIDTH, plain=plain)
    if graph.worst is not None:
        found = topology(incident, network_of(incident.con), collective, graph.worst)
        why = why_unseen(incident, collective, graph.worst)
        if found is not None and found.roots:
            lines += ["", *topology_lines(found, _COMPACT_WIDTH, plain=plain)]
        elif why is not None:
            lines += ["", *wrap(f"Beyond it: {why}", _COMPACT_WIDTH)]
    return lines
