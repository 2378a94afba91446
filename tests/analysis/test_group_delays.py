"""Groups and their transfers: what iterations are, where groups are, and which became slow."""

from __future__ import annotations

from typing import Any

import pytest
from tests.sql import found

from oncall.evidence import Incident

S = 10**9
MS = 10**6
MB = 10**6


def place(incident: Incident, groups: dict[int, list[int]], per_node: int) -> None:
    """Ranks on nodes in turn, and the members of communicators."""
    ranks = sorted({rank for members in groups.values() for rank in members})
    incident.append(
        "ranks",
        {
            "job": "j",
            "rank": ranks,
            "node": [f"n{rank // per_node}" for rank in ranks],
            "gpu": [rank % per_node for rank in ranks],
            "nic": [f"mlx5_{rank % per_node}" for rank in ranks],
        },
    )
    for comm, members in groups.items():
        places = list(range(len(members)))
        columns = {"comm": comm, "rank": members, "comm_rank": places, "size": len(members)}
        incident.append("comms", {"job": "j"} | columns)


def train(
    incident: Incident,
    comm: int,
    members: list[int],
    durations_ms: list[float],
    every_ns: int = S,
) -> None:
    """One AllReduce of 10 MB a second, or more often, of so many milliseconds each."""
    for rank in members:
        at = [k * every_ns for k in range(len(durations_ms))]
        columns: dict[str, Any] = {
            "job": "j",
            "comm": comm,
            "kind": "coll",
            "op": "AllReduce",
            "rank": rank,
            "seq": list(range(len(at))),
            "bytes": 10 * MB,
            "started_ns": at,
            "ended_ns": [t + int(d * MS) for t, d in zip(at, durations_ms, strict=True)],
        }
        incident.append("ops", columns)


def delays(incident: Incident) -> list[tuple[Any, ...]]:
    columns = "comm, beside, round(ratio, 2), round(lost_share, 4)"
    return found(incident, "group_delays", columns)


def test_a_transfer_is_compared_with_what_it_took_before(incident: Incident) -> None:
    place(incident, {1: [0, 1]}, per_node=1)
    train(incident, 1, [0, 1], [1.0] * 50 + [101.0] * 50)
    assert delays(incident) == [(1, False, 101.0, 0.0505)]


def test_who_waits_has_no_slow_transfer(incident: Incident) -> None:
    place(incident, {1: [0, 1]}, per_node=1)
    train(incident, 1, [0], [1.0] * 100)
    train(incident, 1, [1], [1.0] * 50 + [4.0] * 50)
    assert delays(incident) == []


PAIRS = {comm: [comm, comm + 8] for comm in range(8)}  # each across two of sixteen nodes


@pytest.mark.parametrize("slow", [[], [3], [1, 3]])
def test_transfers_are_compared_with_those_of_like_groups(
    incident: Incident, slow: list[int]
) -> None:
    place(incident, PAIRS, per_node=1)
    for comm, members in PAIRS.items():
        took_ms = [40.0 if comm in slow else 20 + comm / 50] * 60
        train(incident, comm, members, took_ms)
    assert [(comm, beside) for comm, beside, *_ in delays(incident)] == [
        (comm, True) for comm in slow
    ]


@pytest.mark.parametrize(("took_ms", "named"), [(1.3, []), (2.0, [("communicator 0x3",)])])
def test_a_slow_group_is_named_if_it_costs_more_than_a_hiccup(
    incident: Incident, took_ms: float, named: list[tuple[str]]
) -> None:
    """In 1.2 s they lose 18 ms, or 60 ms."""
    place(incident, PAIRS, per_node=1)
    for comm, members in PAIRS.items():
        train(incident, comm, members, [took_ms if comm == 3 else 1.0] * 60, every_ns=20 * MS)
    assert found(incident, "delay_causes", "DISTINCT suspect", "shown_by = 'groups'") == named


def test_what_like_groups_differ_by_anyhow_is_noise(incident: Incident) -> None:
    place(incident, PAIRS, per_node=1)
    for comm, members in PAIRS.items():
        train(incident, comm, members, [1.0 + comm / 7] * 60)
    assert delays(incident) == []


def test_a_group_with_a_member_of_unknown_place_is_neither_inside_nor_across(
    incident: Incident,
) -> None:
    incident.append("comms", {"job": "j", "comm": 1, "rank": [0, 1], "size": 2})
    incident.append("ranks", {"job": "j", "rank": [0], "node": "n0"})
    assert found(incident, "group_places", "nodes, across") == [(None, None)]
