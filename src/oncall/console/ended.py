"""What was at fault and is no longer: root causes that a running job's later evidence lacks.

A stop ends when the job completes operations again; other causes are not declared over while it is
stopped, or while the evidence could not show them: nobody would see them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from oncall.core.diagnosis import Diagnosis, Finding
from oncall.views import words
from oncall.views.snapshot import Ended

_MOST = 50  # kept, the newest
_Key = tuple[object, ...]


@dataclass(frozen=True)
class _GoingOn:
    """A cause from the first snapshot that had it on: as it was seen last, and when that was."""

    finding: Finding
    since_ns: int
    seen_ns: int


@dataclass(frozen=True)
class Past:
    """What goes on, by what it is about, and what has ended, the newest first."""

    going_on: Mapping[_Key, _GoingOn] = field(default_factory=dict)
    ended: tuple[Ended, ...] = ()

    def after(
        self, diagnosis: Diagnosis, at_ns: int, resumed_ns: Callable[[int], int | None]
    ) -> Past:
        """With the next diagnosis of the running job, whose evidence ends at `at_ns`. `resumed_ns`:
        when the first operation completed after an instant."""
        causes = _causes(self.present(diagnosis))
        now = {_about(one): one for one in causes if not words.over(one)}
        over_ns = {_about(one): one.until_ns for one in diagnosis.findings if words.over(one)}
        going_on = dict(self.going_on)
        for about, finding in now.items():
            before = going_on.get(about)
            began_ns = finding.at_ns if finding.at_ns is not None else at_ns
            since_ns = min(before.since_ns, began_ns) if before else began_ns
            going_on[about] = _GoingOn(finding, since_ns, at_ns)
        if _STOP in now or diagnosis.doubt:
            return replace(self, going_on=going_on)
        still = {_about(one) for one in diagnosis.findings if not words.over(one)}
        gone = [going_on.pop(about) for about in [one for one in going_on if one not in still]]
        ended = self.ended
        for one in _each_once(gone):
            known_ns = over_ns.get(_about(one.finding))
            if words.stops(one.finding):
                known_ns = resumed_ns(one.seen_ns)
            ended = _with(ended, Ended(one.finding, one.since_ns, known_ns or one.seen_ns))
        past = Past(going_on, ended[:_MOST])
        ours = {_about(one) for one in _causes(past.present(diagnosis))}
        return replace(past, going_on={a: one for a, one in going_on.items() if a in ours})

    def present(self, diagnosis: Diagnosis) -> Diagnosis:
        """Without what has ended, and what a stop that has ended made slow: that is its lost
        time."""
        costs = {
            one.id
            for one in diagnosis.findings
            for past in self.ended
            if _is_cost(one, past) or (words.over(one) and _about(one) == _about(past.finding))
        }
        found = (one for one in diagnosis.findings if not {one.id, one.explained_by} & costs)
        return replace(diagnosis, findings=tuple(found)) if costs else diagnosis

    def before(self, at_ns: int | None) -> tuple[Ended, ...]:
        """What had ended by an instant."""
        return tuple(one for one in self.ended if at_ns is None or one.until_ns <= at_ns)


_STOP: _Key = ("stop",)


def _causes(diagnosis: Diagnosis) -> Sequence[Finding]:
    """The faults that nothing explains, the leading one last. An event alone is at an instant: it
    does not end."""
    faults = (one for one in words.roots(diagnosis) if one.severity != "info")
    return [one for one in faults if one.claim.kind != "event" or one.effect][::-1]


def _is_cost(finding: Finding, stop: Ended) -> bool:
    """Whether whom the stop blamed is slow because of it: it took most of the time since then."""
    began_ns, until_ns = finding.at_ns, stop.until_ns
    if finding.lost is None or began_ns is None or not words.stops(stop.finding):
        return False
    same = _blamed(finding) <= _blamed(stop.finding) and began_ns < until_ns
    return same and 2 * (until_ns - max(stop.since_ns, began_ns)) > until_ns - began_ns


def _each_once(gone: Sequence[_GoingOn]) -> Sequence[_GoingOn]:
    """Stops first; what blamed the same before it was known to be a stop is that stop."""
    kept: dict[frozenset[tuple[str, ...]], _GoingOn] = {}
    for one in sorted(gone, key=lambda one: not words.stops(one.finding)):
        kept.setdefault(_blamed(one.finding), one)
    return list(kept.values())


def _about(finding: Finding) -> _Key:
    """What stays the same while a fault goes on: a job stops once, whatever its verdict becomes;
    else who is blamed for what kind of fault. The stage of a rank is known only later."""
    if words.stops(finding):
        return _STOP
    return finding.fault_class, _blamed(finding)


def _blamed(finding: Finding) -> frozenset[tuple[str, ...]]:
    names = ("rank", "node", "gpu", "nic", "link", "comm")
    return frozenset(tuple(str(one.where.get(name)) for name in names) for one in finding.blame)


def _with(ended: Sequence[Ended], one: Ended) -> tuple[Ended, ...]:
    """Also this; the same once more is counted."""
    title = one.finding.title, words.who(one.finding.blame)
    for before in ended:
        if (before.finding.title, words.who(before.finding.blame)) == title:
            lasted_ns, times = before.lasted_ns + one.lasted_ns, before.times + 1
            one = replace(one, earlier_ns=lasted_ns - one.until_ns + one.since_ns, times=times)
            ended = [kept for kept in ended if kept is not before]
    return (one, *ended)
