"""Laws of rate curves: bytes are kept at every resolution, gaps stay gaps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.core.printable import to_ascii
from oncall.render.svg.traffic import curves_svg
from oncall.render.text.lines import plain_lines
from oncall.render.text.traffic import curve_lines
from oncall.views.traffic.rate_curves import (
    Operation,
    OperationTraffic,
    Sender,
    binned,
    compact,
    rate_curves,
    round_up,
)

EPOCH_NS = 32_000
START_NS = 1_700_000_000 * 10**9


def sender(rank: int, slots: list[int], sent: int = 1_600_000, **changes: object) -> Sender:
    """A rank that sends `sent` bytes in each of the epochs numbered `slots`."""
    start_ns = START_NS + np.array(slots, dtype=np.int64) * EPOCH_NS
    values: dict[str, object] = {
        "rank": rank,
        "node": f"gpu{rank:03}",
        "started_ns": int(start_ns[0]) if slots else None,
        "ended_ns": int(start_ns[-1]) + EPOCH_NS if slots else None,
        "active_ns": EPOCH_NS * len(slots),
        "bytes": sent * len(slots),
        "undercount": False,
        "recorded": True,
        "epoch_start_ns": start_ns,
        "epoch_bytes": np.full(len(slots), sent, dtype=np.int64),
    }
    return Sender(**{**values, **changes})  # type: ignore[arg-type]


def traffic(*senders: Sender, blamed: frozenset[int] = frozenset()) -> OperationTraffic:
    operation = Operation(0x6BCA, "coll", 9, "ReduceScatter", "dp 0-3")
    starts = [one.started_ns for one in senders if one.started_ns is not None]
    ends = [one.ended_ns for one in senders if one.ended_ns is not None]
    return OperationTraffic(operation, senders, EPOCH_NS, min(starts), max(ends), blamed)


@given(
    slots=st.sets(st.integers(0, 400), min_size=1, max_size=80),
    sizes=st.integers(1, 2_000_000),
    edges=st.sets(st.integers(0, 401 * EPOCH_NS), min_size=1, max_size=50),
)
def test_bytes_are_kept_whatever_the_bins(slots: set[int], sizes: int, edges: set[int]) -> None:
    start = np.array(sorted(slots), dtype=np.int64) * EPOCH_NS
    sent = np.full(len(start), sizes, dtype=np.int64)
    bounds = np.array(sorted({0, 401 * EPOCH_NS} | edges), dtype=np.int64)
    found = binned(start, sent, EPOCH_NS, bounds)
    assert found.sum() == pytest.approx(sent.sum())
    # Against each epoch's overlap with each bin, one by one.
    overlap = np.minimum(bounds[1:, None], start + EPOCH_NS) - np.maximum(bounds[:-1, None], start)
    assert found == pytest.approx((np.maximum(overlap, 0) / EPOCH_NS) @ sent, abs=1e-3)


def test_a_curve_has_the_same_area_at_any_resolution() -> None:
    shown = traffic(sender(0, [0, 1, 2, 40, 41, 99]))
    for resolution_ns in (EPOCH_NS, 3 * EPOCH_NS, 50_000, 1_000_000):
        curves = rate_curves(shown, 4000, resolution_ns)
        assert curves.rate.sum() * resolution_ns / 1e9 == pytest.approx(6 * 1_600_000)


def test_gaps_are_zero_and_what_is_not_recorded_is_not() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    unseen = sender(1, [0, 9], recorded=False, epoch_start_ns=nothing, epoch_bytes=nothing)
    curves = rate_curves(traffic(sender(0, [0, 9]), unseen), 100)
    assert np.count_nonzero(curves.rate[0]) == 2
    assert np.isnan(curves.rate[1]).all()
    assert curves.top_bytes_per_s == 50e9  # 1.6 MB in 32 us


@given(st.floats(1e-3, 1e15))
def test_a_scale_holds_its_value_and_is_not_much_higher(value: float) -> None:
    assert value * (1 - 1e-6) <= round_up(value) <= 2 * value


def test_of_many_ranks_the_blamed_and_its_neighbours_are_kept() -> None:
    shown = compact(
        traffic(*(sender(rank, [0, 1]) for rank in range(64)), blamed=frozenset({40})), 5
    )
    assert [one.rank for one in shown.senders] == [38, 39, 40, 41, 42]


# ------------------------------------------------------------------------ drawn


def lines_of(*senders: Sender, **options: object) -> list[str]:
    blamed = frozenset({2})
    return plain_lines(curve_lines(traffic(*senders, blamed=blamed), **options))  # type: ignore[arg-type]


def test_text_says_who_never_began_and_what_is_not_over() -> None:
    lines = lines_of(sender(1, [0, 1], ended_ns=None), sender(2, []), sender(3, [5]))
    assert lines[2].endswith("not finished")
    assert lines[3].endswith("did not start")


@pytest.mark.parametrize("width", [60, 80, 160])
def test_no_line_is_wider_than_asked(width: int) -> None:
    slots = list(range(0, 4000, 3))
    lines = lines_of(
        sender(1, slots, undercount=True),
        sender(2, slots),
        sender(12345, slots),
        width=width,
    )
    assert max(map(len, lines)) <= width
    assert "?" not in to_ascii("".join(lines))


def test_svg_is_well_formed_and_escapes_what_others_wrote() -> None:
    from xml.etree import ElementTree

    drawn = curves_svg(
        traffic(sender(1, [0, 5], node="<gpu&>"), sender(2, []), blamed=frozenset({2}))
    )
    root = ElementTree.fromstring(drawn)
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"<gpu&>", "rank 2, blamed", "did not start"} <= set(texts)
    # Two epochs far apart are two shapes.
    assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) == 2
