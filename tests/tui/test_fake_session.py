"""The fake is a session like any other."""

from __future__ import annotations

import pytest

from oncall.console.session import Session
from oncall.console.world import RankState
from oncall.core.errors import UsageError

from .fake_session import FakeSession
from .worlds import FAULT_NS, hang_world, large_world, silent_world


def test_is_a_session_and_counts_its_worlds() -> None:
    session: Session = FakeSession(hang_world())
    assert [session.world().version, session.world().version] == [1, 2]
    assert session.world(FAULT_NS - 1).diagnosis.healthy


def test_worlds_fit_together() -> None:
    for world in (hang_world(), large_world(), silent_world()):
        assert len(world.ranks.node) == len(world.ranks.state) == world.diagnosis.coverage.ranks
        silent = (world.ranks.state == RankState.SILENT).sum()
        assert silent == world.diagnosis.coverage.ranks - world.diagnosis.coverage.ranks_seen


def test_fails_when_told_to() -> None:
    session = FakeSession()
    session.fails["rates"] = UsageError("no")
    with pytest.raises(UsageError):
        session.rates()
    assert session.asked == [("rates", "suspects")]
