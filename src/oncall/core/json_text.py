"""JSON that others wrote, or a disk kept."""

from __future__ import annotations

import json
from typing import Any


def json_of(text: str | bytes) -> Any:
    """What the text says. Raises ValueError for all that is none, also for what is nested so deep
    that reading it would take the stack."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
