"""A finding for tests that are about something else: the fields they name, over plain ones."""

from __future__ import annotations

from typing import Any

from oncall.core.diagnosis import Blame, Finding

_PLAIN: dict[str, Any] = {
    "id": "F1",
    "rulebook": "hang",
    "verdict": "H1",
    "title": "Not entered",
    "fault_class": "hang",
    "severity": "critical",
    "confidence": 0.9,
    "at_ns": None,
    "blame": (Blame("rank", {"rank": 5}),),
    "case": {},
    "story": (),
}


def finding(**fields: Any) -> Finding:
    return Finding(**_PLAIN | fields)


def network_finding(*blame: Blame, **fields: Any) -> Finding:
    """A NIC fails."""
    named = {"rulebook": "network", "verdict": "NIC", "fault_class": "network"}
    return finding(**named, title="A NIC fails", blame=blame, **fields)
