"""One fleet behind a real sshd for all tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncall.fleet.configuration import TransportName

sys.path.insert(0, str(Path(__file__).parent))  # the fleet is shared with benchmarks

from asking import Fleet
from loopback import Loopback, why_not


@pytest.fixture(scope="session")
def loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    """The fleet; each test session has one."""
    if reason := why_not():
        pytest.skip(reason)
    inner = [f"inner{number:02}" for number in range(1, 21)]
    with Loopback(
        tmp_path_factory.mktemp("ssh"), more_nodes=["quick"], more_inner=inner
    ) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture(params=["in-process", "openssh"])
def transport_name(request: pytest.FixtureRequest) -> TransportName:
    name: TransportName = request.param
    return name


@pytest.fixture
def fleet(loopback: Loopback, transport_name: TransportName) -> Fleet:
    return Fleet(loopback, transport_name)
