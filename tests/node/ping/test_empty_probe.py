"""Empty probes where there is no RDMA; with RDMA they are tried in tests/vm."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncall.node.ping.empty_probe import EmptyProbes, ip_of
from oncall.node.ping.local_nics import LocalNic

GID = "0000:0000:0000:0000:0000:ffff:0a4d:0002"
Until = Callable[[Callable[[], object]], None]


@pytest.mark.parametrize(
    ("gid", "address"),
    [
        (GID, "10.77.0.2"),
        ("2001:0db8:0000:0000:0000:0000:0000:0007", "2001:db8::7"),
        ("fe80:0000:0000:0000:506b:4bff:fe00:0001", None),  # InfiniBand, RoCE v1
    ],
)
def test_a_gid_of_roce_v2_is_an_address(gid: str, address: str | None) -> None:
    assert ip_of(gid) == address


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmptyProbes]:
    monkeypatch.setitem(sys.modules, "pyverbs.addr", None)
    nics = [LocalNic("mlx5_0", "eth0", "127.0.0.1", 1)]
    made = EmptyProbes(7766, Path("/"), lambda _: nics)
    yield made
    made.close()


def test_without_pyverbs_it_is_said_why_and_nothing_is_reported(
    probes: EmptyProbes, until: Until
) -> None:
    probes.meet("mlx5_0", GID)
    until(lambda: probes.without)
    assert "pyverbs" in (probes.without or "")
    probes.send("mlx5_0", GID)
    until(lambda: not probes.is_under_way("mlx5_0", GID))
    assert probes.result("mlx5_0", GID) is None
