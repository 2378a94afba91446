"""Garbage is collected in short pauses: no key waits for a long one."""

from __future__ import annotations

import gc

_ALLOCATIONS = 20_000  # between two looks at what is new: 10 to 20 ms each


def collect_in_short_pauses() -> None:
    """Once everything is imported: what is there stays, and is not looked at again."""
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, *gc.get_threshold()[1:])
