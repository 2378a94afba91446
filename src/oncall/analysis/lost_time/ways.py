"""The ways to find who costs a job time, in the order in which they are tried.

Each says what evidence it lacks, or whom it finds, or why it names nobody. What they look at is
worked out once and only when asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from oncall.analysis.lost_time.arrays import NONE
from oncall.analysis.lost_time.books import books_of
from oncall.analysis.lost_time.causes import Books, gains_of_own
from oncall.analysis.lost_time.changes import Slowdown, changed, slowdowns_in, slowdowns_of
from oncall.analysis.lost_time.host_delays import host_delays
from oncall.analysis.lost_time.iterations import Iterations, iterations_of
from oncall.analysis.lost_time.judgement import Answer, Declined, Entry
from oncall.analysis.lost_time.lateness import (
    Lateness,
    latecomers,
    lateness_of,
    suspected,
)
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.moments import Arrivals, arrivals_of
from oncall.analysis.lost_time.named_steps import Steps, iterations_named
from oncall.analysis.lost_time.pipelines import with_peers
from oncall.analysis.lost_time.programs import Programs
from oncall.analysis.lost_time.replay import replay, replay_of_all


@dataclass(frozen=True)
class Evidence:
    """The evidence of a job: `programs` are what its ranks called, `steps` what a recorder
    names."""

    programs: Programs
    limits: Limits
    steps: Steps

    @cached_property
    def books(self) -> Books | None:
        """The accounts of its like iterations; None if they are not most of the time."""
        books = books_of(self.programs, self.limits)
        return books if books is not None and books.covered >= self.limits.mostly else None

    @property
    def replay(self) -> Books | None:
        """The same if replays last as long as was measured, of enough iterations to accuse by."""
        return None if self._too_few else self._exact

    @property
    def costs(self) -> Books | None:
        """The same, where they show what lateness costs: of most iterations that show it, with
        durations, or of so few that nobody is accused without a replay."""
        books, found = self._exact, self.iterations
        if books is None or not self._in_step or not (books.timed or self._too_few):
            return None
        most = self.limits.mostly * (0 if found is None else len(found.length_ns))
        return books if len(books.length_ns) >= most else None

    @property
    def inexact(self) -> Books | None:
        """The same if replays do not last as long as was measured: they show what changed."""
        return None if self._exact else self.books

    @property
    def _exact(self) -> Books | None:
        books = self.books
        return books if books is not None and books.hold(self.limits) else None

    @property
    def _too_few(self) -> bool:
        return self.books is not None and len(self.books.length_ns) < self.limits.fewest

    @property
    def _in_step(self) -> bool:
        return self.books is not None and self.books.in_step

    @property
    def replayed(self) -> bool:
        """Whether replays have all that happened, as it was measured: what they do not name costs
        nothing."""
        replay = self.replay
        if replay is None or replay.older or not self._in_step:
            return False
        return max(replay.missed, replay.error) < self.limits.least_gain

    @cached_property
    def arrivals(self) -> Arrivals:
        return arrivals_of(self.programs, self.limits)

    @cached_property
    def iterations(self) -> Iterations | None:
        """The iterations that the recorder names, else those that hosts show."""
        named = iterations_named(self.programs, self.steps, self.limits.mostly, self.limits)
        if named is not None:
            return named
        return iterations_of(self.programs, self.arrivals.moments(), self.limits)

    @cached_property
    def lateness(self) -> Lateness | None:
        """Who came late in them."""
        return self._lateness_in(self.iterations)

    @cached_property
    def views(self) -> tuple[Lateness, ...]:
        """The same, and who came late in the iterations that the recorder names, however few of the
        calls they hold: what a profile shows, dumps of more calls do not undo."""
        named = iterations_named(self.programs, self.steps, 0.0, self.limits)
        return tuple(one for one in (self.lateness, self._lateness_in(named)) if one is not None)

    def _lateness_in(self, found: Iterations | None) -> Lateness | None:
        if found is None:
            return None
        moments = self.arrivals.moments(found.nth)
        return lateness_of(with_peers(self.programs, found.cut), found, moments, self.limits)

    @cached_property
    def delays(self) -> Lateness | None:
        """Whose hosts held up their own calls; None where other times show more."""
        late = self.lateness
        if late is None or self.arrivals.timed or self.devices_alone:
            return None
        moments = self.arrivals.moments(late.iterations.nth)
        late_ns, at_once_ns = host_delays(self.programs, late.iterations, moments, self.limits)
        return replace(late, late_ns=late_ns, at_once_ns=at_once_ns, by="delays")

    @cached_property
    def slowdowns(self) -> list[Slowdown]:
        """The iterations that are longer than the others."""
        if self.replay is not None:
            return slowdowns_of(self.replay, self.limits)
        found = self.iterations
        return [] if found is None or found.stretches else slowdowns_in(found, self.limits)

    @property
    def unexplained(self) -> Slowdown | None:
        """A slowdown that nobody has to be found for to be worth a sentence."""
        lasting = (one for one in self.slowdowns if one.begins_ns is None)
        return next((one for one in lasting if one.share >= self.limits.large), None)

    @property
    def devices_alone(self) -> bool:
        """Whether nothing but devices' times shows who waits: they may go on beside a call."""
        return self.devices_alone_in(self.iterations)

    def devices_alone_in(self, found: Iterations | None) -> bool:
        return self.programs.on_device and (found is None or found.waited_ns is None)

    @property
    def stages(self) -> bool:
        """Whether ranks send to one another, as stages of a pipeline do."""
        return bool(self.programs.batch.any())

    def compares(self, lateness: Lateness) -> bool:
        """Whether who is late waited for nobody else: all ranks are compared, or there is no stage
        and no larger group beside those that iterations are of."""
        size = np.array([len(line) for line in self.programs.members])[self.programs.comm]
        found = lateness.iterations
        in_larger = size[found.number != NONE].max(initial=0) > size[found.cut].max(initial=0)
        return bool(lateness.of_all or not (self.stages or in_larger))


