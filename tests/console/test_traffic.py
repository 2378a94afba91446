"""A session tells what an operation transmitted, and why it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncall.console.opening import open_recording
from oncall.console.queries import GetCommunicator, GetSnapshot, GetTraffic
from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident


def test_an_operation_under_the_cursor(congestion: Path) -> None:
    session = open_recording([congestion], None)
    try:
        snapshot = session.ask(GetSnapshot())
        comms = [one.comm for one in snapshot.communicators]
        comm = next(one for one in comms if session.ask(GetCommunicator(one)).has_traffic)
        whole = session.ask(GetTraffic(comm))
        assert whole.curves.blamed == {2}
        first = session.ask(GetTraffic(comm, int(session.ask(GetCommunicator(comm)).seqs[0])))
        assert first.curves.operation.turn < whole.curves.operation.turn
        assert first.routes.bytes.sum() == pytest.approx(
            sum(one.bytes for one in first.curves.senders)
        )
        # Before anything was sent there is nothing to show, and that is said.
        session.ask(GetSnapshot(first.curves.first_ns - 10_000_000))
        with pytest.raises(UsageError):
            session.ask(GetTraffic(comm))
    finally:
        session.close()


def test_no_traffic_is_a_reason(tmp_path: Path) -> None:
    with Incident.empty() as incident:
        now_ns = 1_700_000_000 * 10**9
        for rank in (0, 1):
            incident.append("comms", {"job": ["j"], "comm": [1], "rank": [rank], "size": [2]})
            incident.append(
                "ops",
                {"job": ["j"], "comm": [1], "seq": [0], "rank": [rank], "kind": ["coll"],
                 "op": ["AllReduce"], "started_ns": [now_ns], "ended_ns": [now_ns + 10**6]},
            )  # fmt: skip
        incident.save(tmp_path / "none.oncall")
    session = open_recording([tmp_path / "none.oncall"], None)
    try:
        session.ask(GetSnapshot())
        assert not session.ask(GetCommunicator(1)).has_traffic
        with pytest.raises(UsageError, match="no traffic recorded"):
            session.ask(GetTraffic(1))
    finally:
        session.close()
