"""One line per event on stderr, in the form that journald expects."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import IO

_PRIORITIES = {"error": 3, "warning": 4, "info": 6}


class Log:
    """Writes lines to a stream; under journald with its priorities and without the time, which
    journald adds itself."""

    def __init__(
        self, stream: IO[str] | None = None, environment: Mapping[str, str] = os.environ
    ) -> None:
        self._stream = stream or sys.stderr
        self._journald = "JOURNAL_STREAM" in environment

    def info(self, text: str) -> None:
        self._write("info", text)

    def warning(self, text: str) -> None:
        self._write("warning", text)

    def error(self, text: str) -> None:
        self._write("error", text)

    def _write(self, level: str, text: str) -> None:
        line = " ".join(text.split())
        if self._journald:
            line = f"<{_PRIORITIES[level]}>{line}"
        else:
            line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {level}: {line}"
        print(line, file=self._stream, flush=True)
