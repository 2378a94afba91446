"""What devices show over a recording, and the rhythm of ranks that are late of their own making."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oncall.analysis.devices.states import MEASURED
from oncall.evidence import Incident

S = 10**9
MS = 10**6
STEPS = 20
CALLS = 8  # of a step, on the first communicator; then one on the second


def rows(incident: Incident, relation: str, columns: str) -> list[tuple[Any, ...]]:
    incident.provide([relation])
    return incident.con.execute(f"SELECT {columns} FROM {relation} ORDER BY ALL").fetchall()


def train(incident: Incident, own_ms: Callable[[int, int, int], float]) -> None:
    """Three ranks; each call lasts 2 ms from the last arrival on, after `own_ms` (rank, step,
    call) of each rank's own time."""
    ranks = [0, 1, 2]
    incident.append("ranks", {"job": "j", "rank": ranks, "node": "n0", "gpu": ranks})
    for comm in (1, 2):
        recorded = {"comm": comm, "rank": ranks, "comm_rank": ranks, "size": 3}
        incident.append("comms", {"job": "j"} | recorded)
    free = [0.0, 0.0, 0.0]
    made: list[tuple[int, int, int, int, int]] = []
    for step in range(STEPS):
        for call in range(CALLS + 1):
            comm = 1 if call < CALLS else 2
            seq = step * CALLS + call if comm == 1 else step
            entered = [free[rank] + own_ms(rank, step, call) for rank in ranks]
            end = max(entered) + 2
            made += [(comm, seq, r, int(entered[r] * MS), int(end * MS)) for r in ranks]
            free = [end] * 3
    names = ("comm", "seq", "rank", "started_ns", "ended_ns")
    columns = {name: [row[i] for row in made] for i, name in enumerate(names)}
    incident.append(
        "ops", {"job": "j", "kind": "coll", "op": "AllReduce", "bytes": 2**26} | columns
    )


def habits(incident: Incident) -> list[tuple[int, int, str | None]]:
    return rows(incident, "pausing_ranks", "rank, comm, habit")


def test_a_slow_rank_is_late_at_every_operation(incident: Incident) -> None:
    train(incident, lambda rank, _step, _call: 20 if rank == 1 else 10)
    assert habits(incident) == [(1, 1, None)]


def test_a_batch_is_late_at_one_place_of_each_step(incident: Incident) -> None:
    train(incident, lambda rank, _step, call: 60 if (rank, call) == (1, 0) else 10)
    assert habits(incident) == [(1, 1, "loading")]


def test_pauses_fall_anywhere(incident: Incident) -> None:
    def pauses(step: int, call: int) -> bool:
        return step % 2 == 0 and call == step % 8

    train(incident, lambda rank, step, call: 60 if rank == 1 and pauses(step, call) else 10)
    assert habits(incident) == [(1, 1, "collecting")]


def test_who_waits_for_others_is_not_late(incident: Incident) -> None:
    train(incident, lambda _rank, _step, _call: 10)
    assert habits(incident) == []


@pytest.mark.parametrize("relation", ["machine_symptoms", "process_symptoms", "job_symptoms"])
def test_what_was_not_measured_is_empty_beside_what_was(incident: Incident, relation: str) -> None:
    incident.append("ranks", {"job": "j", "rank": [0], "node": "n0"})
    assert incident.missing(relation) == (MEASURED.replace("|", " or "),)

    incident.append("nics", {"node": "n0", "nic": "mlx5_0", "port": 1, "at_ns": [0, S]})

    assert incident.missing(relation) == ()
    assert rows(incident, relation, "*") == []


def test_shares_of_a_nic_are_those_that_last(incident: Incident) -> None:
    """A burst of marks in one part of twelve says nothing, losses in all parts do."""
    seconds = list(range(121))
    incident.append("ranks", {"job": "j", "rank": [0], "node": "n0", "gpu": 0, "nic": "mlx5_0"})
    incident.append(
        "nics",
        {
            "node": "n0",
            "nic": "mlx5_0",
            "port": 1,
            "at_ns": [second * S for second in seconds],
            "tx_bytes": [second * 10**9 for second in seconds],
            "rx_bytes": [second * 10**9 for second in seconds],
            "ecn_marked": [0 if second < 60 else 10**6 for second in seconds],
            "out_of_sequence": [250 * second for second in seconds],
        },
    )

    ((rank, lost, marked),) = rows(incident, "nic_symptoms", "rank, lost, marked")

    assert (rank, marked) == (0, 0)
    assert lost == pytest.approx(250 * 4096 / 1e9)


def test_what_a_nic_does_not_count_has_no_share(incident: Incident) -> None:
    incident.append(
        "nics",
        {
            "node": "n0",
            "nic": "mlx5_0",
            "port": 1,
            "at_ns": [second * S for second in range(121)],
            "tx_bytes": [second * 10**9 for second in range(121)],
            "rx_bytes": [second * 10**9 for second in range(121)],
        },
    )

    assert rows(incident, "nic_symptoms", "lost, resent, marked, dropped") == [(None,) * 4]


def test_parts_of_a_recording_are_of_one_length(incident: Incident) -> None:
    """Their length is no whole number of nanoseconds, and none is rounded to the next part."""
    every = 120  # readings, one in the middle of each step
    at_ns = [step * 10_007 for step in range(every + 1)]
    counted = {"tx_bytes": [10**9 * n for n in range(every + 1)], "rx_bytes": 0, "retransmits": 0}
    incident.append("nics", {"node": "n0", "nic": "mlx5_0", "port": 1, "at_ns": at_ns} | counted)

    begins = rows(incident, "node_metrics", "DISTINCT part, at_ns")

    assert begins == [(part, part * every // 4 * 10_007) for part in range(4)]
