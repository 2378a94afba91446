"""The window's room, and which failures are tried again."""

from __future__ import annotations

import asyncio

import pytest

from oncall.fleet.outcome import HostError, TransientError
from oncall.fleet.ssh import transport as ssh_window
from oncall.fleet.ssh.transport import TRIES, Window, open_patiently


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_window, "_FIRST_PAUSE_S", 0.0)


class _Door:
    """Counts who is inside at a time, and how often it was tried."""

    def __init__(self, errors: list[Exception] | None = None) -> None:
        self.inside = self.most = self.tries = 0
        self._errors = errors or []

    async def open(self) -> str:
        self.tries += 1
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.inside -= 1
        if self._errors:
            raise self._errors.pop(0)
        return "open"


def _many(door: _Door, window: Window, through: list[str | None]) -> list[str]:
    async def run() -> list[str]:
        return await asyncio.gather(*(open_patiently(door.open, window, t, 5) for t in through))

    return asyncio.run(run())


def test_those_who_wait_for_a_jump_host_do_not_hold_up_others() -> None:
    async def run() -> None:
        window, release = Window(2, 1), asyncio.Event()

        async def stuck() -> None:
            await release.wait()

        waiting = [
            asyncio.create_task(open_patiently(stuck, window, "bastion", 60)) for _ in range(5)
        ]
        await asyncio.sleep(0)
        assert await open_patiently(_Door().open, window, None, 60) == "open"
        release.set()
        await asyncio.gather(*waiting)

    asyncio.run(run())


def test_a_drop_is_tried_again_and_what_will_not_change_is_not() -> None:
    drop = TransientError("refused", "dropped")
    door = _Door([drop, drop])
    assert _many(door, Window(1, 1), [None]) == ["open"]
    assert door.tries == 3

    for last in (HostError("auth"), HostError("hostkey"), HostError("timeout")):
        door = _Door([last])
        with pytest.raises(HostError) as reported:
            _many(door, Window(1, 1), [None])
        assert (reported.value.kind, door.tries) == (last.kind, 1)


def test_the_last_drop_is_reported() -> None:
    door = _Door([TransientError("refused", "dropped")] * TRIES)
    with pytest.raises(TransientError, match="dropped"):
        _many(door, Window(1, 1), [None])
    assert door.tries == TRIES


def test_a_try_has_its_time() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    with pytest.raises(HostError) as reported:
        asyncio.run(open_patiently(never, Window(1, 1), None, 0.05))
    assert reported.value.kind == "timeout"
