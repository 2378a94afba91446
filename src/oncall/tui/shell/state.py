"""All that screens show, frozen: the snapshot, the time cursor, which knows how it moves, and what
the reader chose. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from oncall.core.units import NS_PER_S

if TYPE_CHECKING:
    from oncall.tui.shell.notes import Note
    from oncall.views.snapshot import HostTrouble, JobLine, Snapshot

SPEEDS = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)
_STEPS_A_SPAN = 60


@dataclass(frozen=True)
class TimeCursor:
    """`at_ns` None follows the end, which of a running job is now. Instants are Unix ns.

    `playing`: it moves by `speed` seconds of evidence a second.
    """

    at_ns: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    playing: bool = False
    speed: float = 10.0

    @property
    def follows(self) -> bool:
        return self.at_ns is None

    @property
    def movable(self) -> bool:
        """Whether there is a span to move in."""
        return self.first_ns is not None and self.last_ns is not None

    @property
    def shown_ns(self) -> int | None:
        return self.last_ns if self.at_ns is None else self.at_ns

    @property
    def step_ns(self) -> int:
        """A round duration of which about sixty make the span."""
        if self.first_ns is None or self.last_ns is None:
            return NS_PER_S
        wanted_s = (self.last_ns - self.first_ns) / NS_PER_S / _STEPS_A_SPAN
        return NS_PER_S * next((step for step in _STEPS_S if step >= wanted_s), _STEPS_S[-1])

    def spanning(self, first_ns: int | None, last_ns: int | None) -> TimeCursor:
        """The same cursor in evidence that spans this; what a snapshot that arrived says."""
        return replace(self, first_ns=first_ns, last_ns=last_ns)

    def paused(self) -> TimeCursor:
        """The cursor stays at the current moment; if it followed the end, at what was the end."""
        return replace(self, at_ns=self.shown_ns, playing=False)

    def following(self) -> TimeCursor:
        return replace(self, at_ns=None, playing=False)

    def played(self) -> TimeCursor:
        """Play from the current moment; from the first one if the cursor is at the end."""
        at_end = self.at_ns is None or (self.last_ns is not None and self.at_ns >= self.last_ns)
        return replace(self, at_ns=self.first_ns if at_end else self.at_ns, playing=self.movable)

    def stepped(self, steps: int) -> TimeCursor:
        """Paused and moved by that many steps; at the end it follows the end."""
        if (at_ns := self.shown_ns) is None:
            return self
        return self.jumped(at_ns + steps * self.step_ns)

    def jumped(self, at_ns: int) -> TimeCursor:
        """Stands at an instant, or at the end of the evidence nearest to it."""
        if self.first_ns is None or self.last_ns is None:
            return self
        if at_ns >= self.last_ns:
            return self.following()
        return replace(self, at_ns=max(at_ns, self.first_ns), playing=False)

    def moved(self, elapsed_s: float) -> TimeCursor:
        """Where a playing cursor is after `elapsed_s`; at the end it follows again."""
        if not self.playing or self.at_ns is None:
            return self
        arrived = self.jumped(self.at_ns + round(elapsed_s * self.speed * NS_PER_S))
        return replace(arrived, playing=not arrived.follows)

    def faster(self, notches: int) -> TimeCursor:
        """Another of SPEEDS."""
        index = min(range(len(SPEEDS)), key=lambda i: abs(SPEEDS[i] - self.speed)) + notches
        return replace(self, speed=SPEEDS[max(0, min(index, len(SPEEDS) - 1))])


_MOST_BEATS = 60


@dataclass(frozen=True)
class Pulse:
    """How fast a running job records, asked for between gathers: `rates` per second, the newest
    last; by node what it had recorded `at_s`, by the application's clock."""

    rates: tuple[float, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    at_s: float = 0.0

    @property
    def stopped(self) -> bool:
        """Whether it recorded until a moment ago, and nothing since."""
        return len(self.rates) > 1 and self.rates[-1] == 0 < self.rates[-2]

    def then(self, counts: Mapping[str, int], now_s: float) -> Pulse:
        """After one more: what the nodes that answered both times recorded."""
        both = [node for node in counts if node in self.counts]
        rates = self.rates
        if both and now_s > self.at_s:
            # Rings of a job that started again begin anew.
            more = sum(max(0, counts[node] - self.counts[node]) for node in both)
            rates = (*rates, more / (now_s - self.at_s))[-_MOST_BEATS:]
        return Pulse(rates, counts, now_s)


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
    pulse: Pulse = field(default_factory=Pulse)
    problem: str = ""  # what failed last; empty after a success
    notes: int = 0  # written about this job
    solved: Note | None = None  # what fixed it, as the reader wrote last
    demonstration: str = ""  # of what the reader broke: what, and since when

    def differs_in_activity(self, before: State) -> bool:
        """Whether it differs at most in what is being done, in how old the evidence is, and in what
        a demonstration says."""
        return self == replace(
            before,
            busy=self.busy,
            progress=self.progress,
            snapshot_age_s=self.snapshot_age_s,
            demonstration=self.demonstration,
            pulse=self.pulse,
        )
