"""`e`: a text in the reader's own editor, with the console out of the way meanwhile."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported

from oncall.core.errors import UsageError


def edited_outside(app: App[Any], path: Path) -> str:
    """What `path` holds after it was edited in $VISUAL, $EDITOR or vi.

    Raises UsageError if there is no such editor, or it failed.
    """
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        with app.suspend():
            code = subprocess.run([*shlex.split(command), str(path)], check=False).returncode
    except SuspendNotSupported:
        raise UsageError("this terminal cannot start another program") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(
            f"cannot start the editor `{command}` ({why}); set EDITOR to another one"
        ) from None
    if code != 0:
        raise UsageError(f"the editor `{command}` exited with {code}; the text is unchanged")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path} after editing: {error}") from None
