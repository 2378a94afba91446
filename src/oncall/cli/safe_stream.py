"""A text stream that removes control sequences other than our own colours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TextIO

from oncall.core.printable import for_terminal


class SafeStream:
    """Wraps a text stream. Bytes written to its `buffer` are not filtered."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(for_terminal(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
