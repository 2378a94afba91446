"""Asks nodes of a loopback fleet, each time by a transport of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from loopback import Loopback

from oncall.fleet.configuration import FleetConfiguration, TransportName
from oncall.fleet.outcome import HostError
from oncall.fleet.ssh.transport import SshTransport
from oncall.node.store.wire import End

Result = TypeVar("Result")


class Fleet:
    """A loopback fleet, asked by one kind of transport."""

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
        with pytest.raises(HostError) as reported:
            self.hello(host, *options, **settings)
        return reported.value
