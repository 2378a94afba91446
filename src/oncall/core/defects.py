"""A defect of oncall's own that must not end what else goes on: said in a line, kept in full.

Tracebacks go to `$XDG_STATE_HOME/oncall/defects.log`, the newest last.
"""

from __future__ import annotations

import os
import traceback
from datetime import UTC, datetime
from pathlib import Path

from oncall.core.errors import short_reason

_MOST_BYTES = 2**20  # of the file; then it begins anew


def defects_file() -> Path:
    """Where tracebacks are kept."""
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser() / "oncall" / "defects.log"


def described(error: BaseException) -> str:
    """`a defect of oncall: KeyError: 'x' (traceback in /home/me/.local/state/oncall/defects.log)`.

    Keeps the traceback; where that cannot be written, names the line instead.
    """
    said = f"a defect of oncall: {short_reason(error)}"
    path = defects_file()
    text = "".join(traceback.format_exception(error))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = "w" if path.exists() and path.stat().st_size > _MOST_BYTES else "a"
        with path.open(mode, encoding="utf-8", errors="replace") as file:
            file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC\n{text}\n")
    except OSError:
        last = traceback.extract_tb(error.__traceback__)[-1:]
        where = ", ".join(f"{Path(one.filename).name}:{one.lineno}" for one in last)
        return f"{said} ({where})" if where else said
    return f"{said} (traceback in {path})"
