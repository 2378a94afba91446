"""Whether who reads can be shown more than ASCII: what the locale says, and what can be written."""

from __future__ import annotations

import os
from collections.abc import Mapping

_DRAWN = "▁█░▓·━▶┃→µ"


def is_plain(encoding: str | None, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether pictures are of ASCII alone: nothing else can be written, or the locale says so.

    Python writes UTF-8 under LC_ALL=C all the same (PEP 540).
    """
    try:
        _DRAWN.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return True
    return not speaks_utf8(environment)


def speaks_utf8(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the terminal is said to take UTF-8. Where nothing is said, it does."""
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        if value := environment.get(name):
            return "utf" in value.lower()
    return True
