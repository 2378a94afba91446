"""Own time: what a rank spends outside all operations, tick by tick."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from oncall.evidence import Incident

UNIX_NS = 1_760_000_000_000_000_000


@dataclass(frozen=True)
class Op:
    comm: int
    kind: str
    start: int
    end: int


@st.composite
def timelines(draw: st.DrawFn) -> list[Op]:
    """A rank's operations in the order of their starts; they may overlap."""
    made: list[Op] = []
    start = 0
    for _ in range(draw(st.integers(0, 10))):
        start += draw(st.integers(1, 6))
        comm, kind = draw(st.sampled_from([(1, "coll"), (2, "coll"), (1, "p2p")]))
        made.append(Op(comm, kind, start, start + draw(st.integers(0, 9))))
    return made


def own_times(ranks: list[list[Op]], origins: list[int], **more: Any) -> dict[Any, int | None]:
    """(rank, comm, seq) -> own_ns; each rank's clock starts at its origin."""
    rows = []
    for rank, timeline in enumerate(ranks):
        numbers: Counter[tuple[int, str]] = Counter()
        for op in timeline:
            numbers[op.comm, op.kind] += 1
            times = (origins[rank] + op.start, origins[rank] + op.end)
            rows.append((rank, op.comm, op.kind, numbers[op.comm, op.kind], *times))
    names = ("rank", "comm", "kind", "seq", "started_ns", "ended_ns")
    columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    return measured({"job": "j"} | columns | more)


def measured(columns: dict[str, Any]) -> dict[Any, int | None]:
    with Incident.empty() as incident:
        incident.append("ops", columns)
        if incident.missing("own_time"):
            return {}
        incident.require(["own_time"])
        rows = incident.con.execute("SELECT rank, comm, seq, own_ns FROM own_time").fetchall()
    assert len({row[:3] for row in rows}) == len(rows)
    return {row[:3]: row[3] for row in rows}


def held(timeline: list[Op]) -> list[tuple[int, int]]:
    """From when to when each operation holds its rank up."""
    meanwhile = [
        [other for other in timeline if op.start < other.start < op.start + int(0.9 * length)]
        for op in timeline
        for length in [op.end - op.start]
    ]
    surplus = Counter[tuple[int, str]]()
    for op, others in zip(timeline, meanwhile, strict=True):
        surplus[op.comm, op.kind] += len(others)
        surplus.subtract((other.comm, other.kind) for other in others)
    last = [
        others[-1] if others and surplus[op.comm, op.kind] > 0 else None
        for op, others in zip(timeline, meanwhile, strict=True)
    ]
    pause = median_pause(timeline, [one is not None for one in last])
    return [
        (max(op.start, beside.end + pause) if beside else op.start, op.end)
        for op, beside in zip(timeline, last, strict=True)
    ]


def median_pause(timeline: list[Op], beside: list[bool]) -> int:
    """Half of the time before calls that hold the rank up is in pauses so long or longer."""
    ends = [op.start if aside else op.end for op, aside in zip(timeline, beside, strict=True)]
    pauses = sorted(
        max(0, op.start - max(ends[:number]))
        for number, op in enumerate(timeline)
        if number and not beside[number]
    )
    for pause, passed in zip(pauses, accumulate(pauses), strict=True):
        if 2 * passed >= sum(pauses):
            return pause
    return 0


def outside(timeline: list[Op], low: int, high: int) -> int:
    """Ticks in [low, high) in which no operation holds the rank up."""
    spans = held(timeline)
    return sum(not any(start <= t < end for start, end in spans) for t in range(low, high))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(timelines(), st.sampled_from([0, 5, UNIX_NS])), min_size=1, max_size=9))
def test_own_time_is_the_time_outside_all_operations(ranks: list[tuple[list[Op], int]]) -> None:
    """Whatever each rank's clock: Unix time on one and time since boot on the next."""
    expected: dict[tuple[int, int, int], int] = {}
    for rank, (timeline, _) in enumerate(ranks):
        for comm in (1, 2):
            mine = [op for op in timeline if (op.comm, op.kind) == (comm, "coll")]
            for number in range(1, len(mine)):
                low, high = mine[number - 1].start, mine[number].start
                expected[rank, comm, number + 1] = outside(timeline, low, high)
    assert own_times([one[0] for one in ranks], [one[1] for one in ranks]) == expected


def test_between_first_and_last_own_times_add_up() -> None:
    timeline = [Op(1, "coll", 10 * k, 10 * k + k) for k in range(8)]
    found = own_times([timeline], [UNIX_NS])
    assert sum(own or 0 for own in found.values()) == 70 - sum(range(7))


