"""A simulated incident: rank 2 of four sends to its neighbours at half the bandwidth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncall.evidence.incident import Incident
from oncall_lab.traffic import TrafficFault, TrafficScenario, simulate_traffic


@pytest.fixture(scope="session")
def congestion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The incident saved to a file."""
    fault = TrafficFault("congestion", 2, iteration=2, bandwidth=0.5)
    scenario = TrafficScenario(
        workload="neighbour_exchange", iterations=6, exchange_bytes=8 * 2**20, faults=(fault,)
    )
    path = tmp_path_factory.mktemp("traffic") / "congestion.oncall"
    incident, _ = simulate_traffic(scenario)
    with incident:
        incident.save(path)
    return path


@pytest.fixture
def incident(congestion: Path) -> Iterator[Incident]:
    with Incident.open(congestion) as opened:
        yield opened
