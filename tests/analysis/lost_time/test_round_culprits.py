"""Who is the last to call in slow rounds, by how many delays of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.together import Job

MS, S = 10**6, 10**9
UNIX_NS = 1_760_000_000 * S
RANKS, CULPRIT, FIRST = 4, 3, 60


def rounds(slow_at_ms: Sequence[float], wait_ms: Sequence[int] = (600,) * 8) -> dict[str, Any]:
    """Columns of `ops`: first rounds of 10 ms each second, then slow ones that wait so long for one
    rank, at these times after them."""
    waits = dict(enumerate(wait_ms, FIRST))
    begins = [UNIX_NS + n * S for n in range(FIRST)]
    begins += [UNIX_NS + FIRST * S + int(at * MS) for at in slow_at_ms]
    rows = [
        {"seq": seq, "rank": rank, "started_ns": at_ns}
        | {"duration_ns": (10 + waits.get(seq, 0) * (rank != CULPRIT)) * MS}
        for seq, at_ns in enumerate(begins)
        for rank in range(RANKS)
    ]
    same = {"job": "j", "comm": 1, "kind": "coll", "op": "AllReduce", "bytes": 1 << 20}
    return same | {"done": True} | {name: [row[name] for row in rows] for name in rows[0]}


@pytest.mark.parametrize(
    ("slow_at_ms", "named"),
    [
        ([1000 * n for n in range(8)], True),
        # One delay shows in four rounds, as a host calls ahead: two delays are jitter.
        ([n * 20 for n in range(4)] + [5000 + n * 20 for n in range(4)], False),
    ],
)
def test_rounds_as_close_as_one_of_them_waits_are_one_delay(
    job: Job, slow_at_ms: list[float], named: bool
) -> None:
    job.append("ops", rounds(slow_at_ms))
    assert job.found("slow_rounds", "count(*)") == [(8,)]
    assert job.found("late_culprits", "rank, rounds") == ([(CULPRIT, 8)] if named else [])


@pytest.mark.parametrize("long_ms", [600, 5000])
def test_two_long_delays_make_no_habit_of_six_short_ones(job: Job, long_ms: int) -> None:
    """As rank 0 has, which saves a checkpoint for all others."""
    job.append("ops", rounds([6000 * n for n in range(8)], [long_ms, long_ms, *[600] * 6]))
    assert job.found("slow_rounds", "count(*)") == [(8,)]
    named = job.found("late_culprits", "rank, rounds")
    assert named == ([(CULPRIT, 8)] if long_ms == 600 else [])


@pytest.mark.parametrize(("sound_s", "over"), [(0, False), (2, False), (3, True)])
def test_it_is_over_after_twice_the_longest_rest_between_two(
    job: Job, sound_s: int, over: bool
) -> None:
    """The first slow round is a little slow by chance: it is not when it began."""
    slow_at_ms = [1000 * n for n in range(10 + sound_s)]
    job.append("ops", rounds(slow_at_ms, [50, 0, *[600] * 8]))
    begin_ns, last_ns = (UNIX_NS + (FIRST + n) * S for n in (2, 9))
    expected = [(begin_ns, last_ns if over else None)]
    assert job.found("late_culprits", "at_ns, until_ns") == expected
    assert job.found("delay_causes", "DISTINCT at_ns, until_ns") == expected


@pytest.mark.parametrize("dumped", [True, False])
def test_who_may_have_waited_for_a_rank_without_data_is_not_late_by_itself(
    job: Job, dumped: bool
) -> None:
    """Of calls alone: the last rank's other group has rank 9, which left a recording or none."""
    columns = rounds([1000 * n for n in range(8)])
    called = {"enqueued_ns": [at + 600 * MS * (r == CULPRIT and s >= FIRST) for at, r, s in zip(
        columns.pop("started_ns"), columns["rank"], columns["seq"], strict=True)]}  # fmt: skip
    del columns["duration_ns"]
    job.append("ops", columns | called)
    job.append("comms", {"comm": 2, "rank": [CULPRIT, 9], "size": 2})
    job.append("comms", {"comm": 1, "rank": list(range(RANKS)), "size": RANKS})
    if dumped:
        job.append("recordings", {"kind": "flight_recorder", "rank": 9})
    found = job.found("late_culprits", "DISTINCT rank, basis")
    assert found == ([(CULPRIT, "arrival")] if dumped else [])


@pytest.mark.parametrize(("sound_s", "over"), [(0, False), (3, True)])
def test_slow_transfers_of_all_are_over_as_delays_are(job: Job, sound_s: int, over: bool) -> None:
    """All members of eight rounds take as long: nobody was late to them."""
    begins = range(FIRST + 8 + sound_s)
    rows = [
        {"seq": seq, "rank": rank, "started_ns": UNIX_NS + seq * S}
        | {"duration_ns": (610 if FIRST <= seq < FIRST + 8 else 10) * MS}
        for seq in begins
        for rank in range(RANKS)
    ]
    same = {"job": "j", "comm": 1, "kind": "coll", "op": "AllReduce", "bytes": 1 << 20}
    job.append("ops", same | {"done": True} | {n: [row[n] for row in rows] for n in rows[0]})
    ends = UNIX_NS + (FIRST + 7) * S if over else None
    assert job.found("slow_round_transfers", "rounds, until_ns") == [(8, ends)]
