"""Lanes in columns: laws for any boxes, and what they look like."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncall.core.printable import to_ascii
from oncall.render.text.stages import lane_runs
from oncall.views.stages.timeline import Box, Lane, Timeline, compact, idle_share

TASKS = ("forward", "backward", "forward_recv", "backward_send", "optimizer", "garbage")


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    started = draw(st.integers(0, 10**6))
    taken = draw(st.none() | st.integers(0, 10**6))
    task = draw(st.sampled_from(TASKS))
    return Box(
        task=task,
        chunk=draw(st.integers(0, 2)),
        micro_batch=draw(st.integers(0, 200)) if "forward" in task or "back" in task else None,
        started_ns=started,
        ended_ns=None if taken is None else started + taken,
        critical=draw(st.booleans()),
        expected_ns=draw(st.none() | st.integers(0, 10**6)),
        blamed=draw(st.booleans()),
    )


def of(*lane: Box, ended_ns: int | None = 100) -> Timeline:
    row = Lane(0, "a", 0, 0, tuple(sorted(lane, key=lambda box: box.started_ns)))
    return Timeline("j", 1, 0, ended_ns, ended_ns, None, False, (row,))


def drawn(*lane: Box, columns: int = 10) -> str:
    timeline = of(*lane)
    return "".join(run.text for run in lane_runs(timeline, timeline.lanes[0], columns))


@given(st.lists(boxes(), min_size=1, max_size=12), st.integers(1, 200))
def test_a_lane_fills_its_columns_exactly(lane: list[Box], columns: int) -> None:
    timeline = of(*lane)
    runs = lane_runs(timeline, timeline.lanes[0], columns)
    text = "".join(run.text for run in runs)
    assert len(text) == columns
    assert "?" not in to_ascii(text)
    assert all(run.text for run in runs)
    assert -1e-9 <= idle_share(timeline, timeline.lanes[0]) <= 1


def test_of_many_lanes_those_that_matter_are_kept() -> None:
    lanes = tuple(
        Lane(rank, "", rank, 0, (Box("forward", 0, 0, 0, 10, blamed=rank == 5),))
        for rank in range(9)
    )
    kept = compact(Timeline("j", 1, 0, 10, 10, None, False, lanes), 3)
    assert [lane.rank for lane in kept.lanes] == [0, 1, 5]
    assert kept.left_out == 6
