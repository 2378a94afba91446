"""The own time that a node measures stands beside the operation it was measured for."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from oncall.analysis.common.ordering import Ints
from oncall.analysis.rounds.own_time import Timeline, left_off, since_last_round, timeline
from oncall.evidence.incident import Incident
from oncall.node.store.batch import Batch
from oncall.node.store.catalog import sealed_shards
from oncall.node.store.digest import measure_own_time
from oncall.node.store.reader import open_shards
from oncall.node.store.shard_digest import ShardDigests
from oncall.node.store.writer import LiveStore, Place


def test_each_rank_has_its_own() -> None:
    # Rank 3 computes for 700 ns before each collective, rank 9 for 100; each lasts 50.
    computes_ns = {3: 700, 9: 100}
    rows = [
        {
            "rank": rank,
            "seq": seq,
            "started_ns": seq * (own + 50),
            "ended_ns": seq * (own + 50) + 50,
        }
        for rank, own in computes_ns.items()
        for seq in range(1, 6)
    ]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    with Incident.empty() as incident:
        incident.append("ops", {**columns, "job": "j", "comm": 2**63 + 1, "kind": "coll"})
        measure_own_time(incident.con, "ops", "measured")
        found = incident.con.execute(
            "SELECT rank, seq, own_ns FROM measured ORDER BY rank, seq"
        ).fetchall()
    assert found == [
        (rank, seq, None if seq == 1 else own)
        for rank, own in computes_ns.items()
        for seq in range(1, 6)
    ]


def test_memory_does_not_grow_with_the_length_of_names() -> None:
    rows, name = 20_000, "a job's name " * 100
    with Incident.empty() as incident:
        started_ns = [seq * 100 for seq in range(rows)]
        ended_ns = [at_ns + 50 for at_ns in started_ns]
        columns = {"seq": list(range(rows)), "started_ns": started_ns, "ended_ns": ended_ns}
        incident.append("ops", {**columns, "job": name, "comm": 1, "rank": 0, "kind": "coll"})
        tracemalloc.start()
        try:
            measure_own_time(incident.con, "ops", "measured")
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak_bytes < rows * len(name) / 2


@settings(deadline=None)
@given(
    calls=st.lists(
        # the rank, the communicator, whether a collective, own time before it, time in it
        st.tuples(*(st.integers(0, n) for n in (1, 3, 3)), st.integers(0, 90), st.integers(1, 50)),
        max_size=40,
    ),
    cuts=st.sets(st.integers(0, 40), max_size=5),
    lost=st.sets(st.integers(0, 39), max_size=2),
)
def test_seals_do_not_change_what_is_measured(
    calls: list[tuple[int, ...]], cuts: set[int], lost: set[int]
) -> None:
    now, numbers, rows = {0: 1000, 1: 5000}, Counter[tuple[int, int, bool]](), []
    for place, (rank, comm, kind, own, took) in enumerate(calls):
        group = (rank, comm, kind > 0)
        numbers[group] += 1
        start = now[rank] + own
        now[rank] = start + took
        if place not in lost:
            row = (place, rank, 4 * rank + comm, kind > 0, numbers[group], 1, start, now[rank])
            rows.append(row)
    whole = measured(timeline(calls_of(rows)))
    parts: dict[int, int | None] = {}
    earlier = calls_of([])
    for low, high in pairwise([0, *sorted(cuts), len(calls)]):
        line = timeline(
            np.concatenate([earlier, calls_of([r for r in rows if low <= r[0] < high])], axis=1)
        )
        parts |= measured(line)
        earlier = left_off(line)
    known = {row for row, own_ns in whole.items() if own_ns is not None}
    if not lost:
        assert parts == whole
    # Where something was lost, a seal may hide a time; it never makes one up.
    assert all(parts.get(row) in (whole[row], None) for row in known)
    assert not {row for row, own_ns in parts.items() if own_ns is not None} - known


def calls_of(rows: Sequence[tuple[int, ...]]) -> Ints:
    return np.array(rows, dtype=np.int64).reshape(-1, 8).T


def measured(line: Timeline) -> dict[int, int | None]:
    """Own time by row."""
    row, own_ns = since_last_round(line)
    return dict(zip(row.tolist(), own_ns.tolist(), strict=True))


def test_a_round_a_shard_is_measured_from_the_shard_before(tmp_path: Path) -> None:
    # Each shard holds one all-reduce of `dp` and nine of `tp`; 70 ns of its own before each.
    dp, tp, place = 1, 2**64 - 1, Place(tmp_path, "gpu001")
    at_ns, numbers = 10**18, Counter[int]()
    for _ in range(4):
        rows = []
        began_ns = at_ns
        for comm in [tp] * 5 + [dp] + [tp] * 4:
            numbers[comm] += 1
            times = {"started_ns": at_ns + 70, "ended_ns": at_ns + 100}
            rows.append({"comm": comm, "seq": numbers[comm], **times})
            at_ns += 100
        store = LiveStore(place, began_ns)
        common = {"job": "it's", "rank": 3, "kind": "coll", "op": "AllReduce", "done": True}
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        store.write([Batch("ops", len(rows), {**columns, **common})])
        store.seal(at_ns - 1, ShardDigests().prepare)
    with open_shards(sealed_shards(tmp_path)) as shards:
        found = shards.con.execute(
            "SELECT comm, seq, own_ns FROM digest_ops WHERE comm = 1 OR own_ns IS NULL ORDER BY ALL"
        ).fetchall()
    assert found == [(dp, 1, None), (dp, 2, 700), (dp, 3, 700), (dp, 4, 700), (tp, 1, None)]


def test_a_clock_that_is_set_back_between_two_seals_costs_no_digest(tmp_path: Path) -> None:
    place, hour_ns, digests = Place(tmp_path, "gpu001"), 3600 * 10**9, ShardDigests()
    numbers = Counter[int]()
    for number, comms in enumerate(([1, 2, 3, 1], [1], [2], [3])):
        started_ns = [10**18 - number * hour_ns + 100 * turn for turn in range(len(comms))]
        seqs = []
        for comm in comms:
            numbers[comm] += 1
            seqs.append(numbers[comm])
        columns = {
            "comm": comms,
            "seq": seqs,
            "started_ns": started_ns,
            "ended_ns": [at_ns + 30 for at_ns in started_ns],
        }
        common = {"job": "j", "rank": 3, "kind": "coll", "op": "AllReduce", "done": True}
        store = LiveStore(place, started_ns[0])
        store.write([Batch("ops", len(comms), {**columns, **common})])
        store.seal(started_ns[-1] + 100, digests.prepare)
    with open_shards(sealed_shards(tmp_path)) as shards:
        (digested,) = shards.con.execute("SELECT count(*) FROM digest_ops").fetchone() or (0,)
    assert digested >= 7
