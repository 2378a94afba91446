"""Waiting for what comes after a pause: a check of what was typed, the rows of a step."""

from __future__ import annotations

import time
from collections.abc import Callable

from .console import Running

_DEADLINE_S = 30.0


async def until(running: Running, holds: Callable[[], object]) -> None:
    """Until something holds; fails if it does not in half a minute."""
    deadline = time.monotonic() + _DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, f"it never held; seen:\n{running.text()}"
        await running.pilot.pause(0.02)
    await running.settle()


async def until_seen(running: Running, text: str) -> None:
    """Until a text is on the screen."""
    await until(running, lambda: text in running.text())
