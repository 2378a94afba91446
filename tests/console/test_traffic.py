"""A session tells what an operation transmitted, and why it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncall.console.evidence_queries import GetCommunicator, GetTraffic
from oncall.console.opening import open_recording
from oncall.console.queries import GetSnapshot
from oncall.core.errors import UsageError


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
