"""One job of a recording, as a line to choose."""

from __future__ import annotations

from oncall.core.nodeset import fold_hosts
from oncall.core.printable import clean
from oncall.evidence.incident import Incident
from oncall.views.snapshot import JobLine


def job_line(incident: Incident, job: str) -> JobLine:
    """Its nodes, its ranks, and when it was seen last."""
    con = incident.con
    ((ranks,),) = con.execute(
        "SELECT greatest(count(DISTINCT rank), (SELECT coalesce(max(world_size), 0) FROM jobs "
        "WHERE job = $job)) FROM (SELECT rank FROM ranks WHERE job = $job "
        "UNION SELECT rank FROM comms WHERE job = $job "
        "UNION SELECT rank FROM ops WHERE job = $job)",
        {"job": job},
    ).fetchall()
    nodes = con.execute(
        "SELECT DISTINCT node FROM ranks WHERE job = ? AND node IS NOT NULL", [job]
    ).fetchall()
    ((last_ns,),) = con.execute(
        "SELECT max(greatest(ended_ns, observed_ns, enqueued_ns)) FROM ops WHERE job = ?", [job]
    ).fetchall()
    state = "recorded" + (f" on {clean(fold_hosts(n for (n,) in nodes))}" if nodes else "")
    return JobLine(clean(job), len(nodes), ranks, last_ns, state)
