"""The fake is a session like any other."""

from __future__ import annotations

import pytest

from oncall.console.evidence_queries import GetRates
from oncall.console.queries import GetSnapshot
from oncall.console.session import Session
from oncall.core.errors import UsageError
from oncall.views.snapshot import RankState

from .fake_session import FakeSession
from .snapshots import FAULT_NS, hang_snapshot, large_snapshot, silent_snapshot


def test_is_a_session_and_counts_its_snapshots() -> None:
    session: Session = FakeSession(hang_snapshot())
    assert [session.ask(GetSnapshot()).version, session.ask(GetSnapshot()).version] == [1, 2]
    assert session.ask(GetSnapshot(FAULT_NS - 1)).diagnosis.healthy


def test_snapshots_fit_together() -> None:
    for snapshot in (hang_snapshot(), large_snapshot(), silent_snapshot()):
        assert (
            len(snapshot.ranks.node)
            == len(snapshot.ranks.state)
            == snapshot.diagnosis.coverage.ranks
        )
        silent = (snapshot.ranks.state == RankState.UNKNOWN).sum()
        assert silent == snapshot.diagnosis.coverage.ranks - snapshot.diagnosis.coverage.ranks_seen


def test_fails_when_asked_to() -> None:
    session = FakeSession()
    session.fails[GetRates] = UsageError("no")
    with pytest.raises(UsageError):
        session.ask(GetRates())
    assert session.asked == [GetRates()]
