"""A ring's steps, found where the bytes of each node's own flow cross their share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncall.evidence.incident import Incident

RANKS, EPOCH_NS, STEP_BYTES = 4, 32_000, 1 << 20
STEPS = 2 * (RANKS - 1)
BEGIN_NS = 1_795_000_000_000_000_000 // EPOCH_NS * EPOCH_NS
COMM = 0xC0


def recorded(
    lengths: Any,
    gaps: Any,
    channels: int = 1,
    nodes: int = RANKS,
    source: str = "wr",
    step_bytes: int = STEP_BYTES,
) -> Incident:
    """One all-reduce: (ranks, steps) epochs that each step takes, and that pass before it."""
    incident = Incident.empty()
    who = np.arange(RANKS)
    own = {"job": "j", "rank": who}
    comm = np.full(RANKS, COMM, np.uint64)
    incident.append("ranks", own | {"node": [f"n{rank % nodes}" for rank in who]})
    incident.append("comms", own | {"comm": comm, "comm_rank": who, "size": RANKS})
    ends = np.cumsum(lengths + gaps, axis=1)
    first, last = gaps[:, 0], ends[:, -1]
    sizes = {"bytes": STEPS * step_bytes, "op": "AllReduce", "algo": "RING", "seq": 5}
    columns = own | {"comm": comm, "kind": "coll"} | sizes
    times = {"started_ns": BEGIN_NS + first * EPOCH_NS, "ended_ns": BEGIN_NS + last * EPOCH_NS}
    incident.append("ops", columns | times | {"channels": channels, "proto": "SIMPLE"})
    incident.append(
        "op_traffic", columns | times | {"peer": (who + 1) % RANKS, "epoch_ns": EPOCH_NS}
    )
    rows = []
    for rank in range(RANKS):
        for step in range(STEPS):
            size = step_bytes // lengths[rank, step]
            at = range(ends[rank, step] - lengths[rank, step], ends[rank, step])
            rows += [(rank, BEGIN_NS + n * EPOCH_NS, size) for n in at]
            rows[-1] = (*rows[-1][:2], step_bytes - size * (lengths[rank, step] - 1))
    rank, start_ns, size = np.array(rows, np.int64).T
    incident.append(
        "epochs",
        {
            "job": "j",
            "node": [f"n{each % nodes}" for each in rank],
            "rank": rank,
            "comm": np.full(len(rank), COMM, np.uint64),
            "peer": (rank + 1) % RANKS,
            "start_ns": start_ns,
            "epoch_ns": EPOCH_NS,
            "bytes": size,
            "source": source,
        },
    )
    return incident


def found(incident: Incident) -> list[tuple[int, ...]]:
    with incident:
        incident.append("nics", {"node": ["n0"], "nic": ["mlx5_0"], "port": [1], "at_ns": [0]})
        incident.require(["collective_steps"])
        return incident.con.execute(
            "SELECT src, dst, step, bytes, started_ns, ended_ns FROM collective_steps ORDER BY ALL"
        ).fetchall()


def drawn(low: int, high: int) -> st.SearchStrategy[Any]:
    cells = st.lists(st.integers(low, high), min_size=RANKS * STEPS, max_size=RANKS * STEPS)
    return cells.map(lambda drawn: np.array(drawn).reshape(RANKS, STEPS))


@given(lengths=drawn(3, 20), gaps=drawn(0, 9))
@settings(max_examples=5)
def test_each_step_is_found_to_an_epoch(lengths: Any, gaps: Any) -> None:
    rows = found(recorded(lengths, gaps))
    ends = np.cumsum(lengths + gaps, axis=1)
    begun = ends - lengths
    assert [row[:4] for row in rows] == [
        (rank, (rank + 1) % RANKS, step + 1, STEP_BYTES)
        for rank in range(RANKS)
        for step in range(STEPS)
    ]
    off = [
        (started_ns - BEGIN_NS - begun[src, step - 1] * EPOCH_NS,
         ended_ns - BEGIN_NS - ends[src, step - 1] * EPOCH_NS)
        for src, _, step, _, started_ns, ended_ns in rows
    ]  # fmt: skip
    assert np.abs(off).max() <= EPOCH_NS


@pytest.mark.parametrize(
    "unlike",
    [
        pytest.param({"nodes": 2}, id="ranks share hosts"),
        pytest.param({"source": "proxy"}, id="only the proxy measures"),
    ],
)
def test_what_does_not_show_its_steps_is_left_out(unlike: dict[str, Any]) -> None:
    even = np.full((RANKS, STEPS), 8)
    assert found(recorded(even, even, **unlike)) == []


def test_a_collective_that_goes_round_twice_is_left_out() -> None:
    even = np.full((RANKS, STEPS), 8)
    assert found(recorded(even, even, step_bytes=3 << 20)) == []
    assert len(found(recorded(even, even, step_bytes=3 << 20, channels=2))) == RANKS * STEPS


@pytest.fixture
def slow_step() -> Iterator[Incident]:
    """A ring in step, but that rank 1's third takes four times as long; all after it wait."""
    lengths = np.full((RANKS, STEPS), 10)
    lengths[1, 2] = 40
    gaps = np.zeros((RANKS, STEPS), np.int64)
    for behind in range(1, RANKS):  # rank 1 + k waits in step 3 + k
        gaps[(1 + behind) % RANKS, 2 + behind] = 30
    with recorded(lengths, gaps) as incident:
        incident.append("switch_pauses", {"switch": ["s"], "port": [1], "at_ns": [0]})
        yield incident


