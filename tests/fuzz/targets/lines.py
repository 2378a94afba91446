"""Text of logs and hosts, line by line: what a job, a kernel or a tool printed, and was damaged."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

from oncall.importers.host_text import importer as host_text
from oncall.importers.logs import importer as logs

from ..registry import target

_TESTS = Path(__file__).parents[2]
_WHOLE = _TESTS / "importers" / "logs" / "whole"
_TEXTS = 8
_OF_HOSTS = _TESTS / "importers" / "host_text"


def _job_logs() -> list[bytes]:
    """Many logs in one text: most are short, and a file costs more than its lines."""
    texts = b"\n".join(path.read_bytes() for path in sorted(_WHOLE.glob("*.txt")))
    logs = [part.partition(b"\n")[2] for part in texts.split(b"\n=== ")]
    return [b"\n".join(logs[at::_TEXTS]) for at in range(_TEXTS)]


def _hosts_texts() -> list[bytes]:
    """The long strings of the tests of host text: each is what one tool prints."""
    tests = [path.read_text() for path in sorted(_OF_HOSTS.glob("test_*.py"))]
    parts = [part for text in tests for part in text.split('"""')[1::2]]
    return [part.replace("\\t", "\t").encode() for part in parts if part.count("\n") > 2]


@cache
def _room() -> Path:
    return Path(tempfile.mkdtemp(prefix="oncall-fuzz-"))


def _written(data: bytes, name: str) -> Path:
    path = _room() / f"{os.getpid()}-{name}"
    path.write_bytes(data)
    return path


@target(corpus=_job_logs)
def log_lines(data: bytes) -> None:
    """A job's log, as its importer reads every line of it."""
    path = _written(data, "job.log")
    logs.recognises(path, data[:16384])
    logs._read(path, [])


@target(corpus=_hosts_texts)
def host_lines(data: bytes) -> None:
    """What a kernel or a tool of a host printed."""
    path = _written(data, "dmesg.txt")
    host_text.recognises(path, data[:16384])
    host_text._read(path, "gpu7")
