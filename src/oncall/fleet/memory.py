"""The last answer of each host: which ranks it runs, for when it no longer answers.

Keeps only memberships. Old operations beside current ones would look as if their ranks had
stopped; but which ranks a host runs does not change.
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
    """A cache of last answers, with a folder for each host and job."""

    def __init__(self, folder: Path | None = None) -> None:
        cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        self._folder = folder or Path(cache).expanduser() / "oncall" / "answers"

    def keep(self, job: str, parts: Iterable[ReceivedPart]) -> None:
        """Store the memberships in these parts; ignores write errors."""
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
        """The last answers of hosts that do not answer, and the outcomes with the answers' age."""
        parts: list[ReceivedPart] = []
        updated = dict(outcomes)
        for host, outcome in outcomes.items():
            if outcome.kind in ("ok", "no-data"):
                continue
            found = [path for table in TABLES for path in self._place(host, job).glob(f"*.{table}")]
            for path in found:
                rows, _, table = path.name.partition(".")
                parts.append(ReceivedPart(host, table, int(rows), path))
            if found:
                age_ns = time.time_ns() - max(path.stat().st_mtime_ns for path in found)
                last = f"last answer {format_duration(max(0, age_ns))} ago"
                message = f"{outcome.message}; {last}" if outcome.message else last
                updated[host] = replace(outcome, message=message)
        return parts, updated

    def _place(self, host: str, job: str) -> Path:
        name = hashlib.sha256(job.encode()).hexdigest()[:16]
        return self._folder / quote(host, safe="").replace(".", "%2E") / name
