"""All that screens show, frozen: the snapshot, the time cursor, and what the reader chose."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from oncall.tui.shell.cursor import TimeCursor

if TYPE_CHECKING:
    from oncall.tui.shell.notes import Note
    from oncall.views.snapshot import HostTrouble, JobLine, Snapshot


@dataclass(frozen=True)
class State:
    """`jobs` is None while they are looked for. `snapshot` is the last good one, whatever failed
    since; `snapshot_age_s` counts, for a running job, from the newest evidence in it to the last
    beat of the clock."""

    title: str = ""
    live: bool = False
    jobs: tuple[JobLine, ...] | None = None
    troubles: tuple[HostTrouble, ...] = ()  # of hosts, as the search for jobs found them
    job: str | None = None
    snapshot: Snapshot | None = None
    snapshot_age_s: float = 0.0
    cursor: TimeCursor = field(default_factory=TimeCursor)
    filter: str = ""
    faults_only: bool = False
    busy: str = ""  # what the session is doing
    progress: str = ""  # how far that is
    problem: str = ""  # what failed last; empty after a success
    notes: int = 0  # written about this job
    solved: Note | None = None  # what fixed it, as the reader wrote last

    def differs_in_activity(self, before: State) -> bool:
        """Whether it differs at most in what is being done and in how old the evidence is."""
        busy, progress, age_s = self.busy, self.progress, self.snapshot_age_s
        return self == replace(before, busy=busy, progress=progress, snapshot_age_s=age_s)
