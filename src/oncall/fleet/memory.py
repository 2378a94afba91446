"""The last good answer of each host: who ran there, for when it does not answer any more.

Memberships alone are kept. Operations of a minute ago beside those of now would look as if their
rank had stopped; but that a silent host carries ranks 8-15 is as true as before.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from oncall.core.units import format_duration
from oncall.fleet.outcome import Outcome
from oncall.node.store.parts import ReceivedPart

TABLES = ("jobs", "ranks", "comms")


class Memory:
    """A folder of last answers, one folder a host and job. Losing it costs nothing but this."""

    def __init__(self, folder: Path | None = None) -> None:
        cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        self._folder = folder or Path(cache).expanduser() / "oncall" / "answers"

    def keep(self, job: str, parts: Iterable[ReceivedPart]) -> None:
        """Remember the memberships in these parts; where nothing can be written, nothing is."""
        for part in parts:
            if part.table in TABLES:
                with suppress(OSError):
                    place = self._place(part.sender, job)
                    place.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(part.path, place / f"{part.rows}.{part.table}.new")
                    for old in place.glob(f"*.{part.table}"):
                        old.unlink()
                    (place / f"{part.rows}.{part.table}.new").rename(
                        place / f"{part.rows}.{part.table}"
                    )

    def recall(
        self, job: str, outcomes: Mapping[str, Outcome]
    ) -> tuple[list[ReceivedPart], dict[str, Outcome]]:
        """What hosts that do not answer said last, and the outcomes with how long ago."""
        parts: list[ReceivedPart] = []
        told = dict(outcomes)
        for host, outcome in outcomes.items():
            if outcome.kind in ("ok", "no-data"):
                continue
            found = [path for table in TABLES for path in self._place(host, job).glob(f"*.{table}")]
            for path in found:
                rows, _, table = path.name.partition(".")
                parts.append(ReceivedPart(host, table, int(rows), path))
            if found:
                age_ns = time.time_ns() - max(path.stat().st_mtime_ns for path in found)
                last = f"its last answer is {format_duration(max(0, age_ns))} old"
                message = f"{outcome.message}; {last}" if outcome.message else last
                told[host] = replace(outcome, message=message)
        return parts, told

    def _place(self, host: str, job: str) -> Path:
        name = hashlib.sha256(job.encode()).hexdigest()[:16]
        return self._folder / quote(host, safe="").replace(".", "%2E") / name
