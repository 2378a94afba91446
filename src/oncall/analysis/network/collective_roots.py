"""The root causes that made a collective late."""

from __future__ import annotations

from oncall.analysis.network.network_roots import ROOT_COLUMNS
from oncall.evidence import relation


@relation(
    "collective_roots",
    reads=["root_causes"],
    columns=ROOT_COLUMNS,
    source="Vedrfolnir III-B (critical path), III-D2 (signatures)",
)
def collective_roots() -> str:
    """Roots on the critical path, if there are any. Steps that meet only because one of them is
    late (overrun) are no roots. A deadlock in which a step does not end is the only root."""
    return """
        SELECT * EXCLUDE (locked) FROM (
            SELECT *, bool_or(kind = 'deadlock' AND critical AND NOT over) OVER one AS locked
            FROM root_causes
            WINDOW one AS (PARTITION BY job, comm, seq)
            QUALIFY critical OR NOT bool_or(critical) OVER one)
        WHERE kind <> 'overrun' AND (NOT locked OR (kind = 'deadlock' AND NOT over))
    """
