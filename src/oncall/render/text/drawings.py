"""Pictures beside findings: what ranks transmitted, what pipelines did, what a network held up."""

from __future__ import annotations

from contextlib import suppress
from textwrap import wrap

import duckdb

from oncall.analysis.network.network_paths import network_of
from oncall.core.diagnosis import Diagnosis
from oncall.core.errors import Interrupted, UsageError, short_reason
from oncall.core.printable import clean
from oncall.evidence.incident import Incident
from oncall.render.text.lines import Line, line, plain_lines
from oncall.render.text.stages import timeline_lines
from oncall.render.text.topology import topology_lines
from oncall.render.text.traffic import curve_lines, map_lines
from oncall.render.text.waiting import waiting_lines
from oncall.views.network import waiting
from oncall.views.network.provenance import why_unseen
from oncall.views.network.topology import topology
from oncall.views.stages import iterations
from oncall.views.traffic import operations
from oncall.views.words import in_full, roots

_MOST_OTHERS, _MOST_OF_NETWORK = 3, 2  # findings with a picture; more would bury the report
_WIDTH = 76
_MOST_ROWS, _MOST_LANES, _MOST_SENDERS = 8, 16, 10


def drawings_of(incident: Incident, diagnosis: Diagnosis) -> dict[str, list[str]]:
    """Lines by the finding that they are about. A picture that cannot be drawn is its reason: the
    report stands."""
    drawn: dict[str, list[str]] = {}
    for draw, picture in (
        (_of_traffic, operations.PICTURE),
        (_of_stages, iterations.PICTURE),
        (_of_network, waiting.PICTURE),
    ):
        try:
            found = draw(incident, diagnosis)
            drawn |= {about: plain_lines(lines) for about, lines in found.items()}
        except (Interrupted, duckdb.InterruptException):
            raise
        except Exception as error:
            reason = [clean(f"not drawn: {short_reason(error)}")]
            findings = (one for one in diagnosis.findings if one.picture == picture)
            drawn |= {one.id: reason for one in findings}
    return drawn


def _of_traffic(incident: Incident, diagnosis: Diagnosis) -> dict[str, list[Line]]:
    """Lines for each root cause that is about traffic: its operation's curves, and where tokens
    are routed unevenly, to whom."""
    shown: dict[str, list[Line]] = {}
    causes = [one for one in roots(diagnosis) if one.picture == operations.PICTURE][:_MOST_OTHERS]
    if not causes or not operations.has_traffic(incident):
        return shown
    for cause in causes:
        operation = operations.reported_operation(incident, cause)
        if operation is None:
            continue
        blamed = operations.blamed_ranks(incident, cause)
        traffic = operations.operation_traffic(incident, operation, blamed)
        shown[cause.id] = curve_lines(traffic, _WIDTH, _MOST_ROWS)
        if operation.kind == "p2p" and len(traffic.senders) > 2:
            routed = operations.traffic_map(incident, operation=operation, blamed=blamed)
            shown[cause.id] += [Line(), *map_lines(routed, _WIDTH)]
    return shown


def _of_stages(incident: Incident, diagnosis: Diagnosis) -> dict[str, list[Line]]:
    """Lines for each finding, root or not, that is about a stage: the iteration in which it
    shows; where nobody in particular is at fault, the worst one."""
    causes = [
        one
        for one in in_full(diagnosis, len(diagnosis.findings), explain=True)
        if one.picture == iterations.PICTURE
    ]
    if not causes or not iterations.has_stages(incident):
        return {}
    shown: dict[str, list[Line]] = {}
    for cause in causes[:_MOST_OTHERS]:
        iteration, replica = iterations.reported_iteration(incident, cause) or (None, None)
        drawn = iterations.timeline(incident, iteration, None if replica is None else [replica])
        shown[cause.id] = timeline_lines(drawn, _WIDTH, _MOST_LANES)
    return shown


def _of_network(incident: Incident, diagnosis: Diagnosis) -> dict[str, list[Line]]:
    """Lines for each root cause in the network: who waits, and the way to where that begins."""
    causes = [one for one in roots(diagnosis) if one.picture == waiting.PICTURE]
    if not causes or not waiting.has_steps(incident):
        return {}
    shown: dict[str, list[Line]] = {}
    for cause in causes[:_MOST_OF_NETWORK]:
        # Of a collective found in whole operations, no steps are known.
        with suppress(UsageError):
            collective = waiting.reported_collective(incident, cause)
            if collective is not None:
                shown[cause.id] = _explained_lines(incident, collective)
    return shown


def _explained_lines(incident: Incident, collective: waiting.Collective) -> list[Line]:
    """Who waits for whose step, and the way from the late step to where its waiting begins."""
    graph = waiting.waiting_graph(incident, collective, _MOST_SENDERS)
    lines = waiting_lines(graph, _WIDTH)
    if graph.worst is not None:
        found = topology(incident, network_of(incident.con), collective, graph.worst)
        why = why_unseen(incident, collective, graph.worst)
        if found is not None and found.roots:
            lines += [Line(), *topology_lines(found, _WIDTH)]
        elif why is not None:
            lines += [Line(), *map(line, wrap(f"Not traced further: {why}", _WIDTH))]
    return lines
