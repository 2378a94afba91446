"""Shards by name: what is one, and which of them a span needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.node.store.catalog import Shard, parse_shard, shard_name

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
