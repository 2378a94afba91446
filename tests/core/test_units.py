"""Quantities: what an engineer writes is read exactly, what is shown can be written back."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.core.errors import UsageError
from oncall.core.units import (
    NS_PER_S,
    Quantity,
    counted,
    format_bytes,
    format_duration,
    format_number,
    format_quantity,
    format_rate,
    parse_duration_ns,
    parse_quantity,
)

WEEK_NS = 7 * 86400 * NS_PER_S
THREE_DIGITS = 0.005  # the most that three significant digits may be off, relative


@pytest.mark.parametrize(
    ("text", "value", "dimension"),
    [
        ("5 min", 300 * NS_PER_S, "duration"),
        ("10m", 600 * NS_PER_S, "duration"),
        ("1.5 s", 1_500_000_000, "duration"),
        (" 250 µs ", 250_000, "duration"),
        ("3 h 10 min", 11_400 * NS_PER_S, "duration"),
        ("1h30m", 5_400 * NS_PER_S, "duration"),
        ("-1 min 30 s", -90 * NS_PER_S, "duration"),
        ("4 B", 4, "bytes"),
        ("64 MiB", 64 * 2**20, "bytes"),
        ("1.5 kB", 1500, "bytes"),
        ("7 GB/s", 7e9, "rate"),
        ("400 Gbit/s", 5e10, "rate"),
        ("400 Gb/s", 5e10, "rate"),
        ("1410 MHz", 1.41e9, "frequency"),
        ("20 %", 0.2, "ratio"),
        ("2x", 2.0, "ratio"),
        ("12,345", 12345, "number"),
        ("1e3", 1000.0, "number"),
        (".5", 0.5, "number"),
        ("-3", -3, "number"),
        (7, 7, "number"),
        (0.25, 0.25, "number"),
        ("ring", "ring", "text"),
        ("", "", "text"),
    ],
)
def test_quantities_are_read(text: str | float, value: float | str, dimension: str) -> None:
    assert parse_quantity(text) == Quantity(value, dimension)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["5 parsecs", "5 MINUTES", "1F1B", "12,34", "5 min late", "1 h 5 GB", "7 GB / s", "1.2.3"],
)
def test_unknown_units_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="unknown unit"):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["1e999", "1e308 d", "9" * 5000 + " s"])
def test_numbers_beyond_any_measure_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="too large"):
        parse_quantity(text)


def test_durations_only() -> None:
    assert parse_duration_ns("10m") == 600 * NS_PER_S
    for text in ("10", "10 MB", "soon", ""):
        with pytest.raises(UsageError, match=r"is not a duration such as 10m"):
            parse_duration_ns(text)


@given(st.text())
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    try:
        quantity = parse_quantity(text)
    except UsageError as error:
        assert f"`{text}`" in str(error)
    else:
        assert (quantity.value == text) == (quantity.dimension == "text")


@pytest.mark.parametrize(
    ("duration_ns", "shown"),
    [
        (0, "0 s"),
        (850, "850 ns"),
        (999.6, "1 µs"),
        (4_600_000, "4.6 ms"),
        (999_400_000, "999 ms"),
        (12.5 * NS_PER_S, "12.5 s"),
        (59.97 * NS_PER_S, "1 min"),
        (90 * NS_PER_S, "1 min 30 s"),
        (3599.7 * NS_PER_S, "1 h"),
        (11_400 * NS_PER_S, "3 h 10 min"),
        (86_399 * NS_PER_S, "1 d"),
        (-100 * 3600 * NS_PER_S, "-4 d 4 h"),
        (math.inf, "inf s"),
        (math.nan, "nan s"),
    ],
)
def test_durations_are_shown(duration_ns: float, shown: str) -> None:
    assert format_duration(duration_ns) == shown


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (format_bytes(512), "512 B"),
        (format_bytes(1023), "1023 B"),
        (format_bytes(64 * 2**20), "64 MiB"),
        (format_bytes(2**20 - 1), "1 MiB"),
        (format_bytes(5000 * 2**50), "5000 PiB"),
        (format_rate(7e9), "7 GB/s"),
        (format_rate(999_960), "1 MB/s"),
        (format_rate(0.00001), "1e-05 B/s"),
        (format_number(12345), "12,345"),
        (format_number(2.5), "2.5"),
        (format_number(math.nan), "nan"),
        (str(Quantity(0.2, "ratio")), "20 %"),
        (str(Quantity(1.41e9, "frequency")), "1410 MHz"),
        (str(Quantity("ring", "text")), "ring"),
    ],
)
def test_quantities_are_shown(shown: str, expected: str) -> None:
    assert shown == expected


positive = st.floats(1e-9, 1e14)
quantities = st.one_of(
    st.builds(Quantity, st.integers(0, 10 * WEEK_NS), st.just("duration")),
    st.builds(Quantity, st.integers(0, 2**60), st.just("bytes")),
    st.builds(Quantity, positive, st.just("rate")),
    st.builds(Quantity, positive, st.just("frequency")),
    st.builds(Quantity, st.floats(1e-8, 1e6), st.just("ratio")),
    st.builds(Quantity, st.integers(-(10**15), 10**15), st.just("number")),
    st.builds(Quantity, positive, st.just("number")),
)


@given(quantities)
def test_what_is_shown_reads_back_within_its_rounding(quantity: Quantity) -> None:
    again = parse_quantity(format_quantity(quantity))
    assert again.dimension == quantity.dimension
    assert again.value == pytest.approx(quantity.value, rel=1.01 * THREE_DIGITS, abs=1e-12)


@given(quantities)
def test_what_is_shown_is_shown_the_same_again(quantity: Quantity) -> None:
    shown = format_quantity(quantity)
    assert format_quantity(parse_quantity(shown)) == shown


@given(st.integers(60 * NS_PER_S, 10 * WEEK_NS))
def test_long_durations_are_rounded_to_their_smaller_unit(duration_ns: int) -> None:
    shown = format_duration(duration_ns)
    smaller = {"min": 1, "h": 60, "d": 3600}[shown.split()[1]] * NS_PER_S
    assert abs(parse_duration_ns(shown) - duration_ns) <= smaller / 2


@pytest.mark.parametrize(
    ("count", "word", "text"),
    [
        (1, "file", "1 file"),
        (0, "file", "0 files"),
        (1024, "process", "1,024 processes"),
        (2, None, "2"),
    ],
)
def test_a_counted_noun(count: int, word: str | None, text: str) -> None:
    assert counted(count, word) == text
