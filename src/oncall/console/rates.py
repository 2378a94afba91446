"""Rates over time."""

from __future__ import annotations

from oncall.console.world import Series, World
from oncall.evidence.incident import Incident


def series_of(incident: Incident, world: World, kind: str) -> tuple[Series, ...]:  # noqa: ARG001
    return ()