def test_the_step_that_all_wait_for_is_on_the_critical_path(slow_step: Incident) -> None:
    slow_step.require(["critical_steps"])
    rows = slow_step.con.execute(
        "SELECT src, step, round(share, 2) FROM critical_steps WHERE late ORDER BY position"
    ).fetchall()
    assert rows == [(1, 3, 1.0)]


def test_a_step_ends_before_the_gap_though_its_bytes_fall_short_a_little() -> None:
    """Headers and packets sent again are not shared evenly among steps."""
    gaps = np.full((RANKS, STEPS), 6)
    with recorded(np.full((RANKS, STEPS), 10), gaps) as incident:
        first_ns, last_ns = BEGIN_NS + 6 * EPOCH_NS, BEGIN_NS + (16 * STEPS - 1) * EPOCH_NS
        for at_ns, more in ((first_ns, -STEP_BYTES // 200), (last_ns, STEP_BYTES // 200)):
            incident.con.execute(
                f"UPDATE epochs SET bytes = bytes + {more} WHERE start_ns = {at_ns}"
            )
        incident.append("nics", {"node": ["n0"], "nic": ["mlx5_0"], "port": [1], "at_ns": [0]})
        incident.require(["collective_steps"])
        longest = incident.con.execute("SELECT max(ended_ns - started_ns) FROM collective_steps")
        assert longest.fetchall() == [(10 * EPOCH_NS,)]


@pytest.mark.parametrize(
    ("ahead_ns", "measured"),
    [
        pytest.param({0: EPOCH_NS, 2: -EPOCH_NS // 2}, False, id="within an epoch"),
        pytest.param({0: EPOCH_NS, 2: -10_000_000}, True, id="a clock that was measured"),
    ],
)
def test_steps_are_compared_within_an_epoch_and_on_one_clock(
    slow_step: Incident, ahead_ns: dict[int, int], measured: bool
) -> None:
    """Rank 2 waits for rank 1, and seems to go on before what it waits for has come."""
    for rank, off_ns in ahead_ns.items():
        for table, columns in (
            ("epochs", ("start_ns",)),
            ("op_traffic", ("started_ns", "ended_ns")),
        ):
            shifted = ", ".join(f"{column} = {column} + {off_ns}" for column in columns)
            slow_step.con.execute(f"UPDATE {table} SET {shifted} WHERE rank = {rank}")
    if measured:
        slow_step.append("clocks", {"node": ["n2"], "at_ns": [0], "offset_ns": [ahead_ns[2]]})
    slow_step.require(["critical_steps"])
    rows = slow_step.con.execute(
        "SELECT src, step, round(share, 2) FROM critical_steps WHERE late ORDER BY position"
    ).fetchall()
    assert rows == [(1, 3, 1.0)]
