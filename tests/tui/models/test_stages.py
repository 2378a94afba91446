"""Words and places of the stage screen."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from oncall.tui.screens.stages import stage_lanes as model
from oncall.tui.widgets.lanes import BLOCKS
from oncall.views.stages.timeline import Box, Lane

from ..iterations import MS, SLOW, stages_view, timeline


def test_a_strip_is_higher_where_it_took_longer() -> None:
    glyphs = model.pictures(stages_view()).strip(80)
    heights = [BLOCKS.index(glyph) for glyph, _, _ in glyphs]
    assert heights.index(max(heights)) == SLOW
    assert [look for _, look, _ in glyphs].count("late") == 1
    assert [here for _, _, here in glyphs].index(True) == SLOW
    assert all(
        glyph.isascii() for glyph, _, _ in model.pictures(stages_view()).strip(5, plain=True)
    )


def test_what_is_not_over_has_no_height() -> None:
    view = stages_view()
    lines = (*view.iterations[:-1], replace(view.iterations[-1], duration_ns=None, whole=False))
    assert model.pictures(replace(view, iterations=lines)).strip(80)[-1][:2] == ("?", "open")


def test_neighbours_end_with_the_recording() -> None:
    assert model.pictures(stages_view(0)).neighbour(-1) is None
    assert model.pictures(stages_view(0)).neighbour(1) == 1
    assert model.pictures(stages_view(11)).neighbour(1) is None


def test_pipelines_go_around_and_one_alone_does_not() -> None:
    assert model.next_pipeline(stages_view(3, 0)) == 1
    assert model.next_pipeline(stages_view(3, 1)) == 0
    assert model.next_pipeline(replace(stages_view(), pipelines=(0,))) is None


def test_the_cursor_finds_the_task_of_an_instant_before_a_transfer() -> None:
    wait = Box("forward_recv", 0, 0, 0, 100)
    work = Box("forward", 0, 0, 50, 120)
    lane = Lane(0, "", 0, 0, (wait, work))
    found = [model.box_at(lane, at) for at in (10, 60, 110, 500)]
    assert found == [wait, work, work, work]


def test_a_lane_begins_at_what_matters_on_it() -> None:
    drawn = timeline()
    begin = model.first_box(drawn.lanes[2])
    assert begin is not None and begin.blamed
    begin = model.first_box(timeline(3).lanes[1])
    assert begin is not None and (begin.task, begin.micro_batch) == ("forward", 0)


def test_a_task_says_its_time_its_slack_and_what_it_means() -> None:
    drawn = timeline()
    box = Box("forward", 1, 2, drawn.started_ns + 5 * MS, drawn.started_ns + 45 * MS,
              slack_ns=12 * MS, wait_ns=3 * MS, expected_ns=40 * MS)  # fmt: skip
    assert model.box_line(drawn.lanes[0], box) == (
        "forward of micro-batch 2, chunk 1 on rank 0: 40 ms, expected 40 ms, slack 12 ms"
    )
    assert list(model.box_remarks(box, drawn)) == [
        "could take 12 ms longer without delaying the iteration",
        "began at 5 ms",
        "3 ms bubble before it",
    ]
    hanging = replace(box, ended_ns=None, blamed=True)
    assert "not finished" in model.box_line(drawn.lanes[0], hanging)
    assert next(model.box_remarks(hanging, drawn)).startswith("the first task that did not finish")


@given(st.integers(1, 90))
def test_lines_of_a_task_fit(width: int) -> None:
    drawn = timeline()
    box = drawn.lanes[2].boxes[0]
    for line in model.task_lines(drawn.lanes[2], box, drawn, None, width):
        assert len(str(line)) <= width
