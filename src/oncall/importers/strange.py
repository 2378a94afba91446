"""What a file looks like that is no recording: said instead of a list of what oncall reads."""

from __future__ import annotations

import re

# How files begin that people give by mistake, and what they are.
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"%PDF", "a PDF, not a recording"),
    (b"\x7fELF", "a program or a core dump (ELF), not a recording"),
    (b"\x89PNG", "a picture (PNG), not a recording"),
    (b"\xff\xd8\xff", "a picture (JPEG), not a recording"),
    (b"SQLite format 3", "an SQLite database, which oncall does not read"),
    (b"PK\x03\x04", "a zip archive: oncall unpacks it if its name ends in .zip"),
    (
        b"\x28\xb5\x2f\xfd",
        "packed by zstd, which oncall does not unpack: run `zstd -d` on it first",
    ),
    (b"\x04\x22\x4d\x18", "packed by lz4, which oncall does not unpack: run `lz4 -d` on it first"),
)
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_HTML = re.compile(rb"\s*<(?:!doctype html|html)\b", re.IGNORECASE)
_TAR_AT = 257  # where the header of a tar archive has its magic
_TAR = b"ustar"


def described(head: bytes) -> str | None:
    """What a file that begins with `head` is, and what to do about it; None if that is unknown."""
    if named := next((what for magic, what in _MAGIC if head.startswith(magic)), None):
        return named
    if head.startswith(_TAR, _TAR_AT):
        return "a tar archive: oncall unpacks it if its name ends in .tar, .tar.gz or .tgz"
    if _PICKLE.match(head):
        return "a pickle, but not one of the Flight Recorder"
    if _HTML.match(head):
        return "an HTML page: save the log itself as text"
    return None
