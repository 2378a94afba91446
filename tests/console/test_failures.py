"""What cannot be computed of a recording costs a screen, not the console."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oncall.console.evidence_queries import GetRankCard, GetStages
from oncall.console.opening import open_recording
from oncall.console.queries import GetSnapshot
from oncall.console.session import Session
from oncall.core.errors import OncallError
from oncall.evidence.incident import Incident
from oncall.evidence.registry import all_relations


def broken(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def compute(*_: object, **__: object) -> dict[str, object]:
        raise OverflowError("a clock in 2126")

    whole = all_relations()[name]
    monkeypatch.setitem(
        all_relations(), name, replace(whole, sql=None, compute=compute, view=False)
    )


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with Incident.empty() as incident:
        incident.append("comms", {"job": "j", "comm": 7, "rank": [0, 1], "size": 2})
        incident.append(
            "ops",
            {"job": "j", "comm": 7, "kind": "coll", "op": "AllReduce", "rank": [0, 1], "seq": 1}
            | {"started_ns": 10**9, "ended_ns": 2 * 10**9},
        )
        incident.save(tmp_path / "made.oncall")
    opened = open_recording([tmp_path / "made.oncall"], None)
    yield opened
    opened.close()


def test_a_snapshot_without_its_ranks_places_says_what_failed(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch, "witnesses")
    snapshot = session.ask(GetSnapshot())
    assert snapshot.ranks.rank.tolist() == [0, 1]
    assert "could not be computed: witnesses (OverflowError: a clock in 2126)" in [
        gap.reason for gap in snapshot.diagnosis.coverage.gaps
    ]


def test_a_screen_without_its_relation_is_a_message(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch, "labelled_tasks")
    session.ask(GetSnapshot())
    with pytest.raises(OncallError, match=r"could not be computed: labelled_tasks"):
        session.ask(GetStages())
    assert session.ask(GetRankCard(0)).rank == 0


def test_a_screen_that_breaks_is_a_message(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def card_of(*_: object) -> None:
        raise TypeError("no rank")

    monkeypatch.setattr("oncall.views.ranks.rank_card.card_of", card_of)
    session.ask(GetSnapshot())
    with pytest.raises(OncallError, match="cannot answer that: TypeError: no rank"):
        session.ask(GetRankCard(0))
