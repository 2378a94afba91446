"""A schedule is found again in the Sends and Recvs that follow from it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncall.analysis.tasks.schedule_fit import Layout, Seen, Stated, fit, transfers
from oncall.analysis.tasks.schedules import (
    GPIPE,
    INTERLEAVED,
    ONE_FORWARD_ONE_BACKWARD,
    task_order,
)

FORMS = ("one after the other", "exchanged together", "asked for ahead")


def seen(
    schedule: str,
    stages: int,
    micro_batches: int,
    chunks: int = 1,
    *,
    of: Iterable[int] | None = None,
    form: str = FORMS[0],
    directed: bool = True,
) -> list[Seen]:
    """One rank a stage, numbered as the stages."""
    ranks = []
    for stage in range(stages) if of is None else of:
        order = task_order(schedule, stages, stage, micro_batches, chunks)
        is_end = stage in (0, stages - 1)
        neighbours = 1 if stages == 2 or (is_end and chunks == 1) else 2
        shape = transfers(order, directed, form).astype(np.bool_).tobytes()
        ranks.append(Seen(stage, directed, neighbours if directed else 0, [(shape, 5)]))
    return ranks


def layout(stages: int) -> Layout:
    return Layout({stage: (stage, stages) for stage in range(stages)}, "a test")


@settings(max_examples=40)
@given(
    stages=st.integers(3, 8),
    groups=st.integers(2, 4),
    chunks=st.integers(2, 4),
    form=st.sampled_from(FORMS),
    directed=st.booleans(),
)
def test_interleaved_is_found_with_its_chunks_in_whatever_form_it_exchanges(
    stages: int, groups: int, chunks: int, form: str, directed: bool
) -> None:
    ranks = seen(INTERLEAVED, stages, groups * stages, chunks, form=form, directed=directed)
    taken = fit(ranks, [layout(stages)], Stated())
    assert taken is not None
    assert (taken.schedule, taken.chunks) == (INTERLEAVED, chunks)


@settings(max_examples=40)
@given(
    stages=st.integers(2, 8),
    more=st.integers(1, 20),
    schedule=st.sampled_from((ONE_FORWARD_ONE_BACKWARD, GPIPE)),
    directed=st.booleans(),
)
def test_1f1b_and_gpipe_are_distinguished(
    stages: int, more: int, schedule: str, directed: bool
) -> None:
    ranks = seen(schedule, stages, stages + more, directed=directed)
    taken = fit(ranks, [layout(stages)], Stated())
    assert taken is not None
    assert (taken.schedule, taken.chunks) == (schedule, 1)


def test_of_several_layouts_the_one_is_taken_in_which_all_ranks_are_where_they_send() -> None:
    ranks = seen(ONE_FORWARD_ONE_BACKWARD, 4, 8)
    shifted = Layout({rank: (rank, 8) for rank in range(4)}, "the order of ranks")
    taken = fit(ranks, [shifted, layout(4)], Stated())
    assert taken is not None
    assert taken.layout == layout(4)


def test_a_stage_that_tells_two_schedules_alike_tells_none() -> None:
    """GPipe of 8 micro-batches sends as interleaved does with 4 in two chunks, but at the ends."""
    alone = fit(seen(GPIPE, 4, 8, of=[1]), [layout(4)], Stated())
    assert alone is None
    with_the_first = fit(seen(GPIPE, 4, 8, of=[0, 1]), [layout(4)], Stated())
    assert with_the_first is not None
    assert with_the_first.schedule == GPIPE
    result = fit(seen(GPIPE, 4, 8, of=[1]), [layout(4)], Stated(schedule=GPIPE))
    assert result is not None
    assert result.schedule == GPIPE


@pytest.mark.parametrize("reported", [GPIPE, INTERLEAVED])
def test_what_ranks_did_goes_before_what_is_reported(reported: str) -> None:
    ranks = seen(ONE_FORWARD_ONE_BACKWARD, 4, 16)
    taken = fit(ranks, [layout(4)], Stated(schedule=reported))
    assert taken is not None
    assert taken.schedule == ONE_FORWARD_ONE_BACKWARD


def test_what_no_schedule_does_is_not_labelled() -> None:
    backwards_first = np.repeat([False, True], 16).tobytes()
    found = fit([Seen(1, True, 2, [(backwards_first, 3)])], [layout(4)], Stated())
    assert found is None
