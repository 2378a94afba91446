"""Reach hosts over SSH, each by the fastest transport that its configuration allows.

async with SshTransport(configuration) as transport:
    async with transport.connect("gpu017") as connection:
        await connection.hello()
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

from oncall.fleet.configuration import FleetConfiguration
from oncall.fleet.inventory import check_host
from oncall.fleet.outcome import HostError, TransientError
from oncall.fleet.ssh import openssh
from oncall.fleet.ssh.choose import Choice, choose, master_alive
from oncall.fleet.ssh.config import Resolver, SshOptions
from oncall.fleet.ssh.in_process import Connections, InProcessChannel
from oncall.fleet.transport import READ_BYTES, Connection

# Limit concurrent logins and retry those that a server drops.
#
# A server drops logins beyond its MaxStartups (OpenSSH: at random from 10 at a time), and a jump
# host gets those of a whole fleet. So the number of concurrent logins is limited, more strictly
# through a jump host, and a dropped login is retried after a pause. A refused key, a wrong host
# key and a timeout are not retried.

Opened = TypeVar("Opened")

TRIES = 6
_FIRST_PAUSE_S = 0.2


class Window:
    """Room for new connections: `direct` at a time, of these `jump` through one jump host."""

    def __init__(self, direct: int, jump: int) -> None:
        self._direct = asyncio.Semaphore(direct)
        self._through: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(jump))

    @asynccontextmanager
    async def room(self, through: str | None) -> AsyncIterator[None]:
        """Wait for room, for a connection that itself logs in to the jump host `through`."""
        async with AsyncExitStack() as held:
            # The smaller limit first: waiting for it must not use up the larger one.
            if through is not None:
                await held.enter_async_context(self._through[through])
            await held.enter_async_context(self._direct)
            yield


async def open_patiently(
    open_once: Callable[[], Awaitable[Opened]],
    window: Window,
    through: str | None,
    most_s: float,
) -> Opened:
    """Open a connection within the window, each attempt within `most_s`; retry dropped logins.

    Raises the HostError of the last attempt.
    """
    for number in range(TRIES):
        try:
            async with window.room(through), asyncio.timeout(most_s):
                return await open_once()
        except TimeoutError:
            raise HostError("timeout", f"no login within {most_s:g} s") from None
        except TransientError:
            if number == TRIES - 1:
                raise
        # Doubling with jitter, or all hosts would retry at the same time.
        await asyncio.sleep(_FIRST_PAUSE_S * 2**number * random.uniform(0.5, 1.5))
    raise AssertionError("the last try returns or raises")


_MARGIN_S = 2.0  # beyond ssh's own time limit, so that ssh can report its own timeout


class SshTransport:
    """A Transport over SSH. Its jump connections live until it is closed."""

    def __init__(self, configuration: FleetConfiguration) -> None:
        self._configuration = configuration
        self._resolver = Resolver(configuration.ssh, configuration.ssh_options)
        self._window = Window(configuration.window, configuration.jump_window)
        self._connections: Connections | None = None

    async def __aenter__(self) -> SshTransport:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._connections is not None:
            await self._connections.close()
            self._connections = None
        await self._resolver.close()

    @asynccontextmanager
    async def connect(self, host: str) -> AsyncIterator[Connection]:
        """A connection to `oncall node serve` on the host. Raises HostError."""
        check_host(host)
        options = await self._resolver.resolve(host)
        choice = await self.choice(options)
        channel = await self._open(options, choice, self._configuration.command)
        try:
            yield Connection(host, channel, silence_s=self._configuration.answer_timeout_s)
        finally:
            await channel.close()

    def by_hand(self, host: str, command: str) -> tuple[str, ...]:
        """The words that run a command on the host in the user's own terminal; without one, a
        shell. Raises UsageError."""
        check_host(host)
        fleet = self._configuration
        return (fleet.ssh, "-t", *fleet.ssh_options, "--", host, *([command] if command else ()))

    async def run(self, host: str, command: str, most_bytes: int) -> str:
        """What a shell command without input prints on the host, errors included, `most_bytes` of
        it at most. Raises HostError."""
        check_host(host)
        options = await self._resolver.resolve(host)
        line = f"( {command} ) </dev/null 2>&1"
        channel = await self._open(options, await self.choice(options), line)
        printed = b""
        try:
            while len(printed) < most_bytes and (data := await channel.read(READ_BYTES)):
                printed += data
        finally:
            await channel.close()
        return printed[:most_bytes].decode(errors="replace")

    async def resolve(self, host: str) -> SshOptions:
        """The options in force for a host. Raises HostError."""
        check_host(host)
        return await self._resolver.resolve(host)

    async def choice(self, options: SshOptions) -> Choice:
        """The transport for a host, and why."""
        wanted = self._configuration.transport
        if wanted == "openssh":
            return Choice(wanted, "set in the configuration")
        connections = await self._shared()
        choice = choose(options, await self._resolver.defaults(), connections.keys)
        if wanted == "in-process" and choice.transport != wanted:
            return Choice(wanted, f"set in the configuration, ignoring {choice.why}")
        return choice

    async def _open(
        self, options: SshOptions, choice: Choice, command: str
    ) -> openssh.OpenSshChannel | InProcessChannel:
        configuration = self._configuration
        login_s = options.number("connecttimeout", 0) or configuration.connect_timeout_s
        most_s = login_s * (1 + len(options.jumps)) + _MARGIN_S
        if choice.transport == "in-process":
            connections = await self._shared()
            return await open_patiently(
                lambda: connections.open_channel(options, command),
                self._window,
                None,  # the jump host sees one login for all
                most_s,
            )
        argv = openssh.arguments(
            configuration.ssh,
            configuration.ssh_options,
            options,
            command,
            configuration.connect_timeout_s,
        )
        alive = master_alive(options)
        return await open_patiently(
            lambda: openssh.open_channel(argv, options.host, master_alive=alive),
            self._window,
            options.jumps[0].host if options.jumps else None,
            most_s,
        )

    async def _shared(self) -> Connections:
        if self._connections is None:
            defaults = await self._resolver.defaults()
            # Another host may have created them meanwhile.
            self._connections = self._connections or Connections(
                dict(defaults), self._configuration.connect_timeout_s
            )
        return self._connections
