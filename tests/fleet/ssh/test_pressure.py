"""More logins than a server takes at a time: its drops are survived, and counted to be real."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from asking import Fleet
from loopback import Loopback, why_not

from oncall.fleet.configuration import TransportName
from oncall.fleet.ssh.transport import SshTransport

_HOSTS = [f"busy{number:02}" for number in range(24)]


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    """Nodes behind one sshd that drops half of the logins beyond four, and all beyond ten."""
    if reason := why_not():
        pytest.skip(reason)
    with Loopback(
        tmp_path_factory.mktemp("busy"), more_nodes=_HOSTS, settings=["MaxStartups 4:50:10"]
    ) as running:
        yield running


def test_every_node_answers(busy: Loopback, transport_name: TransportName) -> None:
    async def ask(transport: SshTransport) -> list[str]:
        async def node(host: str) -> str:
            async with transport.connect(host) as connection:
                return str((await connection.hello()).status["node"])

        return await asyncio.gather(*map(node, _HOSTS))

    before = _drops(busy)
    fleet = Fleet(busy, transport_name)
    assert fleet.run(ask, window=16, connect_timeout_s=30.0) == _HOSTS
    assert _drops(busy) > before


def _drops(busy: Loopback) -> int:
    text = Path(busy.log).read_text()
    return text.count("drop connection") + text.count("MaxStartups throttling")
