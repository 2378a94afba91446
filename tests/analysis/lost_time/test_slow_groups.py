"""Groups whose transfers are slower than their siblings', where nothing shows iterations."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from oncall.analysis.lost_time.causes import Entry
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.programs import read_programs
from oncall.analysis.lost_time.slow_groups import slow_groups
from oncall.evidence import Incident

from .test_lateness import MS, RANKS, TWO_STREAMS, UNIX_NS, even, played

LIMITS = Limits()
SLOW, PAIR = TWO_STREAMS[-1]  # ranks 3 and 7, one of four pairs


def slower(comms: tuple[int, ...], to_ms: float) -> Any:
    return lambda _iteration, comm: to_ms if comm in comms else 1


def found(columns: dict[str, Any], *more: dict[str, Any]) -> Entry | None:
    with Incident.empty() as incident:
        incident.append("ops", columns)
        for rows in more:
            incident.append("ops", rows)
        incident.require(["operations", "members"])
        programs = read_programs(incident.con, "j", LIMITS)
    assert programs is not None
    return slow_groups(programs, LIMITS)


def transfers(slow: int | None) -> dict[str, Any]:
    """Each rank sends to its neighbour again and again; every other time it waits for it."""
    rows = [
        {"job": "j", "comm": 90, "kind": "p2p", "op": "Send", "rank": rank, "peer": rank ^ 1}
        | {"seq": nth, "count": 512, "done": True, "enqueued_ns": UNIX_NS + (500 + 20 * nth) * MS}
        | {"duration_ns": (4 if rank == slow else 1) * MS + nth % 2 * 8 * MS}
        for rank in range(RANKS)
        for nth in range(10)
    ]
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_a_group_slower_than_like_groups_is_named_with_what_others_wait() -> None:
    entry = found(played(even, TWO_STREAMS, overlaps=False, transfer=slower((SLOW,), 9)))
    assert entry is not None
    assert (entry.cause, entry.ranks, entry.shown_by) == ("transfer", PAIR, "calls")
    assert entry.share > 0.2 and 0 < entry.low <= entry.share


@pytest.mark.parametrize(
    ("comms", "to_ms"),
    [
        ((), 9),  # all alike
        (tuple(comm for comm, _ in TWO_STREAMS[-4:]), 9),  # slow alike: of that kind of groups
        ((SLOW,), 1.5),  # less than twice as long
        (tuple(comm for comm, _ in TWO_STREAMS[-2:]), 9),  # two pairs, which share no rank
    ],
)
def test_what_does_not_stand_out_is_no_slow_group(comms: tuple[int, ...], to_ms: float) -> None:
    columns = played(even, TWO_STREAMS, overlaps=False, transfer=slower(comms, to_ms))
    assert found(columns) is None


def test_a_group_that_takes_long_to_connect_is_not_slow() -> None:
    calls = Counter[int]()

    def transfer(_iteration: int, comm: int) -> float:
        calls[comm] += 1
        if comm != SLOW:
            return 1
        return 400 if calls[comm] == 1 else 1 + calls[comm] % 2 * 1.1

    assert found(played(even, TWO_STREAMS, overlaps=False, transfer=transfer)) is None


def test_a_slow_transfer_that_nobody_waits_for_costs_nothing() -> None:
    columns = played(even, TWO_STREAMS, overlaps=True, transfer=slower((SLOW,), 3))
    assert found(columns) is None


@pytest.mark.parametrize(("slow", "ranks"), [(7, (7,)), (None, PAIR), (2, PAIR)])
def test_whose_sends_are_slow_too_is_the_one_of_its_group(
    slow: int | None, ranks: tuple[int, ...]
) -> None:
    columns = played(even, TWO_STREAMS, overlaps=False, transfer=slower((SLOW,), 9))
    entry = found(columns, transfers(slow))
    assert entry is not None and entry.ranks == ranks
