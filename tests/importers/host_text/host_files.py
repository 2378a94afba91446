"""Text of hosts, written and read."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from oncall.evidence.incident import Incident
from oncall.importers.detect import load

XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=7, name=python, GPU has fallen off the bus."
AT_NS = int(datetime(2026, 11, 20, 3, 10, tzinfo=UTC).timestamp()) * 10**9


def reported(incident: Incident, path: Path, text: str, columns: str, table: str) -> list[Any]:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    load([path], incident)
    return incident.con.execute(f"SELECT {columns} FROM {table} ORDER BY ALL").fetchall()


def events(incident: Incident, path: Path, text: str) -> list[Any]:
    return reported(incident, path, text, "node, at_ns, code, device, line", "host_events")
