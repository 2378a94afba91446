"""Steps of the wall clock under a running collector, by libfaketime: a year on, an hour back.

The monotonic clock goes on as it does when somebody sets the time. Nothing may be lost or doubled,
no shard may be retired because of a step, and sealing goes on as before.
"""

from __future__ import annotations

from pathlib import Path

from .outcome import Outcome, Skipped
from .watched import settle, watched

_LIBRARIES = "/usr/lib/*-linux-gnu/faketime/libfaketimeMT.so.1"  # Debian's package libfaketime
_STEPS = ("+365d", "+0", "-1h", "+0", "-1h", "+1h", "+365d", "-365d", "+0")


def steps(folder: Path) -> Outcome:
    """One step after the other, two shards sealed between them."""
    libraries = sorted(Path("/").glob(_LIBRARIES.removeprefix("/")))
    if not libraries:
        raise Skipped("libfaketime is not here (apt-get install faketime)")
    offset = folder / "offset"
    offset.write_text("+0\n")
    environment = {
        "LD_PRELOAD": str(libraries[0]),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }
    with watched(folder / "node", environment=environment) as one:
        one.wait_for_shards(2)
        for step in _STEPS:
            offset.write_text(f"{step}\n")
            one.wait_for_shards(2)
            one.note_committed()
        outcome = settle(one, "steps of the wall clock", len(_STEPS), whole=True)
        if one.archive.retired:
            gone = f"{one.archive.retired} shards retired because the clock was set"
            return Outcome(**{**vars(outcome), "failures": (*outcome.failures, gone)})
        return outcome
