"""The rulebooks on the account of lost time: a slow rank is blamed where it costs time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from oncall.core.gains import weighed

from oncall.core.diagnosis import Blame, Finding
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


def finding(rank: int | None, fault_class: str = "slow") -> Finding:
    blame = (
        (Blame("rank", {"rank": rank}),) if rank is not None else (Blame("node", {"node": "a"}),)
    )
    made = Finding(
        "F1", "stages", "STAGE_SLOW", "Slow stage", "slow", "warning", 0.9, None, blame, {}, ()
    )
    return replace(made, fault_class=fault_class)  # type: ignore[arg-type]


def test_what_costs_nothing_is_reported_and_not_blamed() -> None:
    costly, idle, of_node, hang = (
        replace(one, id=f"F{number}")
        for number, one in enumerate([finding(1), finding(2), finding(None), finding(2, "hang")])
    )
    result = weighed([costly, idle, of_node, hang], [1], is_known=True)
    assert [one.severity for one in result] == ["warning", "warning", "warning", "info"]
    assert [one.id for one in result] == ["F0", "F1", "F2", "F3"]
    assert "others wait for someone else" in result[3].reasons[-1].why
    assert result[3].story[-1].say.startswith("It costs nothing") and not result[3].next
    assert weighed([idle], [], is_known=False) == (idle,)


def test_a_stage_costs_what_its_own_ranks_cost_and_not_the_same_stage_of_another_pipeline() -> None:
    costly, idle = (
        replace(
            finding(None), id=f"F{number}", blame=(Blame("stage", {"stage": 1, "ranks": ranks}),)
        )
        for number, ranks in enumerate(([2, 3], [6, 7]))
    )
    result = weighed([costly, idle], [3], {2: 1, 3: 1, 6: 1, 7: 1}, is_known=True)
    assert [one.severity for one in result] == ["warning", "info"]


def test_what_costs_nothing_explains_nothing() -> None:
    idle = replace(finding(2), id="F2")
    shadow = replace(finding(1), explained_by="F2")
    result = weighed([idle, shadow], [1], is_known=True)
    assert [(one.severity, one.explained_by) for one in result] == [
        ("warning", None),
        ("info", None),
    ]


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