def _replay(evidence: Evidence) -> Answer:
    return replay(evidence.replay, evidence.limits)


def _change(evidence: Evidence) -> Answer:
    # Members of a group that waits for a late host come late to others as well.
    both = [one for one in (evidence.delays, evidence.lateness) if one is not None]
    late = [one for one in both if evidence.compares(one)]
    books = evidence.replay or evidence.inexact
    return changed(evidence.slowdowns, evidence.programs, late, books, evidence.limits)


def _in_views(ask: Callable[[Evidence, Lateness], Answer], evidence: Evidence) -> Answer:
    """What the first view shows that proves anything, else the first that names anybody, but for
    ranks that pass on what they wait for."""
    answers: list[Answer] = []
    for view in evidence.views:
        answer = ask(evidence, view)
        if isinstance(answer, Entry) and view.passes_on(
            answer.ranks, answer.share, evidence.limits
        ):
            answer = Declined("whom others wait for waits for who sends to it")
        answers.append(answer)
    named = [one for one in answers if isinstance(one, Entry)]
    proven = [one for one in named if one.proven]
    return next(iter((*proven, *named, *answers)), Declined("hosts show no iterations"))


def _waits(evidence: Evidence, lateness: Lateness) -> Answer:
    """By how much ranks made others wait, where these can be compared."""
    iterations, limits = lateness.iterations, evidence.limits
    if evidence.devices_alone_in(iterations):
        return Declined("devices' times alone do not show who waits")
    if not evidence.compares(lateness):
        return Declined("who is late in its group may have waited for someone outside")
    answer = latecomers(lateness, limits)
    # Stages differ by design, and no iteration shows which calls are alike.
    unlike = iterations.stretches and evidence.stages
    if unlike and isinstance(answer, Entry) and answer.share < limits.large:
        return Declined("stages differ by design")
    return answer


def _delays(evidence: Evidence) -> Answer:
    """Whose hosts held up their own calls."""
    if evidence.delays is None:
        return Declined("durations show more than hosts' calls, or hosts show no iterations")
    return latecomers(evidence.delays, evidence.limits)


def _suspicion(evidence: Evidence, lateness: Lateness) -> Answer:
    return suspected(lateness, evidence.limits)


def _turns(evidence: Evidence) -> Answer:
    return replay_of_all(evidence.replay, evidence.limits)


@dataclass(frozen=True)
class Way:
    """One way: whom it finds."""

    name: str
    find: Callable[[Evidence], Answer]

    def ask(self, evidence: Evidence) -> Answer:
        """Whom it finds, but for ranks off the critical path: waits for them cost nothing."""
        answer, costs = self.find(evidence), evidence.costs
        if costs is None or not isinstance(answer, Entry):
            return answer
        if answer.shown_by in ("waits", "delays"):
            ranks, limits = np.array(answer.ranks), evidence.limits
            gains = partial(gains_of_own, sets=[ranks], removed=(), limits=limits)
            if costs.shares(gains).max() < limits.least_gain:
                return Declined("whom others wait for is off the critical path")
        return answer


WAYS = (
    Way("replay", _replay),
    Way("change", _change),
    Way("waits", partial(_in_views, _waits)),
    Way("delays", _delays),
    Way("suspicion", partial(_in_views, _suspicion)),
    Way("turns", _turns),
)


@dataclass(frozen=True)
class Outcome:
    """What all ways found: the `entries` of one `way`, proven or a suspicion, and why the others
    `declined`, by name."""

    entries: tuple[Entry, ...]
    declined: dict[str, str]
    way: str = ""

    @property
    def proven(self) -> bool:
        return any(entry.proven for entry in self.entries)


def outcome_of(evidence: Evidence) -> Outcome:
    """The entries of the first way that proves any; else the first suspicion."""
    suspicion: tuple[Entry, ...] = ()
    declined: dict[str, str] = {}
    first = ""
    for way in WAYS:
        answer = way.ask(evidence)
        if isinstance(answer, Declined):
            declined[way.name] = answer.reason
            continue
        entries = (answer,) if isinstance(answer, Entry) else answer
        if any(entry.proven for entry in entries):
            return Outcome(entries, declined, way.name)
        if not suspicion:
            suspicion, first = entries, way.name
        declined[way.name] = "no more than a suspicion"
    return Outcome(suspicion, declined, first)
