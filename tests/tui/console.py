"""A console in a test: without a terminal, on a fake session, with a clock that the test moves.

@piloted
async def test_something() -> None:
    async with console(FakeSession(hang_snapshot())) as running:
        await running.press("question_mark")
        assert "Explain" in running.text()
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from textual.pilot import Pilot

from oncall.tui.app import ConsoleApp
from oncall.tui.shell.messages import SessionThread

from .fake_session import FakeSession
from .snapshots import LAST_NS

_DEADLINE_S = 30.0
_QUIET = 3  # rounds without anything to do


class FakeClock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Running:
    """A console under test."""

    app: ConsoleApp
    pilot: Pilot[None]
    session: FakeSession
    clock: FakeClock

    async def settle(self) -> None:
        """Until nothing is asked and nothing is to be drawn."""
        deadline = time.monotonic() + _DEADLINE_S
        quiet = 0
        while quiet < _QUIET:
            assert time.monotonic() < deadline, "the console does not come to rest"
            if (screen := self.app.console_screen) is not None:
                screen.show_keys()
            await self.pilot.pause()
            await asyncio.sleep(0.005)
            quiet = 0 if self._busy() else quiet + 1

    def _busy(self) -> bool:
        thread: SessionThread | None = getattr(self.app, "session", None)
        return thread is None or thread.busy or bool(self.app.state.busy)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def type(self, text: str) -> None:
        """Each character as a key, then enter."""
        await self.pilot.press(*text, "enter")
        await self.settle()

    async def pass_s(self, seconds: float) -> None:
        """Time passes, and the console's beat finds it has."""
        self.clock.now_s += seconds
        self.app.beat()
        await self.settle()

    def text(self) -> str:
        """What is seen, without colours."""
        return "\n".join(strip.text for strip in self.app.screen._compositor.render_strips())

    def line(self, number: int) -> str:
        return self.text().splitlines()[number]


@asynccontextmanager
async def console(
    session: FakeSession | None = None,
    size: tuple[int, int] = (100, 30),
    kind: Callable[..., ConsoleApp] = ConsoleApp,
    **settings: Any,
) -> AsyncIterator[Running]:
    """The console on a session, at rest. `kind`: ConsoleApp, or what is derived from it."""
    session = session or FakeSession()
    clock = FakeClock()
    settings.setdefault("opener", lambda: session)
    app = kind(clock=clock, wall_ns=lambda: LAST_NS, **settings)
    async with app.run_test(size=size) as pilot:
        running = Running(app, pilot, session, clock)
        try:
            await running.settle()
            yield running
        finally:
            session.gate.set()
            assert app.close_session(), "the session's thread does not end"


def piloted(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """An asynchronous test as one that pytest runs."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))  # type: ignore[arg-type]

    run.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
    return run
