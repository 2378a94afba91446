"""A simulated incident: rank 2 of four sends to its neighbours at half the bandwidth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncall.evidence.incident import Incident


@pytest.fixture
def incident(congestion: Path) -> Iterator[Incident]:
    with Incident.open(congestion) as opened:
        yield opened
