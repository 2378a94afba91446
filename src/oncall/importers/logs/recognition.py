"""Whether a file is a log that a job may have written.

Content decides: it is text and holds words of a recogniser, at its start or, if it is called a
log, at its end.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from oncall.core.errors import Unreadable
from oncall.importers import files, zstd
from oncall.importers.logs.recognisers.order import NEEDLES

_NAMED = re.compile(
    r"\.(?:log|out|err|stdout|stderr|txt)(?:\.\d+)?(?:\.(?:gz|zst|xz|bz2))?$|^(?:stdout|stderr)\b|^slurm-\d+|[-_.](?:log|stderr|stdout)$",
    re.IGNORECASE,
)
_HOLES = re.compile(rb"\0{64,}")  # where a log was cut while a process wrote on, or a host died
_BINARY = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")
_TEXT_BYTES = 256  # for each byte that no text holds: file systems leave some in torn logs
_NO_LOGS = {".md", ".rst", ".py", ".html", ".yaml", ".yml", ".toml", ".json", ".csv"}
_DOCUMENT = re.compile(rb'\s*(?:\{\s*"|<)')  # JSON, XML or HTML
# Logs may be JSON, too: an object a line, with what was said as a field.
_JSON_LINES = re.compile(
    rb'(?:(?=\{"[^\r\n]*?(?<=")(?:(?:log|textPayload|message|msg|line|event)": ?"|'
    rb'(?:\w+[/_])?(?:step|iteration)": ?\d))[^\r\n]*+(?<=\})(?:\r?\n|$)){2}'
)
# Lines that say nothing of a fault, and whose file is a job's log nevertheless.
_SIGN = re.compile(rb"\[rank\d+\]:|NCCL (?:INFO|WARN)|ProcessGroupNCCL|torch[./]distributed")
_TAIL_BYTES = 64 << 10


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file that starts with `head` is text that a job may have written."""
    if not head:
        return False
    if head.startswith(zstd.ZSTD):
        return bool(_NAMED.search(path.name))  # reading it says what to install
    head = _HOLES.sub(b"", head)
    if len(_BINARY.findall(head)) * _TEXT_BYTES > len(head):
        return False
    if _has_words(head):
        return _is_prose(path, head)
    return bool(_NAMED.search(path.name)) and _has_words(_tail(path))


def _is_prose(path: Path, head: bytes) -> bool:
    """A log, not documentation or a program that quotes one, nor a document of another kind."""
    if _JSON_LINES.match(head):
        return True
    return path.suffix.lower() not in _NO_LOGS and _DOCUMENT.match(head) is None


def _has_words(part: bytes) -> bool:
    return _SIGN.search(part) is not None or next(NEEDLES.find(part), None) is not None


def _tail(path: Path) -> bytes:
    try:
        with files.open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES)
    except (Unreadable, OSError):
        return b""
