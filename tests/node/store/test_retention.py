"""Which shards go: by a clock that cannot be set, in the order in which they were sealed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.node.store.batch import Batch
from oncall.node.store.catalog import Shard, sealed_shards, shard_name
from oncall.node.store.retention import (
    LOG_NAME,
    Kept,
    Retention,
    SinceBoot,
    ages_ns,
    in_sealing_order,
    record,
    retire,
    surplus,
)
from oncall.node.store.writer import LiveStore, Place

SECOND_NS = 10**9
DAY_NS = 24 * 3600 * SECOND_NS
KEEP = Retention(2 * DAY_NS, 10**12)
WALL_NS = 18 * 10**17


def _sealed_at(folder: Path, wall_ns: int, at: SinceBoot, size: int = 10) -> Shard:
    path = folder / shard_name("gpu017", wall_ns, wall_ns + SECOND_NS)
    path.write_bytes(bytes(size))
    record(folder, [path.name], at)
    return Shard(wall_ns, wall_ns + SECOND_NS, "gpu017", path)


def _left(folder: Path) -> int:
    return len(sealed_shards(folder))


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 10**18)), min_size=1, max_size=30),
    st.integers(0, 10**18),
    st.integers(0, 400),
)
def test_retention_keeps_the_newest_and_never_too_much(
    reported: list[tuple[int, int]], keep_ns: int, keep_bytes: int
) -> None:
    ages = sorted((age for _, age in reported), reverse=True)
    kept = [
        Kept(Shard(n, n, "gpu017", Path(str(n))), size, age)
        for n, ((size, _), age) in enumerate(zip(reported, ages, strict=True))
    ]
    going = surplus(kept, Retention(keep_ns, keep_bytes))
    left = kept[len(going) :]
    assert [each.shard for each in kept[: len(going)]] == going  # the first sealed first
    assert left  # never the last
    assert len(left) == 1 or (
        sum(each.size_bytes for each in left) <= keep_bytes and left[0].age_ns <= keep_ns
    )


@pytest.mark.parametrize("step_ns", [-365 * DAY_NS, -DAY_NS, DAY_NS, 365 * DAY_NS])
def test_a_step_of_the_wall_clock_deletes_nothing(tmp_path: Path, step_ns: int) -> None:
    for number in range(7):
        wall_ns = WALL_NS + number * SECOND_NS + (step_ns if number == 6 else 0)
        at = SinceBoot("boot", number * SECOND_NS)
        _sealed_at(tmp_path, wall_ns, at)
        assert retire(tmp_path, "gpu017", KEEP, lambda now=at: now) == []
    assert _left(tmp_path) == 7


def test_what_was_sealed_first_goes_first_whatever_it_is_named(tmp_path: Path) -> None:
    before_step = _sealed_at(tmp_path, WALL_NS, SinceBoot("boot", 1))
    after_step = _sealed_at(tmp_path, WALL_NS - DAY_NS, SinceBoot("boot", 2))
    small = Retention(KEEP.keep_ns, 10)
    assert retire(tmp_path, "gpu017", small, lambda: SinceBoot("boot", 3)) == [before_step]
    assert sealed_shards(tmp_path) == [after_step]


def test_shards_of_an_earlier_boot_age_by_the_time_that_boots_are_known_to_have_lasted(
    tmp_path: Path,
) -> None:
    first = _sealed_at(tmp_path, WALL_NS, SinceBoot("one", DAY_NS))
    last = _sealed_at(tmp_path, WALL_NS + 1, SinceBoot("one", 2 * DAY_NS))
    second = _sealed_at(tmp_path, WALL_NS + 2, SinceBoot("two", DAY_NS // 2))
    now = SinceBoot("three", 3)
    expected = [DAY_NS + DAY_NS // 2 + 3, DAY_NS // 2 + 3, 3]
    assert ages_ns(tmp_path, [first, last, second], now) == expected
    assert retire(tmp_path, "gpu017", KEEP, lambda: now) == []
    later = SinceBoot("three", DAY_NS // 2 + 1)
    assert retire(tmp_path, "gpu017", KEEP, lambda: later) == [first]


def test_shards_that_no_line_tells_of_are_young(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / shard_name("gpu017", number, number)).touch()
    now = SinceBoot("boot", 100 * DAY_NS)
    assert retire(tmp_path, "gpu017", KEEP, lambda: now) == []
    later = SinceBoot("boot", 103 * DAY_NS)
    assert len(retire(tmp_path, "gpu017", KEEP, lambda: later)) == 2


@pytest.mark.parametrize(
    "damage",
    [b"", b"\xff\xfe garbage", b"\na b\nc d e\n" + b"9" * 30, b"\nx boot 99999999999999999999"],
)
def test_a_damaged_log_makes_no_shard_old(tmp_path: Path, damage: bytes) -> None:
    for number in range(3):
        _sealed_at(tmp_path, WALL_NS + number, SinceBoot("boot", number))
    (tmp_path / LOG_NAME).write_bytes(damage)
    assert retire(tmp_path, "gpu017", KEEP, lambda: SinceBoot("boot", 100 * DAY_NS)) == []
    assert _left(tmp_path) == 3


def test_a_line_cut_short_spoils_no_other(tmp_path: Path) -> None:
    first = _sealed_at(tmp_path, WALL_NS, SinceBoot("boot", 1))
    log = tmp_path / LOG_NAME
    log.write_bytes(log.read_bytes() + b"\ngpu017.1-2.du")
    second = _sealed_at(tmp_path, WALL_NS - 1, SinceBoot("boot", 5))
    assert in_sealing_order(tmp_path, sealed_shards(tmp_path)) == [first, second]


def test_the_log_does_not_grow_for_ever(tmp_path: Path) -> None:
    record(tmp_path, (f"gone-{n}.duckdb" for n in range(2000)), SinceBoot("boot", 1))
    kept = _sealed_at(tmp_path, WALL_NS, SinceBoot("boot", 2))
    retire(tmp_path, "gpu017", KEEP, lambda: SinceBoot("boot", 3))
    assert (tmp_path / LOG_NAME).read_text().split() == [kept.path.name, "boot", "2"]


def test_a_shard_is_named_by_all_that_the_wall_clock_showed(
    tmp_path: Path, operations: Callable[..., Batch]
) -> None:
    store = LiveStore(Place(tmp_path, "gpu017"), WALL_NS)
    store.saw(WALL_NS - DAY_NS)
    store.write([operations(1)])
    shard = store.seal(WALL_NS - DAY_NS + SECOND_NS)
    assert (shard.start_ns, shard.end_ns) == (WALL_NS - DAY_NS, WALL_NS)
