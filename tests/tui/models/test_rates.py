"""Rates as glyphs: scales that stay, gaps that show, nothing that a NaN breaks."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oncall.tui.models import rates as model
from oncall.tui.models.rates import GAP
from oncall.views.rates.buckets import Series

S = 10**9


def series(
    values: list[float], name: str = "rank 5", step_s: float = 1.0, **more: object
) -> Series:
    at_ns = (np.arange(len(values)) * step_s * S).astype(np.int64)
    return Series(name, "B/s", at_ns, np.array(values, dtype=np.float64), **more)  # type: ignore[arg-type]


def glyphs(one: Series, width: int) -> str:
    first, last = model.span([one])
    values = model.columns_of(one, first, last, width)
    (scale,) = model.scales([one])
    return "".join(glyph for glyph, _ in model.line(one, values, scale))


def test_silence_is_reported() -> None:
    one = series([10.0, 10.0, math.nan, math.nan, math.nan, math.nan], baseline=(8.0, 12.0))
    assert model.deviation_phrase(one, 5 * S) == (
        "no data for the last 4 s · within baseline 8 to 12 B/s"
    )
    assert model.latest_phrase(one, 5 * S) == "last 10 B/s"
    assert model.latest_phrase(one, 2 * S) == "10 B/s"
    assert model.deviation_phrase(series([math.nan]), 0) == "no data"


_RATES = st.floats(0, 1e12) | st.just(math.nan)


@given(st.lists(_RATES, min_size=1, max_size=80), st.integers(1, 200), st.integers(1, 8))
def test_any_series_fills_its_width(values: list[float], width: int, height: int) -> None:
    one = series(values)
    (scale,) = model.scales([one])
    columns = model.columns_of(one, *model.span([one]), width)
    assert len(columns) == width
    known = [value for value in values if not math.isnan(value)]
    shown = columns[np.isfinite(columns)]
    assert len(shown) == 0 if not known else shown.min() >= 0 and shown.max() <= max(known) * 1.001
    level = model.levels(columns, scale)
    assert ((level == GAP) == np.isnan(columns)).all() and level.max() <= 8
    rows = model.chart(one, columns, scale, height)
    assert [len(row) for row in rows] == [width] * height
