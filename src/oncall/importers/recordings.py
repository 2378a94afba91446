"""What importers add to the evidence tables of any recording: its row in `recordings`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from oncall.evidence.incident import Incident


def append_recording(
    incident: Incident,
    job: str,
    kind: str,
    path: Path,
    rows: int,
    problem: str | None = None,
    notes: Iterable[str | None] = (),
    **columns: Any,
) -> None:
    """Add the outcome of one file: how many rows it gave, and why not more; `columns` as well."""
    incident.append(
        "recordings",
        {
            "job": job,
            "path": [str(path)],
            "kind": kind,
            "rows": rows,
            "problem": [problem],
            "note": ["; ".join(filter(None, notes)) or None],
            **{name: [value] for name, value in columns.items()},
        },
    )
