"""Dumps that were written at different times: nobody is blamed for what others called later."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from oncall.evidence import Incident

S = 10**9
START = 1_700_000_000 * S
RANKS = 6
CALLED = START + 60 * S


def stopped(incident: Incident, without: Collection[int], written_s: dict[int, int]) -> None:
    """All ranks ended operation 1, and all but some called the second, ten minutes ago; each dump
    was written so long after that call."""
    members = {"job": "j", "comm": 1, "rank": [*range(RANKS)], "size": RANKS}
    incident.append("comms", members)
    each = {"job": "j", "comm": 1, "kind": "coll", "op": "AllReduce"}
    ended = {"rank": [*range(RANKS)], "enqueued_ns": START, "ended_ns": START + S, "done": True}
    incident.append("ops", each | ended | {"seq": 1})
    waiting = [rank for rank in range(RANKS) if rank not in without]
    incident.append("ops", each | {"seq": 2, "rank": waiting, "enqueued_ns": CALLED, "done": False})
    written_ns = [CALLED + written_s.get(rank, 600) * S for rank in range(RANKS)]
    dump = {"kind": "flight_recorder", "path": [f"rank_{rank}" for rank in range(RANKS)]}
    incident.append(
        "recordings", {"job": "j", "rank": [*range(RANKS)], "written_ns": written_ns} | dump
    )


@pytest.mark.parametrize(
    ("without", "written_s", "blamed"),
    [
        pytest.param({3, 5}, {}, {(3, "absent"), (5, "absent")}, id="all at one time"),
        pytest.param({3, 5}, {3: -30}, {(5, "absent")}, id="one before the call"),
        pytest.param({3, 5}, {3: 1}, {(3, "absent"), (5, "absent")}, id="one after the call"),
        pytest.param({3}, {3: -30}, {(3, "silent")}, id="the only one before the call"),
    ],
)
def test_who_is_blamed(
    incident: Incident,
    without: set[int],
    written_s: dict[int, int],
    blamed: set[tuple[int, str]],
) -> None:
    stopped(incident, without, written_s)
    incident.require(["hang_roots"])
    found = incident.con.execute("SELECT DISTINCT rank, how FROM hang_roots").fetchall()
    assert set(found) == blamed
