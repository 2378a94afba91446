"""Thresholds of round trips: longer ways may take longer, and no threshold is below its base."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.node.triggers.threshold import (
    Way,
    base_rtt_ns,
    late_ns,
    longest_pause_ns,
    measured_threshold_ns,
    threshold_ns,
)

LINKS = st.integers(1, 12)
RATES = st.floats(1e8, 1e11)


@given(links=LINKS, rate=RATES)
def test_a_longer_or_slower_way_may_take_longer(links: int, rate: float) -> None:
    way = Way(links, rate)
    assert threshold_ns(way) > base_rtt_ns(way)
    assert threshold_ns(Way(links + 1, rate)) > threshold_ns(way)
    assert threshold_ns(Way(links, rate / 2)) > threshold_ns(way)


@given(links=LINKS, rate=RATES, bytes_=st.floats(1, 1e9))
def test_a_step_alone_on_its_way_is_not_late(links: int, rate: float, bytes_: float) -> None:
    way = Way(links, rate)
    assert late_ns(bytes_, way) > base_rtt_ns(way) + bytes_ / rate * 1e9
    assert late_ns(2 * bytes_, way) > late_ns(bytes_, way)
    assert longest_pause_ns(Way(links + 1, rate)) > longest_pause_ns(way) > base_rtt_ns(way)


@given(least=st.floats(0, 1e9))
def test_what_was_measured_is_itself_no_reason(least: float) -> None:
    assert measured_threshold_ns(least) > least


def test_a_way_within_a_rack_is_microseconds() -> None:
    rack, across = (base_rtt_ns(Way(links, 100e9 / 8)) for links in (2, 6))
    assert 2_000 < rack < 5_000 < across < 20_000


@pytest.mark.parametrize("wrong", [(0, 1.0), (2, 0.0), (2, float("nan"))])
def test_no_way_is_refused(wrong: tuple[int, float]) -> None:
    with pytest.raises(ValueError, match="no path"):
        Way(*wrong)
