"""Laws of transfers as epochs: sums are exact, begin and end are kept, pauses are as long."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oncall.node.rings.proxy_epochs import proxy_traffic, spread_transfers
from oncall.node.rings.ring_layout import TRANSFER_OVER
from oncall.node.rings.rows import Scale
from oncall.node.traffic.epochs import EPOCH_NS

START_NS = 1_795_000_000_000_000_000
TRANSFERS = st.lists(
    st.tuples(
        st.integers(0, 10**9), st.integers(0, 50_000_000), st.integers(1, 2**40),
        st.integers(0, 100_000_000),
    ),
    min_size=1, max_size=10,
)  # fmt: skip


@given(TRANSFERS)
def test_sums_begin_and_end_are_kept(transfers: list[tuple[int, int, int, int]]) -> None:
    begun, span, sent, wire = np.array(transfers, np.int64).T
    begun = begun + START_NS
    found = spread_transfers(begun, begun + span, sent, wire)
    for number in range(len(transfers)):
        mine = found.flow == number
        assert found.bytes[mine].sum() == sent[number]
        first, last = found.epoch[mine].min(), found.epoch[mine].max()
        assert first == begun[number] // EPOCH_NS
        assert last <= (begun[number] + max(span[number] - 1, 0)) // EPOCH_NS
        between = (begun[number] + max(span[number] - 1, 0)) // EPOCH_NS - first + 1
        if wire[number] == 0 or wire[number] >= span[number]:
            assert mine.sum() == min(between, sent[number], 2**15)


def test_a_transfer_that_was_on_the_wire_for_half_of_its_time_is_active_for_half() -> None:
    ms = np.array([10_000_000])
    found = spread_transfers(np.array([START_NS]), START_NS + ms, np.array([10**9]), ms // 2)
    assert abs(len(found.epoch) * EPOCH_NS - ms[0] // 2) <= EPOCH_NS
    assert np.diff(found.epoch).max() <= 3  # no pause that would end an operation
    assert found.epoch[[0, -1]].tolist() == [
        START_NS // EPOCH_NS, (START_NS + int(ms[0]) - 1) // EPOCH_NS,
    ]  # fmt: skip


def test_channels_that_send_at_once_share_their_epochs() -> None:
    begun = np.full(2, START_NS)
    found = spread_transfers(
        begun, begun + 3_200_000, np.array([1000, 3000]), np.full(2, 800_000), np.zeros(2, np.int64)
    )
    assert found.bytes.sum() == 4000 and len(found.epoch) == 25


def test_flows_are_reported_by_communicator_channel_and_place_of_the_peer() -> None:
    transfers = np.zeros(3, TRANSFER_OVER)
    transfers["time_ns"] = [5_000_000, 5_000_000, 9_000_000]
    transfers["span_us"], transfers["bytes"] = 1000, [10, 20, 30]
    transfers["peer"], transfers["channel"] = [4, 4, 4], [0, 1, 0]
    comms = np.full(3, 2**64 - 1, np.uint64)
    flows, epochs = proxy_traffic(transfers, comms, Scale("j", 3, START_NS), "n")
    assert [(f.rank, f.comm, f.comm_peer, f.channel) for f in flows] == [
        (3, 2**64 - 1, 4, 0), (3, 2**64 - 1, 4, 1),
    ]  # fmt: skip
    assert [int(epochs.bytes[epochs.flow == flow].sum()) for flow in (0, 1)] == [40, 20]
    assert int(epochs.epoch.min()) == (START_NS + 4_000_000) // EPOCH_NS
