"""What was not recorded is a reason, and not an empty screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncall.console.evidence_queries import GetCommunicator, GetNetwork, GetStages, GetTraffic
from oncall.console.queries import GetSnapshot
from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident

from .conftest import Open


def test_of_calls_alone_no_steps_stages_or_traffic_are_known(opened: Open, tmp_path: Path) -> None:
    called = {"job": "j", "comm": 1, "seq": 0, "rank": [0, 1], "kind": "coll", "op": "AllReduce"}
    times = {"started_ns": 10**18, "ended_ns": 10**18 + 10**6}
    with Incident.empty() as incident:
        incident.append("comms", {"job": "j", "comm": 1, "rank": [0, 1], "size": 2})
        incident.append("ops", called | times)
        incident.save(tmp_path / "calls.oncall")
    session = opened(tmp_path / "calls.oncall")
    session.ask(GetSnapshot())
    assert not session.ask(GetCommunicator(1)).has_traffic
    for query, why in (
        (GetNetwork(), "no steps of collectives recorded"),
        (GetStages(), "no pipeline iterations found"),
        (GetTraffic(1), "no traffic recorded"),
    ):
        with pytest.raises(UsageError, match=why):
            session.ask(query)
