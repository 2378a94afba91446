"""Diagnoses as `oncall diagnose --format json` writes them, for tests of the archive."""

from __future__ import annotations

from typing import Any

from oncall.archive.incidents import rows_of
from oncall.archive.store import Archive

DAY_NS = 86400 * 10**9
FIRST_NS = 1_790_000_000 * 10**9  # 2026-09-21
CABLE: dict[str, Any] = {"kind": "nic", "nic": "mlx5_3", "node": "gpu017"}


def finding(blame: Any = (CABLE,), **fields: Any) -> dict[str, Any]:
    """A NIC of gpu017 fails."""
    return {
        "id": "F1",
        "rulebook": "network",
        "verdict": "NIC",
        "title": "A NIC fails",
        "class": "network",
        "severity": "critical",
        "confidence": 0.9,
        "explained_by": None,
        "at_ns": None,
        "blame": list(blame),
    } | fields


def diagnosis(days: float, *findings: dict[str, Any], job: str = "llama") -> dict[str, Any]:
    """A diagnosis so many days after FIRST_NS."""
    until_ns = FIRST_NS + round(days * DAY_NS)
    return {
        "schema": 2,
        "job": job,
        "window": {"since_ns": until_ns - 600 * 10**9, "until_ns": until_ns},
        "result": "fault" if findings else "none",
        "findings": list(findings),
    }


def added(
    archive: Archive,
    document: dict[str, Any],
    cluster: str = "a3",
    written_ns: int = FIRST_NS,
) -> str:
    """Add it; the incident's name."""
    rows = rows_of(document, cluster, written_ns)
    archive.add(rows)
    return str(rows[0]["incident"])
