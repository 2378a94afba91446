"""A console on real evidence, and a reader who presses every key of every screen.

async with opened(path) as walk:
    await walk.everywhere()
    assert "[/]" in walk.seen
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from textual.pilot import Pilot, WaitForScreenTimeout

from oncall.console.opening import open_recording
from oncall.tui.app import ConsoleApp
from oncall.tui.shell.keys import keys_by_id
from oncall.tui.shell.registry import SCREENS

_DEADLINE_S = 240.0  # on a busy machine; at rest a screen takes tenths of a second
_QUIET = 3
# Keys that leave the console or write files, which are pressed where they are meant.
_NOT_HERE = frozenset({"quit", "back", "save", "export", "mark", "play"})


@dataclass
class Walk:
    """Where the reader is, and all that was to be seen on the way."""

    app: ConsoleApp
    pilot: Pilot[None]
    pages: list[str] = field(default_factory=list)
    copied: list[str] = field(default_factory=list)

    @property
    def seen(self) -> str:
        return "\n".join(self.pages)

    async def settle(self) -> None:
        """Until nothing is asked and nothing is to be drawn; keep what is seen."""
        deadline, quiet = time.monotonic() + _DEADLINE_S, 0
        while quiet < _QUIET:
            assert time.monotonic() < deadline, "the console does not come to rest"
            with suppress(WaitForScreenTimeout):
                await self.pilot.pause()
            await asyncio.sleep(0.002)
            thread = getattr(self.app, "session", None)
            busy = thread is None or thread.busy or bool(self.app.state.busy)
            quiet = 0 if busy else quiet + 1
        assert not self.app.failed
        strips = self.app.screen._compositor.render_strips()
        self.pages.append("\n".join(strip.text for strip in strips))
        if self.app.clipboard not in self.copied:
            self.copied.append(self.app.clipboard)

    async def press(self, *keys: str) -> None:
        for key in keys:
            with suppress(WaitForScreenTimeout):
                await self.pilot.press(key)
        await self.settle()

    async def type(self, text: str) -> None:
        """What a terminal would send as pasted text, then enter."""
        self.app.screen.query_one("Input").insert_text_at_cursor(text)  # type: ignore[attr-defined]
        await self.press("enter")

    async def each_screen(self, keys: Sequence[str] = ()) -> None:
        """Every screen: its own keys, its help, the palette, what can be copied."""
        for entry in SCREENS[1:]:
            await self.press(entry.key, "j")
            screen = self.app.console_screen
            assert screen is not None and screen.entry == entry
            known = keys_by_id(screen)
            own = [known[one.id][0] for one in screen.ACTIONS if one.id in known]
            for key in (*own, *keys):
                await self.press(key)
                while len(self.app.screen_stack) > 1:
                    await self.press("escape")
                if self.app.console_screen is not screen:
                    await self.press(entry.key)


@asynccontextmanager
async def walking(app: ConsoleApp, size: tuple[int, int] = (130, 40)) -> AsyncIterator[Walk]:
    """A reader of that console."""
    async with app.run_test(size=size) as pilot:
        walk = Walk(app, pilot)
        try:
            await walk.settle()
            yield walk
        finally:
            app.close_session()


def opened(path: Path, job: str | None = None) -> AbstractAsyncContextManager[Walk]:
    """A reader of a saved incident."""
    return walking(ConsoleApp(lambda: open_recording([path], job), job=job, recording=path))
