"""Words and places of the stage screen."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from oncall.tui.screens.stages import stage_lanes as model

from ..iterations import stages_view, timeline


def test_what_is_not_over_has_no_height() -> None:
    view = stages_view()
    lines = (*view.iterations[:-1], replace(view.iterations[-1], duration_ns=None, whole=False))
    assert model.pictures(replace(view, iterations=lines)).strip(80)[-1][:2] == ("?", "open")


@given(st.integers(1, 90))
def test_lines_of_a_task_fit(width: int) -> None:
    drawn = timeline()
    box = drawn.lanes[2].boxes[0]
    for line in model.task_lines(drawn.lanes[2], box, drawn, None, width):
        assert len(str(line)) <= width
