"""What pictures with lanes share: the strip, and where the cursor goes."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from oncall.tui.widgets import lanes as model


@dataclass(frozen=True)
class Bar:
    started_ns: int
    ended_ns: int | None


@given(st.integers(0, 300), st.integers(1, 120), st.data())
def test_the_picture_shown_is_always_in_the_strip(
    count: int, width: int, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, max(count - 1, 0)))
    first, last = model.window(count, width, at)
    assert 0 <= first <= last <= count and last - first <= width
    assert not count or first <= at < last


@given(st.lists(st.none() | st.floats(-1, 9), min_size=1, max_size=40), st.data())
def test_a_strip_marks_the_one_shown_and_grows_with_height(
    heights: list[float | None], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(heights) - 1))
    reported: list[tuple[float | None, model.Look]] = [(one, "normal") for one in heights]
    drawn = model.strip(reported, 40, at)
    assert [here for _, _, here in drawn].index(True) == at
    known = sorted((one, drawn[n][0]) for n, one in enumerate(heights) if one is not None)
    assert [glyph for _, glyph in known] == sorted(glyph for _, glyph in known)
    assert all((one is None) == (drawn[n][0] == "?") for n, one in enumerate(heights))


def test_from_a_bar_that_is_no_stop_it_goes_to_the_next_stop_in_time() -> None:
    stops = (Bar(0, 10), Bar(30, 40))
    assert model.beside(stops, Bar(10, 30), 1) == stops[1]
    assert model.beside(stops, Bar(10, 30), -1) == stops[0]
    assert model.beside(stops, Bar(50, 60), 1) is None


@given(st.integers(1, 300), st.data())
def test_a_click_is_within_the_column_that_was_clicked(columns: int, data: st.DataObject) -> None:
    @dataclass(frozen=True)
    class Drawn:
        shown_ns: tuple[int, int]

    first = data.draw(st.integers(0, 10**18))
    last = first + data.draw(st.integers(2 * columns, 10**12))
    column = data.draw(st.integers(0, columns - 1))
    at_ns = model.instant(Drawn((first, last)), column, columns)
    assert (at_ns - first) * columns // (last - first) == column
