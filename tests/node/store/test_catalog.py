"""Shards by name: what is one, and which of them a span needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.node.store.catalog import Shard, parse_shard, sealed_shards, shard_name

NODES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,30}", fullmatch=True)
INSTANTS = st.integers(min_value=0, max_value=10**18)


@given(NODES, INSTANTS, INSTANTS)
def test_a_name_tells_what_it_was_made_of(node: str, start_ns: int, end_ns: int) -> None:
    path = Path(shard_name(node, start_ns, end_ns))
    assert parse_shard(path) == Shard(start_ns, end_ns, node, path)


@pytest.mark.parametrize("node", ["", "-rf", "../up", "a/b", "a b", "x" * 200])
def test_what_is_no_host_name_makes_no_file(node: str) -> None:
    with pytest.raises(ValueError, match="host name"):
        shard_name(node, 1, 2)


def test_a_span_needs_the_shards_that_overlap_it(tmp_path: Path) -> None:
    for start in (0, 10, 20, 30):
        (tmp_path / shard_name("gpu017", start, start + 9)).touch()
    (tmp_path / shard_name("gpu018", 0, 100)).touch()
    found = sealed_shards(tmp_path, since_ns=15, until_ns=20, nodes=["gpu017"])
    assert [shard.start_ns for shard in found] == [10, 20]
    assert len(sealed_shards(tmp_path)) == 5
