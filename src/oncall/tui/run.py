"""Starts the console: a terminal fit for it, signals that end it cleanly, an exit code."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from oncall.core.configuration import read_tables
from oncall.core.errors import BadInput, ExitCode, UsageError

if TYPE_CHECKING:
    from oncall.console.session import Session
    from oncall.demo.orders import Controls
    from oncall.tui.app import ConsoleApp
    from oncall.tui.shell.keys import ActionEntry

_LEAVE_AT = (signal.SIGHUP, signal.SIGTERM)
_CANNOT = {"dumb", "unknown"}
_PATIENCE_S = 4.0  # for a terminal to take what restores it


def run(
    opener: Callable[[], Session],
    *,
    job: str | None = None,
    recording: Path | None = None,
    configuration: Sequence[Path] = (),
    problems: Sequence[BadInput] = (),
    controls: Controls | None = None,
) -> int:
    """Show the console until it is left; returns the exit code. `controls`: of a demonstration,
    whose ranks the reader may break.

    Problems of the configuration, and the `problems` given, are shown in the console; otherwise
    wrong settings are ignored. Raises UsageError without a suitable terminal.
    """
    require_terminal()
    _calm()
    from oncall.core.printable import speaks_utf8
    from oncall.tui.app import ConsoleApp
    from oncall.tui.drawing.states import THEMES, default_theme
    from oncall.tui.shell.keys import read_keymap
    from oncall.tui.shell.there import read_commands

    theme, wrong_theme = _chosen_theme(configuration, [one.name for one in THEMES])
    node_actions, wrong_commands = read_commands(configuration)
    keymap, wrong_keys = read_keymap(configuration, lambda: _actions(node_actions))
    wrong = (*problems, *wrong_theme, *wrong_keys, *wrong_commands)
    app_of: Callable[..., ConsoleApp] = ConsoleApp
    if controls is not None:
        from oncall.tui.demonstration import DemonstrationApp

        app_of = partial(DemonstrationApp, controls)
    app = app_of(
        opener,
        job=job,
        recording=recording,
        theme=theme or default_theme(),
        keymap=keymap,
        ascii_only=not speaks_utf8(),
        startup_problems=list(dict.fromkeys(map(str, wrong))),
        node_actions=node_actions,
        once_read=collect_in_short_pauses,
    )
    return asyncio.run(_shown(app))


def require_terminal() -> None:
    """Raises UsageError without a terminal that the console can be shown on."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the console needs a terminal; use `oncall diagnose` instead")
    if (kind := os.environ.get("TERM")) in _CANNOT:
        raise UsageError(
            f"the console must move the cursor, and this terminal reports that it cannot "
            f"(TERM={kind}): set TERM to the terminal's type, such as xterm-256color, or use "
            f"`oncall diagnose`"
        )


async def _shown(app: ConsoleApp) -> int:
    """Run the application; a signal leaves it as `ctrl+q` does."""
    for number in _LEAVE_AT:
        signal.signal(number, _leaving(app, asyncio.get_running_loop()))
    try:
        await app.run_async()
    finally:
        app.close_session()  # what does not stop when asked to is left to the end of the process
    return ExitCode.BUG if app.failed else app.return_code or ExitCode.HEALTHY


def _leaving(
    app: ConsoleApp, loop: asyncio.AbstractEventLoop
) -> Callable[[int, FrameType | None], None]:
    """Leaves as `ctrl+q` does. Where the terminal takes nothing any more, which holds up the loop
    too, it ends without the terminal's consent; so this is no handler of the loop's."""

    def leave(number: int, _: FrameType | None) -> None:
        def give_up() -> None:
            app.close_session()
            os._exit(128 + number)

        patience = threading.Timer(_PATIENCE_S, give_up)
        patience.daemon = True
        patience.start()
        loop.call_soon_threadsafe(app.exit, None, 128 + number)

    return leave


def _calm() -> None:
    """Settings of textual, which it reads when it is imported: nothing moves by itself, and over
    SSH few frames a second do."""
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    os.environ.setdefault("TEXTUAL_SMOOTH_SCROLL", "0")
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)  # exported once, they would hide that the terminal is resized
    if "SSH_TTY" in os.environ:
        os.environ.setdefault("TEXTUAL_FPS", "15")


def _actions(everywhere: Sequence[ActionEntry[Any]] = ()) -> dict[str, list[ActionEntry[Any]]]:
    """What can be done on every screen, all of which are imported for that: title -> actions."""
    from oncall.tui.shell.actions import ACTIONS
    from oncall.tui.shell.registry import SCREENS
    from oncall.tui.shell.screen import load

    return {screen.title: [*load(screen).ACTIONS, *ACTIONS, *everywhere] for screen in SCREENS}


def _chosen_theme(
    configuration: Sequence[Path], names: Sequence[str]
) -> tuple[str | None, list[BadInput]]:
    """`theme` under [console], a later file over an earlier one; and what is wrong there."""
    chosen = None
    tables, problems = read_tables("console", configuration)
    for table in tables:
        for key, value in table.values.items():
            if key != "theme":
                problems.append(
                    BadInput(
                        str(table.path),
                        f"unknown setting `{key}` in [console]; the only setting is theme",
                    )
                )
            elif value in names:
                chosen = value
            else:
                known = ", ".join(names)
                message = f"[console] theme must be one of {known}, not {value!r}"
                problems.append(BadInput(str(table.path), message))
    return chosen, problems


_ALLOCATIONS = 20_000  # between two looks at what is new: 10 to 20 ms each


def collect_in_short_pauses() -> None:
    """Once everything is imported: what is there stays, and is not looked at again."""
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, *gc.get_threshold()[1:])
