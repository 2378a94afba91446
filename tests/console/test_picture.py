"""What is drawn with a hang; tests/console/test_stages.py has what is drawn with a slow stage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from oncall.console.evidence_queries import GetPicture
from oncall.console.queries import GetSnapshot
from oncall.core.errors import UsageError
from oncall.views.ranks.communicators import CommunicatorView

from .conftest import Open


def test_a_hang_is_drawn_as_its_communicator(recorded: Callable[[str], Path], opened: Open) -> None:
    session = opened(recorded("hang"))
    found = session.ask(GetSnapshot()).diagnosis.findings[0]
    drawn = session.ask(GetPicture(found.id, rounds=12))
    assert isinstance(drawn, CommunicatorView)
    assert drawn.finding_seq == found.case["seq"] and len(drawn.seqs) <= 12


def test_a_finding_of_another_snapshot_is_refused(
    recorded: Callable[[str], Path], opened: Open
) -> None:
    session = opened(recorded("hang"))
    session.ask(GetSnapshot())
    with pytest.raises(UsageError, match="no finding F99"):
        session.ask(GetPicture("F99"))
