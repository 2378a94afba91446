"""Waiting for what comes by a timer: polled, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

from .console import Running

_DEADLINE_S = 20.0


async def until(running: Running, holds: Callable[[], object]) -> None:
    """The console at rest, and `holds()` true."""
    deadline = time.monotonic() + _DEADLINE_S
    while True:
        await running.settle()
        if holds():
            return
        assert time.monotonic() < deadline, f"it never came to that:\n{running.text()}"
