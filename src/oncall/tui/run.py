"""Starts the console: a terminal fit for it, signals that end it cleanly, an exit code."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oncall.errors import BadInput, ExitCode, UsageError

if TYPE_CHECKING:
    from oncall.console.session import Session
    from oncall.tui.app import ConsoleApp

_LEAVE_AT = (signal.SIGHUP, signal.SIGTERM)


def run(
    opener: Callable[[], Session],
    *,
    job: str | None = None,
    recording: Path | None = None,
    configuration: Sequence[Path] = (),
) -> int:
    """Show the console until it is left; returns the exit code.

    Raises UsageError without a terminal, BadInput for a configuration that is wrong.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the console needs a terminal; `oncall diagnose` prints instead")
    _calm()
    from oncall.tui.app import ConsoleApp
    from oncall.tui.glyphs import speaks_utf8
    from oncall.tui.keys import read_keymap
    from oncall.tui.themes import THEMES, usual_theme

    theme = _chosen_theme(configuration, [one.name for one in THEMES])
    app = ConsoleApp(
        opener,
        job=job,
        recording=recording,
        theme=theme or usual_theme(),
        keymap=read_keymap(configuration, _action_ids),
        ascii_only=not speaks_utf8(),
    )
    return asyncio.run(_shown(app))


async def _shown(app: ConsoleApp) -> int:
    """Run the application; a signal leaves it as `ctrl+q` does."""
    loop = asyncio.get_running_loop()
    for number in _LEAVE_AT:
        loop.add_signal_handler(number, app.exit, None, 128 + number)
    try:
        await app.run_async()
    finally:
        app.close_session()  # what does not stop when told to is left to the end of the process
    return ExitCode.BUG if app.failed else app.return_code or ExitCode.HEALTHY


def _calm() -> None:
    """Settings of textual, which it reads when it is imported: nothing moves by itself, and over
    SSH few frames a second do."""
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    os.environ.setdefault("TEXTUAL_SMOOTH_SCROLL", "0")
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)  # exported once, they would hide that the terminal is resized
    if "SSH_TTY" in os.environ:
        os.environ.setdefault("TEXTUAL_FPS", "15")


def _action_ids() -> Iterator[str]:
    """Every action of every screen, all of which are imported for that."""
    from oncall.tui.actions import ACTIONS
    from oncall.tui.registry import SCREENS

    yield from (entry.id for entry in ACTIONS)
    for screen in SCREENS:
        yield from (entry.id for entry in screen.load().ACTIONS)


def _chosen_theme(configuration: Sequence[Path], names: Sequence[str]) -> str | None:
    """`theme` under [console], a later file over an earlier one. Raises BadInput."""
    chosen = None
    for path in configuration:
        try:
            table = tomllib.loads(path.read_text()).get("console", {})
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
            raise BadInput(str(path), f"cannot be read: {error}") from None
        if isinstance(table, dict) and "theme" in table:
            chosen = table["theme"]
            if chosen not in names:
                known = ", ".join(names)
                raise BadInput(str(path), f"[console] theme is one of {known}, not {chosen!r}")
    return chosen
