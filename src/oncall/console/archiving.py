"""What fixed an incident, in the configured archive, so that later reports mention it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncall.archive.configuration import read_configuration
from oncall.archive.history import hosts_of
from oncall.archive.incidents import rows_of
from oncall.archive.store import Archive
from oncall.core.printable import clean
from oncall.render.contract import document

if TYPE_CHECKING:
    from oncall.core.diagnosis import Diagnosis
    from oncall.evidence.incident import Incident


def keep_solved(
    incident: Incident, diagnosis: Diagnosis, fixed_by: str, written_ns: int
) -> str | None:
    """Add the diagnosis to the configured archive, with what fixed it. The incident's name there,
    empty if nothing is at fault in what is shown; None without a configured archive. Raises
    BadInput, UsageError or Unreadable if the archive cannot take it."""
    configured = read_configuration()
    if configured.place is None:
        return None
    if not diagnosis.faults:
        return ""
    archive = Archive.at(configured.place, create=True)
    rows = rows_of(document(diagnosis), configured.cluster, written_ns, hosts_of(incident))
    archive.add(rows)
    name = str(rows[0]["incident"])
    archive.solved(name, clean(fixed_by), written_ns)
    return name
