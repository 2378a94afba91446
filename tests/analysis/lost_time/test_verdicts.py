"""The rulebooks on the account of lost time: a slow rank is blamed where it costs time."""

from __future__ import annotations

import pytest

from oncall.evidence import Incident
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.diagnose import diagnose

from .jobs import layers, no_offset


def even(iteration: int, rank: int, layer: int) -> int:
    return 10 + 3 * layer + 2 * (iteration % 3) + 0 * rank


def quick(iteration: int, group: int, layer: int) -> int:
    return 2 + 0 * (iteration + group + layer)


def slow_verdicts(columns: dict[str, list[object]]) -> list[tuple[str, tuple[int, ...], str]]:
    with Incident.empty() as incident:
        incident.append("ops", columns)
        found = diagnose(incident, load_rulebooks([shipped_folder()]))
    return [
        (one.verdict, tuple(blame.where["rank"] for blame in one.blame), one.severity)
        for one in found.findings
        if one.fault_class == "slow" and one.explained_by is None
    ]


def test_a_rank_that_costs_iterations_time_is_s1() -> None:
    def work(iteration: int, rank: int, layer: int) -> int:
        return even(iteration, rank, layer) + (9 if rank == 2 else 0)

    columns = layers(work, quick, 8, timed=True, clock=no_offset)
    assert slow_verdicts(columns) == [("S1", (2,), "warning")]


def test_both_its_work_and_its_transfers_are_s3() -> None:
    def work(iteration: int, rank: int, layer: int) -> int:
        return even(iteration, rank, layer) + (9 if rank == 2 else 0)

    def transfer(iteration: int, group: int, layer: int) -> int:
        return 9 if group == 1 and iteration > 3 else quick(iteration, group, layer)

    columns = layers(work, transfer, 10, timed=True, clock=no_offset)
    assert slow_verdicts(columns) == [("S3", (2,), "warning")]


def test_slow_transfers_are_weighed_by_what_is_left_without_the_slow_work() -> None:
    """3 ms a layer are 4 % of an iteration with the slow work, and 10 % without."""

    def work(iteration: int, rank: int, layer: int) -> int:
        return even(iteration, rank, layer) + (45 if rank == 2 and iteration > 3 else 0)

    def transfer(iteration: int, group: int, layer: int) -> int:
        return 5 if group == 1 and iteration > 3 else quick(iteration, group, layer)

    columns = layers(work, transfer, 10, timed=True, clock=no_offset)
    assert slow_verdicts(columns) == [("S3", (2,), "warning")]


@pytest.mark.parametrize(("rate", "blamed"), [(10, (2,)), (45, (2, 3))])
def test_rates_show_which_of_those_that_share_slow_transfers_is_slow(
    rate: int, blamed: tuple[int, ...]
) -> None:
    def transfer(iteration: int, group: int, layer: int) -> int:
        return 9 if group == 1 and iteration > 3 else quick(iteration, group, layer)

    columns = layers(even, transfer, 10, timed=True, clock=no_offset)
    rates = [rate if rank == 2 else 50 for rank in columns["rank"]]
    columns |= {"send_rate": rates, "recv_rate": rates}
    assert slow_verdicts(columns) == [("S2", blamed, "warning")]


def test_even_work_is_no_finding() -> None:
    columns = layers(even, quick, 8, timed=True, clock=no_offset)
    assert slow_verdicts(columns) == []


def test_what_the_last_member_did_not_record_is_no_slow_transfer() -> None:
    """The others only show how long they waited for it."""

    def work(iteration: int, rank: int, layer: int) -> int:
        return even(iteration, rank, layer) + (40 if rank == 2 else 0)

    columns = layers(work, quick, 10, timed=True, clock=no_offset)
    lost = [
        rank == 2 and comm == 2 and seq // 6 in (3, 5, 7) and seq % 6 == 4
        for rank, comm, seq in zip(columns["rank"], columns["comm"], columns["seq"], strict=True)
    ]
    for name in ("started_ns", "ended_ns"):
        columns[name] = [None if gone else at for gone, at in zip(lost, columns[name], strict=True)]
    assert slow_verdicts(columns) == [("S1", (2,), "warning")]
