"""How many logins at a time, and which failures are tried again.

A server drops logins beyond its MaxStartups (OpenSSH: from 10 at a time, at random), and a jump
host meets those of a whole fleet. So new connections pass through a window, a narrower one for
those that share a jump host, and a drop is met with another try a little later. What will not
change by itself - a key that is refused, a host key that is wrong, silence for a whole timeout -
is never tried again.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

from oncall.fleet.outcome import HostError
from oncall.fleet.ssh_errors import TransientError

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
            # The narrow door first: who waits there must not fill the wide one.
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
    """Open a connection within the window, each try within `most_s`; a drop is tried again.

    Raises HostError: that of the last try.
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
        # Doubling, and each host at a time of its own, or all would come back together.
        await asyncio.sleep(_FIRST_PAUSE_S * 2**number * random.uniform(0.5, 1.5))
    raise AssertionError("the last try returns or raises")
