"""How far the reading of recordings is, and what it met: counted by the thread that reads, seen by
any other."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from oncall.core.units import NS_PER_S, format_bytes, format_duration

if TYPE_CHECKING:
    from multiprocessing.context import SpawnContext
    from multiprocessing.sharedctypes import Synchronized

_LEAST_S = 1.0  # before a rate says anything


@dataclass
class ReadSoFar:
    """`total_bytes` of the files, as they lie there, 0 until they are known; `bytes` of them read,
    once more where a file is read twice. `found`: the first line that reports a failure. One thread
    counts, and in `shared` the processes that read for it, too."""

    total_bytes: int = 0
    bytes: int = 0
    found: str = ""
    began_s: float = field(default_factory=time.monotonic)
    shared: Synchronized[int] | None = None

    def phrase(self, now_s: float | None = None) -> str:
        """`85 MiB of 200 MiB, 4.1 MiB/s, 28 s left; found: LINE`; empty until there is something to
        say."""
        so_far = max(self.bytes, self.shared.value) if self.shared else self.bytes
        total, read = self.total_bytes, min(so_far, self.total_bytes)
        spent_s = (time.monotonic() if now_s is None else now_s) - self.began_s
        if not total or spent_s < _LEAST_S:
            return ""
        if read == total:
            return f"{format_bytes(total)} read, joining it{self._first()}"
        rate = read / spent_s
        left = f", {format_duration(round((total - read) / rate) * NS_PER_S)} left" if rate else ""
        progress = f"{format_bytes(read)} of {format_bytes(total)}, {format_bytes(rate)}/s{left}"
        return progress + self._first()

    def _first(self) -> str:
        return f"; found: {self.found}" if self.found else ""


_now: ContextVar[ReadSoFar | None] = ContextVar("so_far", default=None)


@contextmanager
def counted(so_far: ReadSoFar | None) -> Iterator[None]:
    """What this thread reads in this block is counted there."""
    token = _now.set(so_far)
    try:
        yield
    finally:
        _now.reset(token)


def will_read(paths: Sequence[Path]) -> None:
    """These files are what is to be read: the count begins."""
    if (so_far := _now.get()) is not None:
        so_far.bytes, so_far.total_bytes, so_far.found = 0, sum(map(_size, paths)), ""
        so_far.began_s = time.monotonic()


def has_found(text: str | None) -> None:
    """A line reports a failure. On the way to a terminal, it loses what may steer one."""
    if (so_far := _now.get()) is not None and text and not so_far.found:
        so_far.found = "".join(letter if letter.isprintable() else " " for letter in text)


def has_read(count: int) -> None:
    """So many bytes of a file, as it lies there, were read."""
    if (so_far := _now.get()) is not None:
        so_far.bytes += count
        if so_far.shared is not None:
            with so_far.shared.get_lock():
                so_far.shared.value += count


def shared(context: SpawnContext) -> Synchronized[int] | None:
    """The count as a number that processes share and `count_in`; None if nobody looks."""
    if (so_far := _now.get()) is None:
        return None
    so_far.shared = context.Value("q", so_far.bytes)
    return so_far.shared


def count_in(number: Synchronized[int] | None) -> None:
    """What this process reads is counted there."""
    _now.set(ReadSoFar(shared=number))


def have_read(paths: Sequence[Path | str]) -> None:
    """These files were read by another process, which may not count what its C code reads."""
    if (so_far := _now.get()) is not None:
        so_far.bytes += sum(map(_size, paths))


def _size(path: Path | str) -> int:
    try:
        return Path(path).stat().st_size
    except (OSError, ValueError):  # an address
        return 0
