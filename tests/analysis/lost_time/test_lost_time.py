"""The account of lost time: who costs iterations how much, and who costs nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from oncall.evidence import Incident

from .jobs import LAYERS, MS, UNIX_NS, Clock, Work, layers, no_offset

ITERATIONS = 8
Causes = dict[tuple[str, tuple[int, ...]], float]


def even(iteration: int, who: int, layer: int) -> int:
    """Layers of different weight, iterations of different length, the same for all ranks."""
    return 10 + 3 * layer + 2 * (iteration % 3) + 0 * who


def quick(iteration: int, who: int, layer: int) -> int:
    return 2 + 0 * (iteration + who + layer)


def found(
    columns: dict[str, Any], members: dict[int, tuple[int, ...]] | None = None
) -> tuple[Causes, dict[str, Any]]:
    """The causes with their share, and the account itself; `members` of each communicator."""
    with Incident.empty() as incident:
        incident.append("ops", columns)
        for comm, ranks in (members or {}).items():
            many = len(ranks)
            incident.append(
                "comms",
                {"job": ["j"] * many, "comm": [comm] * many, "rank": list(ranks)}
                | {"size": [many] * many},
            )
        incident.require(["lost_time"])
        names = ("entry", "cause", "rank", "share", "iterations", "replay_error", "whole")
        rows = [
            dict(zip(names, row, strict=True))
            for row in incident.con.execute(
                f"SELECT {', '.join(names)} FROM lost_time ORDER BY entry, rank"
            ).fetchall()
        ]
    causes: Causes = {}
    for entry in sorted({row["entry"] for row in rows if row["entry"]}):
        mine = [row for row in rows if row["entry"] == entry]
        causes[mine[0]["cause"], tuple(row["rank"] for row in mine)] = mine[0]["share"]
    return causes, rows[0] if rows else {}


def played(
    work: Work = even, transfer: Work = quick, *, timed: bool = True, clock: Clock = no_offset
) -> tuple[Causes, dict[str, Any]]:
    return found(layers(work, transfer, ITERATIONS, timed=timed, clock=clock))


@pytest.mark.parametrize("timed", [True, False])
def test_even_work_loses_nothing_and_is_replayed(timed: bool) -> None:
    causes, account = played(timed=timed)
    assert causes == {}
    # The first and the last iteration are open at one end.
    assert account["iterations"] == ITERATIONS - 2
    # Of hosts that run ahead, the last calls of an iteration do not show when they began.
    assert account["replay_error"] == pytest.approx(0, abs=1e-6 if timed else 0.05)


@pytest.mark.parametrize("timed", [True, False])
def test_a_slow_rank_costs_what_its_group_waits_for_it(timed: bool) -> None:
    def work(iteration: int, rank: int, layer: int) -> int:
        return even(iteration, rank, layer) + (9 if rank == 2 else 0)

    causes, account = played(work, timed=timed)
    assert set(causes) == {("own", (2,))}
    lost_ms = 9 * LAYERS * account["iterations"]
    whole = sum(sum(work(i, 2, k) + 2 for k in range(LAYERS)) + 1 for i in range(1, ITERATIONS - 1))
    assert causes["own", (2,)] == pytest.approx(lost_ms / whole, rel=0.1)


def test_where_each_is_late_by_turns_nobody_is_named_alone() -> None:
    def work(iteration: int, rank: int, layer: int) -> int:
        return even(iteration, rank, layer) + (9 if rank == iteration % 4 else 0)

    causes, _ = played(work)
    assert set(causes) == {("turns", (0, 1, 2, 3))}


@pytest.mark.parametrize(("who", "cause"), [(0, "perhaps"), (2, "own")])
def test_rank_0_may_log_every_few_iterations(who: int, cause: str) -> None:
    def work(iteration: int, rank: int, layer: int) -> int:
        return even(iteration, rank, layer) + (3 if rank == who and iteration % 4 == 1 else 0)

    causes, _ = played(work)
    assert set(causes) == {(cause, (who,))}


@pytest.mark.parametrize(
    ("who", "late_ms", "cause"), [(2, 200, "own"), (0, 200, "perhaps"), (2, 20, None)]
)
def test_one_iteration_has_to_cost_as_much_as_if_all_did(
    who: int, late_ms: int, cause: str | None
) -> None:
    def work(iteration: int, rank: int, layer: int) -> int:
        return even(iteration, rank, layer) + (late_ms if (iteration, rank, layer) == (4, who, 1)
                                               else 0)  # fmt: skip

    causes, _ = played(work)
    assert set(causes) == ({(cause, (who,))} if cause else set())


def test_what_one_interrupt_may_cost_is_no_accusation_and_no_all_clear() -> None:
    """The same job a hundred times as fast: rank 2 costs 25 %, but 4 ms in all."""

    def work(iteration: int, rank: int, layer: int) -> int:
        return even(iteration, rank, layer) + (9 if rank == 2 else 0)

    columns = layers(work, quick, ITERATIONS, timed=True, clock=no_offset)
    for name in ("enqueued_ns", "started_ns", "ended_ns", "duration_ns"):
        if name in columns:
            columns[name] = [
                value if value is None else value // 100 if name == "duration_ns"
                else UNIX_NS + (value - UNIX_NS) // 100 for value in columns[name]
            ]  # fmt: skip
    causes, account = found(columns)
    assert causes == {}
    assert account["iterations"] == ITERATIONS - 2
    assert not account["whole"]


def test_what_all_wait_for_elsewhere_costs_nothing() -> None:
    """The second group takes twice as long: a rank of the first may be slow without a loss."""

    def work(iteration: int, rank: int, layer: int) -> int:
        baseline_ns = even(iteration, rank, layer)
        return baseline_ns * 2 if rank in (2, 3) else baseline_ns + (5 if rank == 0 else 0)

    assert ("own", (0,)) not in played(work)[0]


def test_long_samples_of_a_whole_group_are_no_fault() -> None:
    def work(iteration: int, rank: int, layer: int) -> int:
        longer = 20 if rank in (0, 1) and iteration % 2 else 0
        return even(iteration, rank, layer) + longer

    assert played(work)[0] == {}


def test_a_slow_link_is_named_with_all_that_share_it() -> None:
    def transfer(iteration: int, group: int, layer: int) -> int:
        return 12 if group == 1 and iteration > 2 else quick(iteration, group, layer)

    assert set(played(transfer=transfer)[0]) == {("transfer", (2, 3))}


@pytest.mark.parametrize("timed", [True, False])
def test_who_waits_for_a_rank_without_a_recording_is_not_slow(timed: bool) -> None:
    def work(iteration: int, rank: int, layer: int) -> int:
        return even(iteration, rank, layer) + (12 if rank == 3 and iteration > 2 else 0)

    columns = layers(work, quick, ITERATIONS, timed=timed, clock=no_offset)
    kept = [at for at, rank in enumerate(columns["rank"]) if rank != 3]
    rows = {name: [values[at] for at in kept] for name, values in columns.items()}
    causes, _ = found(rows, {1: (0, 1), 2: (2, 3), 9: (0, 1, 2, 3)})
    assert set(causes) == {("unexplained", (None,))}


def test_a_late_rank_is_found_whatever_the_clocks_say() -> None:
    def work(iteration: int, rank: int, layer: int) -> int:
        return even(iteration, rank, layer) + (9 if rank == 1 and iteration > 3 else 0)

    causes, _ = played(work, timed=False, clock=lambda rank: (0, 170, -90, 33)[rank])
    assert set(causes) == {("own", (1,))}


@pytest.mark.parametrize("seed", range(2))
def test_jitter_is_nobodys_fault(seed: int) -> None:
    draw = random.Random(seed)
    causes, _ = played(lambda i, r, k: even(i, r, k) + draw.randint(0, 2))
    assert causes == {}


def test_rows_in_another_order_tell_the_same() -> None:
    def work(iteration: int, rank: int, layer: int) -> int:
        return even(iteration, rank, layer) + (9 if rank == 3 else 0)

    columns = layers(work, quick, ITERATIONS, timed=True, clock=no_offset)
    order = list(range(len(columns["rank"])))
    random.Random(1).shuffle(order)
    shuffled = {name: [values[at] for at in order] for name, values in columns.items()}
    assert found(shuffled) == found(columns)


def test_a_hole_costs_its_iterations_and_no_more() -> None:
    def work(iteration: int, rank: int, layer: int) -> int:
        return even(iteration, rank, layer) + (9 if rank == 2 else 0)

    columns = layers(work, quick, ITERATIONS, timed=True, clock=no_offset)
    kept = [
        at
        for at, (rank, comm, seq) in enumerate(
            zip(columns["rank"], columns["comm"], columns["seq"], strict=True)
        )
        if not (rank == 0 and comm == 1 and seq in (20, 21))
    ]
    causes, _ = found({name: [values[at] for at in kept] for name, values in columns.items()})
    assert set(causes) == {("own", (2,))}


def _alike(late_ms: Callable[[int, int], int], *, timed: bool) -> dict[str, Any]:
    """24 calls of four ranks, every one alike: none begins an iteration. All leave a call at once;
    `late_ms` (call, rank) is by how much a rank came to it late, ms."""
    rows: list[tuple[int, int, int, int | None]] = []
    left_ms = 0
    for call in range(24):
        late = [late_ms(call, rank) for rank in range(4)]
        over_ms = left_ms + 10 + max(late) + 1
        for rank in range(4):
            came_ms = left_ms + 10 + late[rank]
            took = (over_ms - came_ms) * 1_000_000 if timed else None
            rows.append((rank, call, came_ms * 1_000_000, took))
        left_ms = over_ms
    rank, seq, at_ns, took_ns = map(list, zip(*rows, strict=True))
    many = len(rows)
    return {
        "job": ["job"] * many,
        "rank": rank,
        "comm": [1] * many,
        "seq": seq,
        "op": ["AllReduce"] * many,
        "count": [1] * many,
        "enqueued_ns": at_ns,
        "duration_ns": took_ns,
        "done": [True] * many,
    }


def test_where_all_calls_are_alike_durations_show_who_is_late() -> None:
    causes, _ = found(_alike(lambda _, rank: 9 if rank == 2 else 0, timed=True))
    assert set(causes) == {("own", (2,))}
    assert causes["own", (2,)] == pytest.approx(9 / 20, rel=0.1)
    assert found(_alike(lambda *_: 0, timed=True))[0] == {}


def test_where_all_calls_are_alike_and_not_timed_there_is_no_account() -> None:
    assert found(_alike(lambda _, rank: 9 if rank == 2 else 0, timed=False)) == ({}, {})


def test_a_long_wait_that_chance_may_explain_is_no_verdict() -> None:
    columns = _alike(lambda call, rank: 90 if rank == 1 and call in (9, 16) else 0, timed=True)
    assert set(found(columns)[0]) == {("perhaps", (1,))}


def _behind_a_phase_of_work(late_ms: Callable[[int], int]) -> dict[str, Any]:
    """Calls alone of two replicas of two stages: the replicas of a stage reduce four times in an
    iteration, then all do. Hosts wait in each call, and work long before the next one."""
    rows: list[dict[str, Any]] = []
    now = [0] * 4

    def reduce(comm: int, seq: int, members: tuple[int, ...]) -> None:
        over = max(now[rank] for rank in members) + 1
        for rank in members:
            rows.append(
                {"job": "j", "comm": comm, "seq": seq, "rank": rank, "kind": "coll"}
                | {"op": "AllReduce", "count": 1 + (comm < 9), "done": True}
                | {"enqueued_ns": UNIX_NS + now[rank] * MS}
            )
            now[rank] = over

    for iteration in range(12):
        for step in range(4):
            for rank in range(4):
                now[rank] += 50 + late_ms(rank)
            for comm, members in ((1, (0, 2)), (2, (1, 3))):
                reduce(comm, 4 * iteration + step, members)
        reduce(9, iteration, (0, 1, 2, 3))
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_clocks_that_no_call_contradicts_are_right() -> None:
    causes, _ = found(_behind_a_phase_of_work(lambda rank: 30 if rank == 3 else 0))
    assert set(causes) == {("own", (3,))}
    assert causes["own", (3,)] == pytest.approx(30 / 80, rel=0.1)


def test_ranks_that_are_late_alike_are_one_cause() -> None:
    causes, _ = found(_behind_a_phase_of_work(lambda rank: 30 if rank > 1 else 0))
    assert set(causes) == {("own", (2, 3))}
    assert found(_behind_a_phase_of_work(lambda _: 0))[0] == {}