def test_what_goes_on_beside_other_calls_holds_a_rank_up_only_after_the_last_of_them() -> None:
    """Gradients (2) are reduced while the rank still computes between calls of its task (1)."""
    tasks = [Op(1, "coll", 10 * k, 10 * k + 2) for k in range(6)]
    gradients = [Op(2, "coll", 5, 28), Op(2, "coll", 28, 80)]
    done = Op(3, "coll", 81, 82)
    timeline = sorted([*tasks, *gradients, done], key=lambda op: op.start)
    found = own_times([[Op(3, "coll", -5, -1), *timeline]], [UNIX_NS])
    assert [found[0, 1, number] for number in range(2, 7)] == [8] * 5
    # The last call is over at 52: 8 later the rank will have been done, and waits for 80.
    assert found[0, 3, 2] == 1 + 5 * 8 + 8 + 1


def test_a_call_of_a_task_is_waited_for_whatever_begins_beside_it() -> None:
    """One call of the task (1) waits long for a peer, and gradients (2) begin in the meantime."""
    tasks = [Op(1, "coll", 10 * k, 10 * k + 2) for k in range(6)]
    tasks += [Op(1, "coll", 60, 160), Op(1, "coll", 170, 172)]
    gradients = [Op(2, "coll", 5, 28), Op(2, "coll", 28, 70), Op(2, "coll", 100, 110)]
    timeline = sorted([*tasks, *gradients], key=lambda op: op.start)
    found = own_times([timeline], [UNIX_NS])
    assert found[0, 1, 8] == 10


def test_own_time_is_unknown_where_an_operation_was_lost() -> None:
    """Number 3 on communicator 1 is lost: what comes around it is not the rank's own time."""
    seqs = [(1, 1), (2, 1), (1, 2), (2, 2), (1, 4), (2, 3), (1, 5), (2, 4)]
    comm, seq = zip(*seqs, strict=True)
    times = {"started_ns": [10 * i for i in range(8)], "ended_ns": [10 * i + 4 for i in range(8)]}
    found = measured(
        {"job": "j", "rank": 0, "kind": "coll", "comm": list(comm), "seq": list(seq)} | times
    )
    assert found == {
        (0, 2, 2): 12,
        (0, 1, 2): 12,
        (0, 1, 4): None,
        (0, 2, 3): None,
        (0, 1, 5): 12,
        (0, 2, 4): 12,
    }


def test_durations_stand_in_for_ends() -> None:
    rows = {"job": "j", "rank": 0, "kind": "coll", "comm": 1, "seq": [1, 2, 3]}
    found = measured(rows | {"enqueued_ns": [10, 30, 60], "duration_ns": [5, 10, 5]})
    assert found == {(0, 1, 2): 15, (0, 1, 3): 20}


def test_where_only_calls_are_known_waiting_for_the_last_is_not_own_time() -> None:
    """Each round, rank 0 computes 30 and waits 70 for rank 1, which computes 100."""
    seqs = list(range(40))
    calls = [(0, 100 * k - 70 * (k >= 20)) for k in seqs] + [(1, 100 * k) for k in seqs]
    rank, at = zip(*calls, strict=True)
    rows = {"job": "j", "comm": 1, "kind": "coll", "rank": list(rank), "seq": seqs * 2}
    found = measured(rows | {"enqueued_ns": [UNIX_NS + t for t in at]})
    assert [found[0, 1, k] for k in (10, 30)] == [100, 30]
    assert [found[1, 1, k] for k in (10, 30)] == [100, 100]


def test_what_the_node_measured_outweighs_what_can_be_computed_here() -> None:
    rows = {"job": "j", "rank": 0, "kind": "coll", "comm": 1, "seq": [1, 2, 3]}
    times = {"started_ns": [10, 30, 60], "ended_ns": [15, 40, 65]}
    assert measured(rows | times | {"own_ns": [2, None, 7]}) == {
        (0, 1, 1): 2,
        (0, 1, 2): 15,
        (0, 1, 3): 7,
    }


def test_nothing_is_computed_between_rows_of_which_only_some_were_kept() -> None:
    rows = {"job": "j", "rank": 0, "kind": "coll", "comm": 1, "seq": [16, 24, 32]}
    times = {"started_ns": [10, 30, 60], "ended_ns": [15, 40, 65], "stands_for": [8, 8, 1]}
    assert measured(rows | times | {"own_ns": [2, None, 7]}) == {(0, 1, 16): 2, (0, 1, 32): 7}
