"""A job's configuration, as stated by a person, written into its evidence.

It overrides what the recording says.
"""

from __future__ import annotations

from oncall.core.training import Training
from oncall.evidence.incident import Incident
from oncall.evidence.schema import BY_NAME


def apply_training(
    incident: Incident, training: Training, job: str | None = None
) -> tuple[str, ...]:
    """Write the configuration into table `jobs`, for `job` or for all jobs; returns why it does not
    fit their ranks."""
    con = incident.con
    rows = con.execute(
        "SELECT job, max(world_size) FROM (SELECT job, world_size FROM jobs UNION ALL "
        "SELECT job, max(rank) + 1 FROM ranks GROUP BY job UNION ALL "
        "SELECT job, max(rank) + 1 FROM ops GROUP BY job) "
        "WHERE job IS NOT NULL AND coalesce(job = ?, true) GROUP BY job ORDER BY job",
        [job],
    ).fetchall()
    known = set(BY_NAME["jobs"].column_names)
    for name, world_size in rows:
        settings = {**training.complete(world_size), "origin": training.origin}
        settings = {column: value for column, value in settings.items() if column in known}
        if not con.execute("SELECT 1 FROM jobs WHERE job = ?", [name]).fetchall():
            incident.append("jobs", {"job": [name], "world_size": world_size})
        assignments = ", ".join(f"{column} = ?" for column in settings)
        con.execute(f"UPDATE jobs SET {assignments} WHERE job = ?", [*settings.values(), name])
    misfits = (training.contradiction(world_size) for _, world_size in rows)
    return tuple(misfit for misfit in misfits if misfit)
