"""Who runs, from /proc: that nothing is left behind is looked up, not believed."""

from __future__ import annotations

import os
import time
from pathlib import Path

_WAIT_S = 20.0


def running_with(text: str) -> list[str]:
    """The processes that have `text` in their command line or environment, but for this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                command, environment = (
                    (entry / name).read_bytes() for name in ("cmdline", "environ")
                )
            except OSError:
                continue
            if text.encode() in command + b"\0" + environment:
                words = command.replace(b"\0", b" ").decode(errors="replace")
                found.append(f"{entry.name}: {words}")
    return found


def left_with(text: str) -> list[str]:
    """Those that are still there after a while: [] is what a test hopes for."""
    until = time.monotonic() + _WAIT_S
    while (found := running_with(text)) and time.monotonic() < until:
        time.sleep(0.05)
    return found
