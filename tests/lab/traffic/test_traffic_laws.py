"""Laws of simulated traffic, whatever the scenario."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncall.core.errors import UsageError
from oncall.evidence.schema import TABLES
from oncall_lab.drawn.traffic import beyond_table_4, healthy, table_4
from oncall_lab.traffic import TrafficFault, TrafficScenario, simulate_traffic
from oncall_lab.traffic.conditions import Links
from oncall_lab.traffic.epochs import spread
from oncall_lab.traffic.exchange import Flows, play_exchange
from oncall_lab.traffic.fault import CLASSES
from oncall_lab.traffic.play import Played, play
from oncall_lab.traffic.ring import Ring
from oncall_lab.traffic.tree import Tree

MIB = 2**20
RATE = 48.0  # bytes/ns
SMALL: dict[str, Any] = {"iterations": 2, "dp_bytes": 64 * MIB, "micro_batches": 2}


def links(ranks: int, **changed: Any) -> Links:
    """Steady links, but for what is changed of some ranks: {rank: value}."""
    normal = {
        "egress": RATE, "ingress": 1.1 * RATE, "unsteady": 0.0, "preempted": 0.0,
        "preempted_ns": 0.0, "proxy_ns": 1_000.0, "down_ns": np.inf,
    }  # fmt: skip
    columns = {name: np.full(ranks, value) for name, value in normal.items()}
    for name, values in changed.items():
        for rank, value in values.items():
            columns[name][rank] = value
    return Links(**columns)


def sent(played: Played) -> Counter[tuple[int, int, int]]:
    """Payload by operation, sender and peer."""
    s = played.slices
    total: Counter[tuple[int, int, int]] = Counter()
    for operation, sender, peer, volume in zip(
        s.operation.tolist(), s.sender.tolist(), s.peer.tolist(), s.bytes.tolist(), strict=True
    ):
        total[operation, sender, peer] += volume
    return total


@pytest.mark.parametrize("op", ["AllReduce", "ReduceScatter", "AllGather"])
@given(ranks=st.integers(2, 6), mib=st.integers(1, 40), channels=st.sampled_from([1, 2, 4]))
@settings(max_examples=10)
def test_a_ring_sends_what_appendix_b_says_and_ends_together(
    op: str, ranks: int, mib: int, channels: int
) -> None:
    ring = Ring(op, ranks, mib * MIB, channels, MIB)
    members = np.arange(ranks)[np.newaxis, :]
    rng = np.random.default_rng(0)
    slices, ended = ring.play(members, np.zeros((1, ranks)), links(ranks), 4, rng)
    volume = np.bincount(slices.sender, slices.bytes, minlength=ranks)
    times = 2 if op == "AllReduce" else 1
    assert np.allclose(volume, times * (ranks - 1) / ranks * mib * MIB)
    # All wait for the slowest: they leave within a few slices of one another.
    a_slice = MIB / (RATE / channels)
    assert np.ptp(ended) <= 4 * a_slice
    assert ended.min() >= volume[0] / RATE
    assert (slices.end_ns >= slices.begin_ns).all()
    assert (slices.begin_ns >= slices.posted_ns).all()


@given(slow=st.integers(0, 3), share=st.floats(0.2, 0.6), channels=st.sampled_from([2, 4]))
@settings(max_examples=15)
def test_gaps_of_others_follow_from_a_slow_link_alone(
    slow: int, share: float, channels: int
) -> None:
    """Pulse 6.1: a slice takes the straggler p times as long, and others pause p - 1 times."""
    ring = Ring("ReduceScatter", 4, 128 * MIB, channels, MIB)
    members = np.arange(4)[np.newaxis, :]
    state = links(4, egress={slow: RATE * share})
    slices, ended = ring.play(members, np.zeros((1, 4)), state, 4, np.random.default_rng(1))
    busy = np.bincount(slices.sender, slices.end_ns - slices.begin_ns, minlength=4) / channels
    others = [rank for rank in range(4) if rank != slow]
    assert busy[slow] == pytest.approx(ended.max(), rel=0.1)
    assert np.allclose(busy[others], busy[slow] * share, rtol=0.05)
    one = slices.where((slices.sender == others[0]) & (slices.channel == 0))
    gaps = (one.begin_ns[1:] - one.end_ns[:-1])[len(one) // 4 :]
    a_slice = MIB / (RATE / channels)
    assert np.mean(gaps) == pytest.approx(a_slice * (1 / share - 1), rel=0.15)


def by_the_rules(ranks: int, chunks: int, egress: list[float], entered: list[float]) -> list[float]:
    """When each rank's kernel ends a ReduceScatter of `chunks` loops on one channel: the rules of
    `ring` computed one rank and one slice at a time."""
    buffers, kernel_ns, latency = 4, MIB / 150, 5_000.0
    steps = ranks - 1
    loop = [(step, half) for step in range(ranks) for half in range(2)]
    turns = [(n, step, half) for n in range(chunks) for step, half in loop]

    def number(n: int, step: int, half: int) -> int:
        return (n * steps + step) * 2 + half

    @cache
    def kernel(rank: int, turn: int) -> float:
        n, step, half = turns[turn]
        ready = kernel(rank, turn - 1) if turn else entered[rank]
        if step > 0:
            ready = max(ready, arrived((rank - 1) % ranks, number(n, step - 1, half)))
        if step < steps and number(n, step, half) >= buffers:
            own = arrived(rank, number(n, step, half) - buffers)
            ready = max(ready, own + latency)
        return ready + kernel_ns

    sends = {number(*t): i for i, t in enumerate(turns) if t[1] < steps}
    takes = {number(n, step - 1, half): i for i, (n, step, half) in enumerate(turns) if step > 0}

    @cache
    def posted(rank: int, send: int) -> float:
        ready = kernel(rank, sends[send])
        if send:
            ready = max(ready, posted(rank, send - 1))
        if send >= buffers:
            ready = max(ready, kernel((rank + 1) % ranks, takes[send - buffers]) + latency)
        return ready

    @cache
    def sent(rank: int, send: int) -> float:
        begin = max(posted(rank, send), sent(rank, send - 1) if send else 0.0)
        return begin + MIB / egress[rank]

    @cache
    def arrived(rank: int, send: int) -> float:
        return sent(rank, send) + latency

    return [kernel(rank, len(turns) - 1) for rank in range(ranks)]


@given(
    egress=st.lists(st.floats(10, RATE), min_size=2, max_size=5),
    chunks=st.integers(1, 5),
    late=st.integers(0, 4),
)
@settings(max_examples=15)
def test_arrays_follow_the_rules_of_single_slices(
    egress: list[float], chunks: int, late: int
) -> None:
    n = len(egress)
    entered = [0.0] * n
    entered[late % n] = 3e6
    ring = Ring("ReduceScatter", n, 2 * chunks * n * MIB, 1, MIB)
    state = links(n, egress=dict(enumerate(egress)), proxy_ns=dict.fromkeys(range(n), 0.0))
    members = np.arange(n)[np.newaxis, :]
    _, ended = ring.play(members, np.array([entered]), state, 4, np.random.default_rng(0))
    assert ended[0] == pytest.approx(by_the_rules(n, chunks, egress, entered), rel=0.02)


@given(ranks=st.integers(2, 9), mib=st.integers(2, 30))
@settings(max_examples=10)
def test_two_trees_carry_the_data_up_and_down(ranks: int, mib: int) -> None:
    tree = Tree(ranks, mib * MIB, 2, MIB)
    members = np.arange(ranks)[np.newaxis, :]
    rng = np.random.default_rng(0)
    slices, ended = tree.play(members, np.zeros((1, ranks)), links(ranks), 4, rng)
    # On each tree all but the root send half of the data up, and get it back down.
    assert slices.bytes.sum() == pytest.approx(2 * (ranks - 1) * mib * MIB)
    expected = tree.expected(np.array([7]), members)
    assert expected.bytes.sum() == pytest.approx(slices.bytes.sum())
    assert np.isfinite(ended).all()


def test_a_late_kernel_lets_its_senders_fill_a_buffer_and_no_more() -> None:
    """Pulse 6.1: the gap of milliseconds, and what was sent before it."""
    flows = Flows(
        np.zeros(1, dtype=np.int64), np.array([0]), np.array([1]), np.array([32.0 * MIB]),
        np.zeros(1), np.array([5e6]),
    )  # fmt: skip
    slices, arrived = play_exchange(flows, links(2), 4.0 * MIB, MIB, np.random.default_rng(0))
    early = slices.begin_ns < 5e6
    assert slices.bytes[early].sum() == pytest.approx(4 * MIB)
    assert slices.bytes.sum() == pytest.approx(32 * MIB)
    assert arrived[0] > 5e6 + 28 * MIB / RATE


def test_no_link_carries_more_than_it_can() -> None:
    n = 6
    source, target = np.nonzero(~np.eye(n, dtype=bool))
    m = len(source)
    flows = Flows(
        np.zeros(m, dtype=np.int64), source, target, np.full(m, 6.0 * MIB), np.zeros(m),
        np.zeros(m),
    )  # fmt: skip
    slices, _ = play_exchange(flows, links(n), 4.0 * MIB, MIB, np.random.default_rng(3))
    step = (slices.begin_ns // 16_000).astype(int)
    for ends, limit in ((slices.sender, RATE), (slices.peer, 1.1 * RATE)):
        carried = np.zeros((step.max() + 1, n))
        np.add.at(carried, (step, ends), slices.bytes)
        assert carried.max() <= limit * 16_000 * 1.001


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2**22), st.floats(0, 1e7), st.floats(0, 3e5)),
        max_size=30,
    )
)
def test_spreading_loses_and_adds_no_byte(parts: list[tuple[int, int, float, float]]) -> None:
    flow, volume, begin, length = (np.array([p[i] for p in parts]) for i in range(4))
    of, number, counted = spread(
        flow.astype(np.int64), volume.astype(np.float64), begin.astype(np.float64),
        begin + length, 32_000,
    )  # fmt: skip
    assert counted.sum() == volume.sum()
    assert (counted > 0).all()
    keys = list(zip(of.tolist(), number.tolist(), strict=True))
    assert keys == sorted(set(keys))


@pytest.mark.parametrize("workload", ["gpt2", "mixtral", "neighbour_exchange"])
def test_each_operation_carries_its_volume(workload: str) -> None:
    played = play(TrafficScenario(workload=workload, seed=5, **SMALL))
    due = played.expected
    found = sent(played)
    assert len(due.bytes)
    for key, volume in zip(
        zip(due.operation.tolist(), due.sender.tolist(), due.peer.tolist(), strict=True),
        due.bytes.tolist(),
        strict=True,
    ):
        # The LL protocol pads the few bytes of a loss.
        assert found[key] == pytest.approx(volume, abs=0.6) or volume < 100 < found[key]
    assert played.calls.ended_ns.max() < np.inf


def test_equal_scenarios_give_equal_rows() -> None:
    fault = TrafficFault("nic_down", 9, iteration=1)
    scenario = TrafficScenario(seed=3, faults=(fault,), lost_epochs=0.01, **SMALL)

    def rows() -> list[Any]:
        incident, truth = simulate_traffic(scenario)
        with incident:
            tables = [table.name for table in TABLES if incident.rows(table.name)]
            return [truth] + [
                incident.con.execute(f"SELECT * FROM {name} ORDER BY ALL").fetchall()
                for name in tables
            ]

    first = rows()
    assert len(first) > 6
    assert first == rows()


def test_lost_epochs_are_reported_of_as_an_undercount() -> None:
    whole, _ = simulate_traffic(TrafficScenario(workload="neighbour_exchange"))
    partly, _ = simulate_traffic(TrafficScenario(workload="neighbour_exchange", lost_epochs=0.1))
    ask = "SELECT sum(bytes), bool_or(undercount) FROM epochs"
    with whole, partly:
        (all_bytes, flagged), (some_bytes, rows) = (
            incident.con.execute(ask).fetchone() or (0, None) for incident in (whole, partly)
        )
    assert not flagged
    assert rows
    assert 0.8 < some_bytes / all_bytes < 0.97


@pytest.mark.parametrize("workload", ["gpt2", "mixtral"])
def test_work_requests_show_the_activity_of_the_wire_within_two_epochs(workload: str) -> None:
    """What a shim sees begins a little earlier and ends with a completion, no more."""
    wire = TrafficScenario(workload=workload, op_traffic=True, clock_offset_ns=0, **SMALL)
    active = []
    for scenario in (wire, replace(wire, source="wr")):
        with simulate_traffic(scenario)[0] as incident:
            rows = incident.con.execute(
                "SELECT comm, seq, kind, rank, peer, active_ns FROM op_traffic WHERE bytes > 1e6"
            ).fetchall()
        active.append({row[:-1]: row[-1] for row in rows})
    assert active[0].keys() == active[1].keys()
    apart = [abs(active[0][key] - active[1][key]) for key in active[0]]
    assert np.median(apart) <= 32_000
    assert np.quantile(apart, 0.95) <= 0.1 * np.quantile(list(active[0].values()), 0.95)


def test_table_4_is_drawn_whole_and_anew_by_seed() -> None:
    scenarios = list(table_4(1))
    assert len(scenarios) == 58
    kinds = {s.faults[0].kind for s in [*scenarios, *beyond_table_4(1)]}
    assert kinds == set(CLASSES)
    assert scenarios == list(table_4(1))
    assert scenarios != list(table_4(2))
    assert not healthy(1, "gpt2").faults


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"workload": "gpt3"}, "is none of gpt2"),
        ({"workload": "gpt2", "faults": [{"fault": "congested"}]}, "is none of congestion"),
        ({"workload": "gpt2", "faults": [{"fault": "nic_down", "bandwidth": "40 %"}]}, "nothing"),
        ({"workload": "gpt2", "faults": [{"fault": "nic_down", "rank": 64}]}, "ranks are 0-63"),
        ({"workload": "gpt2", "faults": [{"fault": "moe_imbalance"}]}, "mixtral"),
        ({"workload": "all_to_one", "tp": 2}, "one GPU a node"),
        ({"workload": "gpt2", "slices": 2}, "unknown key"),
    ],
)
def test_what_cannot_be_simulated_is_refused(mapping: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TrafficScenario.from_mapping(mapping)
