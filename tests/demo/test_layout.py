"""Ranks are spread over nodes, none is lost, and each node works in its own folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncall.core.errors import UsageError
from oncall.demo.layout import Layout, rank_environment


@pytest.mark.parametrize(("ranks", "nodes"), [(8, 1), (8, 3), (8, 4), (8, 8), (16, 5)])
def test_every_rank_has_one_place(tmp_path: Path, ranks: int, nodes: int) -> None:
    layout = Layout.simulated(tmp_path, ranks, nodes)
    assert [rank for _, rank, _ in layout.placed()] == list(range(ranks))
    assert layout.world_size == ranks
    assert len({node.name for node in layout.nodes}) == nodes
    sizes = [len(node.ranks) for node in layout.nodes]
    assert max(sizes) - min(sizes) <= 1
    folders = [folder for node in layout.nodes for folder in (node.data, node.run)]
    assert len(set(folders)) == 2 * nodes


@pytest.mark.parametrize(("ranks", "nodes"), [(4, 1), (9, 2), (64, 4), (8, 0), (8, 9)])
def test_numbers_that_make_no_job_are_refused(tmp_path: Path, ranks: int, nodes: int) -> None:
    with pytest.raises(UsageError, match="give "):
        Layout.simulated(tmp_path, ranks, nodes)


def test_a_rank_is_reported_who_and_where_it_is(tmp_path: Path) -> None:
    layout = Layout.simulated(tmp_path, 8, 4)
    columns = {
        rank: rank_environment(layout, node, rank, local) for node, rank, local in layout.placed()
    }
    assert columns[5]["ONCALL_NODE"] == "node2"
    assert columns[5]["LOCAL_RANK"] == "1"
    assert columns[5]["WORLD_SIZE"] == "8"
    assert columns[5]["ONCALL_JOB_CONFIG"] == "tp=2 pp=2 dp=2 micro_batches=4"
    assert columns[4]["ONCALL_RUN_DIR"] == columns[5]["ONCALL_RUN_DIR"]
    assert columns[6]["ONCALL_RUN_DIR"] != columns[5]["ONCALL_RUN_DIR"]
