"""Routes in the syntax of ClusterShell's topology.conf."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from ClusterShell.Topology import TopologyParser

from oncall.core.errors import BadInput
from oncall.fleet.configuration import read_configuration
from oncall.fleet.reach import reach_fleet
from oncall.fleet.tree.routes import read_routes


def written(folder: Path, text: str) -> Path:
    path = folder / "topology.conf"
    path.write_text(text)
    return path


def test_the_nodes_of_a_line_are_shared_among_its_gateways(tmp_path: Path) -> None:
    text = "[routes]\nadmin: gw[1-4]\n# a comment\ngw[1-2]: gpu[001-128]\ngw[3-4]: gpu[129-130]\n"
    path = written(tmp_path, text)
    found = read_routes(path, "admin.example.org")
    assert len(found) == 130
    assert Counter(found.values()) == {"gw1": 64, "gw2": 64, "gw3": 1, "gw4": 1}
    assert found["gpu064"] == "gw1" and found["gpu065"] == "gw2"
    # ClusterShell reads the same file, and reaches the same nodes through the same gateways.
    tree = TopologyParser(str(path)).tree("admin")
    assert str(tree.find_nodegroup("gpu001").parent.nodeset) == "gw[1-2]"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gw: gpu1\n", "no section headers"),
        ("[main]\ngw: gpu1\n", r"no section \[routes\]"),
        ("[routes]\ngw1: gpu[1-4]\ngw2: gpu4\n", "gpu4 is on two lines"),
        ("[routes]\ngw1: gpu[1-\n", "not a node set|no span"),
        ("[routes]\ngw1:\n", "contains no host"),
        ("[routes]\ngw1: -oProxyCommand=x\n", "ssh would take it for an option"),
        ("[routes]\ngw1: gpu[1-513]\n", "add gateways"),
        ("[routes]\ngw1: gpu[1-99999999]\n", "more than"),
    ],
)
def test_a_file_that_is_wrong_says_so(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read_routes(written(tmp_path, text), "here")


def test_few_nodes_are_asked_directly(tmp_path: Path, configured: Callable[[str], Path]) -> None:
    path = written(tmp_path, "[routes]\ngw[1-64]: gpu[1-4096]\n")
    settings = configured(f'[fleet]\ntopology = "{path}"\n')
    assert read_configuration([settings]).tree_from == 512
    assert reach_fleet("gpu[1-511]", None).tree is None
    tree = reach_fleet("gpu[1-512]", None).tree
    assert tree is not None
    assert tree.gateway_of["gpu64"] == "gw1"
    configured(f'[fleet]\ntopology = "{path}"\ntree_from = 100\n')
    assert reach_fleet("gpu[1-511]", None).tree is not None
