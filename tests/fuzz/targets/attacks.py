"""Texts that are made to keep a reader busy, as files that are recognised and read."""

from __future__ import annotations

import gzip
from contextlib import suppress
from functools import cache

from oncall.core.errors import BadInput
from oncall.evidence.incident import Incident
from oncall.importers.detect import load

from ..patterns import Pattern, attacks, patterns
from ..registry import file_of, target

_HEAD_BYTES = 1 << 14  # what recognition looks at
_LINE_BYTES = 1 << 13
_LOG_BYTES = 1 << 20
# Lines that hold a reader's words, each short or as long as one is read.
_SLOW_LINES = (
    *(" across ranks (ms)", " Traceback (most recent call last)", "Current thread 0x1 (most"),
    *("CUDA error: x" + " " * _LINE_BYTES, "NCCL WARN " + "a." * (_LINE_BYTES // 2)),
    *("1." * (_LINE_BYTES // 2) + " s/step", "iteration 1/2 | " + "1" * _LINE_BYTES + "ms/it"),
    *("Current thread " * (_LINE_BYTES // 16), "RuntimeError: " * (_LINE_BYTES // 16)),
    *('{"' + '"log": "' * (_LINE_BYTES // 8), "step " + "1/" * (_LINE_BYTES // 2)),
    *("[rank0]: " * (_LINE_BYTES // 9), "Xid " * (_LINE_BYTES // 4), "<" * _LINE_BYTES + " OOM"),
)


@cache
def _patterns() -> list[Pattern]:
    return [pattern for pattern in patterns() if pattern.where.startswith("importers/")]


@cache
def _attacks(number: int) -> list[str]:
    return [one.text(_HEAD_BYTES) for one in attacks(_patterns()[number])] or [""]


def _pumped(seed: int) -> bytes:
    """One pattern after another, of each another text."""
    turn, number = divmod(seed, len(_patterns()))
    texts = _attacks(number)
    return texts[turn % len(texts)].encode()


def _slow_log(seed: int) -> bytes:
    turn, number = divmod(seed, len(_SLOW_LINES))
    before = ("", "2026-03-14 02:55:00 ", "[rank5]: ", "gpu017: ")[turn % 4]
    line = f"{before}{_SLOW_LINES[number]}\n".encode()
    return line * (_LOG_BYTES // len(line) + 1)


def _diagnose(data: bytes, name: str) -> None:
    with file_of(data, name) as path, Incident.empty() as incident, suppress(BadInput):
        load([path], incident)


@target(make=_pumped)
def pumped_patterns(data: bytes) -> None:
    """A text that keeps a pattern of a reader busy, as the beginning of a packed file."""
    _diagnose(gzip.compress(data, 1), "evidence.gz")


@target(make=_slow_log)
def slow_logs(data: bytes) -> None:
    """A log of lines each of which takes long."""
    _diagnose(data, "job.log")
