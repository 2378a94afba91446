"""Laws of spreading bytes over epochs: sums are exact, nothing goes out before it was posted."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oncall.node.traffic.epochs import EPOCH_NS, Sent, added_up, spans, spread

START_NS = 1_795_000_000_000_000_000  # a Unix time: arithmetic must not lose its digits


def requests(data: st.DataObject) -> tuple[np.ndarray, ...]:
    """Requests of a few flows, each flow's in order of completion."""
    flows = data.draw(st.integers(1, 4))
    rows = []
    for flow in range(flows):
        at = START_NS
        for _ in range(data.draw(st.integers(0, 12))):
            posted = at + data.draw(st.integers(0, 200_000))
            at = posted + data.draw(st.sampled_from([0, 1, 500, 31_999, 32_000, 1_000_000]))
            rows.append((flow, posted, at, data.draw(st.integers(0, 1 << 33))))
    columns = np.array(rows, np.int64).reshape(-1, 4).T
    return tuple(columns)


@given(data=st.data())
def test_no_byte_is_lost_or_made(data: st.DataObject) -> None:
    flow, posted, completed, sent = requests(data)
    spread_out = spread(spans(flow, posted, completed, sent, np.zeros_like(flow)))
    for each in np.unique(flow):
        assert spread_out.bytes[spread_out.flow == each].sum() == sent[flow == each].sum()
    assert (spread_out.bytes > 0).all()


@given(data=st.data())
def test_bytes_go_out_between_post_and_completion(data: st.DataObject) -> None:
    flow, posted, completed, sent = requests(data)
    spread_out = spread(spans(flow, posted, completed, sent, np.zeros_like(flow)))
    for each in np.unique(spread_out.flow):
        mine = flow == each
        epochs = spread_out.epoch[spread_out.flow == each]
        assert epochs.min() >= posted[mine].min() // EPOCH_NS
        assert epochs.max() <= completed[mine].max() // EPOCH_NS


@given(data=st.data(), cut=st.integers(0, 48))
def test_it_does_not_matter_where_a_reading_ends(data: st.DataObject, cut: int) -> None:
    """Read at once, or in two parts of which the second knows the last completion before: the
    same bytes, but for requests of one completion that the cut divides."""
    flow, posted, completed, sent = requests(data)
    order = np.argsort(completed, kind="stable")
    flow, posted, completed, sent = (each[order] for each in (flow, posted, completed, sent))
    cut = min(cut, len(flow))
    if 0 < cut < len(flow) and completed[cut - 1] == completed[cut]:
        return
    none = np.zeros_like(flow)
    whole = spread(spans(flow, posted, completed, sent, none))
    before = np.array(
        [max(completed[:cut][flow[:cut] == each], default=0) for each in flow[cut:]], np.int64
    )
    first = spread(spans(flow[:cut], posted[:cut], completed[:cut], sent[:cut], none[:cut]))
    second = spread(spans(flow[cut:], posted[cut:], completed[cut:], sent[cut:], before))
    both = added_up(
        *(
            np.concatenate([getattr(first, n), getattr(second, n)])
            for n in ("flow", "epoch", "bytes")
        )
    )
    for name in ("flow", "epoch", "bytes"):
        assert getattr(both, name).tolist() == getattr(whole, name).tolist()


def test_a_steady_flow_is_steady_however_deep_its_queue() -> None:
    """A hundred requests posted at once, one completed every epoch: as much in each epoch."""
    n = 100
    posted = np.full(n, START_NS, np.int64)
    completed = START_NS + EPOCH_NS * np.arange(1, n + 1)
    flow, none = np.zeros(n, np.int64), np.zeros(n, np.int64)
    result = spread(spans(flow, posted, completed, np.full(n, 4096), none))
    assert result.bytes.tolist() == [4096] * n


def test_requests_polled_at_once_share_their_time() -> None:
    posted = np.full(4, START_NS, np.int64)
    completed = np.full(4, START_NS + 4 * EPOCH_NS)
    flow, none = np.zeros(4, np.int64), np.zeros(4, np.int64)
    result = spread(spans(flow, posted, completed, np.full(4, 1000), none))
    assert result.bytes.tolist() == [1000] * 4


def test_what_stood_still_goes_out_at_the_end() -> None:
    hour_ns = 3_600_000_000_000
    sent = Sent(*(np.array([v], np.int64) for v in (0, START_NS, START_NS + hour_ns, 1 << 30)))
    result = spread(sent)
    assert len(result.epoch) <= 4096 and result.bytes.sum() == 1 << 30
    assert result.epoch.max() == (START_NS + hour_ns - 1) // EPOCH_NS
