"""Former incidents as evidence: what rules and reports of a new incident read of the archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oncall.archive.episodes import Episode
from oncall.archive.history import Wanted, episodes
from oncall.archive.store import Archive
from oncall.evidence.incident import Incident
from oncall.evidence.schema import BY_NAME

TABLE = "archived_findings"
_MOST = 100_000  # of the newest: a year of 1,000 nodes has some 5,000


def former_faults(archive: Archive, cluster: str, names: Mapping[str, str]) -> tuple[Episode, ...]:
    """What was blamed in the cluster's incidents, oldest first; `names` as in `Wanted`."""
    return episodes(archive, Wanted(cluster=cluster, names=names))[-_MOST:]


def recall(incident: Incident, former: Sequence[Episode]) -> None:
    """Add former faults to the incident's evidence, in the place of those it was saved with."""
    if not former:
        return
    incident.con.execute(f"DELETE FROM {TABLE}")
    columns = {column: column for column in BY_NAME[TABLE].column_names}
    columns |= {"past_job": "job", "found_ns": "first_ns"}
    incident.append(
        TABLE,
        {to: [getattr(one, field) or None for one in former] for to, field in columns.items()},
    )


def hosts_of(incident: Incident) -> dict[int, str]:
    """The host of each rank whose host is recorded."""
    rows = incident.con.execute(
        "SELECT rank, max(node) FROM (SELECT rank, node FROM ranks UNION ALL "
        "SELECT rank, node FROM log_events) WHERE rank >= 0 AND node IS NOT NULL GROUP BY rank"
    ).fetchall()
    return dict(rows)
