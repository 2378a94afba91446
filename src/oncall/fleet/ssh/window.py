"""Limit concurrent logins and retry those that a server drops.

A server drops logins beyond its MaxStartups (OpenSSH: at random from 10 at a time), and a jump host
gets those of a whole fleet. So the number of concurrent logins is limited, more strictly through a
jump host, and a dropped login is retried after a pause. A refused key, a wrong host key and a
timeout are not retried.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

from oncall.fleet.error_output import TransientError
from oncall.fleet.outcome import HostError

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
