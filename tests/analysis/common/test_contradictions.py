"""Two records that cannot both be are reported, and sound evidence is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.sql import found

from oncall.evidence.incident import Incident

S = 10**9
NOW = 1_760_000_000 * S


@pytest.fixture
def incident() -> Iterator[Incident]:
    """Two ranks of one communicator on two nodes, each with two whole operations."""
    with Incident.empty() as made:
        made.append("ranks", {"job": "j", "rank": [0, 1], "node": ["a", "b"], "started_ns": NOW})
        made.append(
            "comms", {"job": "j", "comm": 7, "rank": [0, 1], "comm_rank": [0, 1], "size": 2}
        )
        for rank in (0, 1):
            called = [NOW + 60 * S, NOW + 61 * S]
            add(
                made,
                "ops",
                rank=rank,
                seq=[1, 2],
                enqueued_ns=called,
                started_ns=called,
                ended_ns=[at + S // 2 for at in called],
            )
            add(made, "launches", rank=rank, launched=2, completed=2, at_ns=NOW + 70 * S)
        yield made


def add(incident: Incident, table: str, **columns: Any) -> None:
    fixed = {"ops": {"kind": "coll", "op": "AllReduce"}}.get(table, {})
    comm = {"comm": 7} if table != "ranks" else {}
    incident.append(table, {"job": "j"} | comm | fixed | columns)


def reported(incident: Incident) -> list[tuple[Any, ...]]:
    return found(incident, "contradictions", "what, example, tables, ranks")


def test_sound_evidence_contradicts_nothing(incident: Incident) -> None:
    # A record twice, a clock a little off, a restart elsewhere and counters read before the end.
    add(incident, "ops", rank=0, seq=2, started_ns=NOW + 61 * S, ended_ns=NOW + 61 * S + S // 2)
    add(incident, "ops", rank=0, seq=3, enqueued_ns=NOW + 62 * S, ended_ns=NOW + 62 * S - S // 100)
    add(incident, "ops", rank=1, seq=3, enqueued_ns=NOW + 69 * S, ended_ns=NOW + 71 * S)
    add(incident, "launches", rank=0, launched=3, completed=3, at_ns=NOW + 80 * S)
    board = {"launched": 5, "completed": 6, "source": "board"}
    add(incident, "launches", rank=1, at_ns=NOW + 80 * S, **board)
    add(incident, "ranks", rank=1, node="c", started_ns=NOW + 3600 * S)
    assert reported(incident) == []


@pytest.mark.parametrize(
    ("table", "columns", "expected"),
    [
        (
            "ops",
            {"rank": 0, "seq": 3, "enqueued_ns": NOW + 70 * S, "ended_ns": NOW + 65 * S},
            (
                "1 operation ended before it began",
                "AllReduce 3 of rank 0 5 s before",
                ["ops"],
                [0],
            ),
        ),
        (
            "ops",
            {"rank": 1, "seq": 2, "started_ns": NOW + 61 * S, "ended_ns": NOW + 64 * S},
            (
                "1 operation completed twice",
                "AllReduce 2 of rank 1, 2.5 s apart",
                ["ops"],
                [1],
            ),
        ),
        (
            "launches",
            {"rank": 1, "launched": 2, "completed": 9, "at_ns": NOW + 65 * S},
            (
                "1 rank completed more operations than it launched",
                "rank 1 launched 2 and completed 9",
                ["launches"],
                [1],
            ),
        ),
        (
            "ops",
            {"rank": 0, "seq": 5, "started_ns": NOW + 62 * S, "ended_ns": NOW + 63 * S},
            (
                "1 rank completed operations that it never launched",
                "rank 0 launched 2 and completed number 5",
                ["launches", "ops"],
                [0],
            ),
        ),
        (
            "ops",
            {"rank": 1, "seq": 0, "started_ns": NOW - 30 * S, "ended_ns": NOW - 29 * S},
            (
                "1 rank called operations before its process started",
                "rank 1 30 s before",
                ["ops", "ranks"],
                [1],
            ),
        ),
        (
            "comms",
            {"rank": [2, 3], "comm_rank": [2, 3], "size": 2},
            (
                "1 communicator with more members than the size",
                "communicator 0x0000000000000007: 4 of 2",
                ["comms"],
                None,
            ),
        ),
        (
            "comms",
            {"rank": 1, "comm_rank": 1, "size": 4, "name": "tp_1"},
            (
                "1 communicator with members of different sizes",
                "tp_1 0x0000000000000007: 2 and 4",
                ["comms"],
                None,
            ),
        ),
        (
            "comms",
            {"rank": 0, "comm_rank": 1, "size": 2},
            (
                "1 communicator with two members in one place",
                "communicator 0x0000000000000007",
                ["comms"],
                None,
            ),
        ),
        (
            "ranks",
            {"rank": 0, "node": "b", "started_ns": NOW + S},
            ("1 rank on two nodes at once", "rank 0 on a and b", ["ranks"], [0]),
        ),
    ],
)
def test_each_contradiction_is_reported_with_an_example(
    incident: Incident, table: str, columns: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    add(incident, table, **columns)
    assert reported(incident) == [expected]


def test_a_clock_years_away_is_reported(incident: Incident) -> None:
    incident.con.execute(
        f"UPDATE ops SET seq = seq, enqueued_ns = {86_400 * 365 * 50 * S}, "
        f"started_ns = {86_400 * 365 * 90 * S}, ended_ns = {86_400 * 365 * 90 * S + S} "
        "WHERE rank = 1"
    )
    incident.con.execute("DELETE FROM launches; DELETE FROM ranks")
    [(what, _, tables, ranks)] = reported(incident)
    assert what == "1 rank recorded times years from the other ranks'"
    assert (tables, ranks) == (["ops"], [1])


def test_counts_say_how_often(incident: Incident) -> None:
    incident.con.execute(f"UPDATE ops SET ended_ns = enqueued_ns - {S}")
    [(what, example, _, ranks)] = reported(incident)
    assert what == "4 operations ended before they began"
    assert example == "AllReduce 2 of rank 1 1 s before"
    assert ranks == [0, 1]


def test_files_of_two_runs_are_reported(incident: Incident) -> None:
    # Rank 0 went on without rank 1 and ended before rank 1 made its last call.
    at = NOW + 40 * S
    incident.con.execute("DELETE FROM launches; DELETE FROM ops WHERE rank = 0")
    add(incident, "ops", rank=0, seq=[50, 51], enqueued_ns=at, started_ns=at, ended_ns=at + S)
    [(what, example, _, ranks)] = reported(incident)
    assert "files of different runs" in what and ranks == [1]
    assert example == "rank 1 came to number 2, 21 s after others had completed number 51"


def test_a_rank_that_was_recorded_earlier_contradicts_nothing(incident: Incident) -> None:
    at = NOW + 90 * S
    incident.con.execute("DELETE FROM launches")
    add(incident, "ops", rank=0, seq=[50, 51], enqueued_ns=at, started_ns=at, ended_ns=at + S)
    assert reported(incident) == []
