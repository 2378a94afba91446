"""One fleet behind a real sshd for all tests of this folder."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from oncall.fleet.configuration import FleetConfiguration, TransportName
from oncall.fleet.outcome import HostError
from oncall.fleet.ssh_transport import SshTransport
from oncall.shards.wire import End

sys.path.insert(0, str(Path(__file__).parent))  # the fixture's module is shared with benchmarks

from loopback import Loopback, why_not

INNER = tuple(f"inner{number:02}" for number in range(1, 21))

Result = TypeVar("Result")


@pytest.fixture(scope="session")
def loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    """The fleet; each test session has one."""
    if reason := why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("ssh")
    with Loopback(folder, more_nodes=["quick"], more_inner=INNER) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture(params=["in-process", "openssh"])
def transport_name(request: pytest.FixtureRequest) -> TransportName:
    name: TransportName = request.param
    return name


class Fleet:
    """Runs coroutines on a transport of its own to a loopback fleet."""

    def __init__(self, loopback: Loopback, transport: TransportName) -> None:
        self.loopback = loopback
        self.transport: TransportName = transport

    def configuration(self, *options: str, **settings: Any) -> FleetConfiguration:
        """`options` are ssh's, before those of the fleet's ssh_config."""
        settings = {"connect_timeout_s": 5.0, "transport": self.transport} | settings
        file = () if "-F" in options else ("-F", str(self.loopback.config))
        return FleetConfiguration(ssh_options=(*options, *file), **settings)

    def run(
        self,
        work: Callable[[SshTransport], Awaitable[Result]],
        *options: str,
        **settings: Any,
    ) -> Result:
        async def within() -> Result:
            async with SshTransport(self.configuration(*options, **settings)) as transport:
                return await work(transport)

        return asyncio.run(within())

    def hello(self, host: str, *options: str, **settings: Any) -> End:
        """What the host answers to `hello`. Raises HostError."""

        async def ask(transport: SshTransport) -> End:
            async with transport.connect(host) as connection:
                return await connection.hello()

        return self.run(ask, *options, **settings)

    def refusal(self, host: str, *options: str, **settings: Any) -> HostError:
        """Why the host does not answer."""
        with pytest.raises(HostError) as told:
            self.hello(host, *options, **settings)
        return told.value


@pytest.fixture
def fleet(loopback: Loopback, transport_name: TransportName) -> Fleet:
    return Fleet(loopback, transport_name)
