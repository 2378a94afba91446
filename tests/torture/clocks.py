"""Steps of the wall clock under a running collector: a year on, an hour back, again and again.

The real program runs; a preloaded library moves the wall clock that it reads, and leaves the
monotonic one alone, as setting the time does. Nothing may be lost or doubled, no shard may be
retired because of a step, and sealing goes on as before.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import replace
from pathlib import Path

from oncall.core.units import NS_PER_S

from .outcome import Outcome
from .preload import preloaded
from .watched import settle, watched

_HOUR_NS = 3600 * NS_PER_S
_YEAR_NS = 365 * 24 * _HOUR_NS
_STEPS_NS = (_YEAR_NS, 0, -_HOUR_NS, 0, -_HOUR_NS, _HOUR_NS, _YEAR_NS, -_YEAR_NS, 0)


def steps(folder: Path) -> Outcome:
    """One step after the other, two shards sealed between them."""
    path = folder / "offset"
    path.write_bytes(bytes(8))
    environment = preloaded("stepped_clock.c", folder) | {"STEPPED_CLOCK": str(path)}
    with (
        path.open("r+b") as file,
        mmap.mmap(file.fileno(), 8) as offset,
        watched(folder / "node", environment=environment) as one,
    ):
        one.wait_for_shards(2)
        for step_ns in _STEPS_NS:
            offset[:] = struct.pack("=q", step_ns)
            one.wait_for_shards(2)
            one.note_committed()
        outcome = settle(one, "steps of the wall clock", len(_STEPS_NS), whole=True)
    gone = one.archive.retired
    failures = (f"{gone} shards were retired because the clock was set",) if gone else ()
    return replace(outcome, failures=(*outcome.failures, *failures))
