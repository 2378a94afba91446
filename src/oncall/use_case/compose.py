"""Effects, symptoms and events put together: what the job lost, and what caused it.

No effect, no accusation: a symptom that costs the job nothing is information, however large. An
effect with a symptom or event on its component is one finding, that of the cause; an event alone is
a finding too. Components, times and costs decide, never the name of a rulebook or verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf

from oncall.core.diagnosis import Cause, Effect, Finding, Reason, Severity, Step, strength
from oncall.core.places import NOWHERE, Cells, Places, contain
from oncall.core.units import NS_PER_S

LEAST_SURE, MOST_SURE = 0.01, 0.99
# Beside surer findings, one that is less likely than this is information.
LIKELY = 0.5
# Hosts log what one failure brings about within this time; so far their clocks may be off, too.
TOGETHER_NS = 120 * NS_PER_S
COSTS_NOTHING = "nothing shows that it costs the job time"

_SEVEREST: tuple[Severity, ...] = ("critical", "warning", "info")


@dataclass(frozen=True)
class Job:
    """The job that findings are about. `shows`: something is recorded that can show whether it
    loses time; where nothing is, symptoms are the answer."""

    places: Places = field(default_factory=Places)
    shows: bool = True


@dataclass(frozen=True, eq=False)
class _Statement:
    """A finding with its place: the `cells` of what is to blame, its `reach` (where it is felt:
    nowhere in particular is everywhere), and the hosts that it names."""

    finding: Finding
    cells: Cells
    reach: Cells
    nodes: frozenset[str]

    @property
    def effects(self) -> frozenset[Effect]:
        return self.finding.claim.effects

    @property
    def size(self) -> float:
        return len(self.cells) or inf

    def meets(self, other: _Statement) -> bool:
        """Whether one is felt where the other is."""
        return contain(self.reach, other.cells) or contain(self.cells, other.reach)

    @property
    def measured(self) -> bool:
        """Whether what it costs lies above the noise."""
        lost = self.finding.lost
        return lost is not None and lost.low is not None and lost.low > 0


@dataclass(frozen=True, eq=False)
class _Case:
    """One cause: the effects that are one, the best witness first, and what explains them."""

    effects: tuple[_Statement, ...] = ()
    causes: tuple[_Statement, ...] = ()

    @property
    def head(self) -> _Statement:
        """Whom the finding names."""
        return (self.causes or self.effects)[0]

    @property
    def stops(self) -> bool:
        return any("stop" in one.effects for one in self.effects)

    @property
    def share(self) -> float:
        """Of the time, what the job loses by it."""
        return max((one.finding.lost.share for one in self.effects if one.finding.lost), default=0)

    @property
    def proven(self) -> bool:
        """Whether the job does lose something: measured, or shown by two that do not know of one
        another. A stop is one; and a rulebook that declares no kinds accuses as it says."""
        books = {one.finding.rulebook for one in self.effects if one.cells}
        return self.stops or len(books) > 1 or any(map(_counts_alone, self.effects))


def _counts_alone(one: _Statement) -> bool:
    return one.measured or not one.finding.claim.declared


def compose(findings: Sequence[Finding], job: Job) -> tuple[Finding, ...]:
    """The findings as they are shown: causes first, then what each of them explains, by its id.

    What stops the job comes first, then what costs most; information comes last. The order in which
    findings are given does not matter.
    """
    placed = [_placed(finding, job.places) for finding in sorted(findings, key=strength)]
    effects = [one for one in placed if one.finding.claim.kind == "effect"]
    causes = [
        *_together([one for one in placed if one.finding.claim.kind == "event"]),
        *(_Case(causes=(one,)) for one in placed if one.finding.claim.kind == "symptom"),
    ]
    stops, causes = _explained(_stops([one for one in effects if "stop" in one.effects]), causes)
    slow, causes = _explained(_slow([one for one in effects if "stop" not in one.effects]), causes)
    cases = [*stops, *slow, *causes]
    shown = {case: _shown(case, job) for case in cases}
    return _numbered(_beside(shown), _consequences(cases))


def _placed(finding: Finding, places: Places) -> _Statement:
    on = finding.claim.on
    reach = places.cells(finding, on)
    cells = places.cells(finding, None) if on in ("job", "group") else reach
    return _Statement(finding, cells, reach, places.nodes(finding))


# --------------------------------------------------------------------- effects of one cause


def _stops(effects: Iterable[_Statement]) -> list[_Case]:
    """A job stops once: stops that contain one another, and those of other rulebooks, are one."""
    cases: list[_Case] = []
    for one in effects:
        near = [case for case in cases if case.head.meets(one)]
        others = [c for c in cases if c.head.finding.rulebook != one.finding.rulebook]
        _join(cases, one, next(iter(near or others), None))
    return cases


def _slow(effects: Iterable[_Statement]) -> list[_Case]:
    """Who knows the cost speaks, and of these who knows the smallest component. Of one component
    and time, what is not measured itself is the same loss."""
    cases: list[_Case] = []
    for one in sorted(effects, key=lambda one: (not one.measured, one.size)):
        alike = (
            case
            for case in cases
            if case.head.meets(one)
            and (not one.measured or bool(one.effects & case.head.effects))
            and not _apart(case.head.finding, one.finding)
        )
        _join(cases, one, next(alike, None))
    return cases


def _join(cases: list[_Case], one: _Statement, case: _Case | None) -> None:
    if case is None:
        cases.append(_Case((one,)))
    else:
        cases[cases.index(case)] = replace(case, effects=(*case.effects, one))


def _apart(one: Finding, other: Finding) -> bool:
    """Whether one is known to have been over before the other began."""
    return _over_before(one, other) or _over_before(other, one)


def _over_before(one: Finding, other: Finding, by_ns: int = 0) -> bool:
    until_ns, at_ns = one.until_ns, other.at_ns
    return until_ns is not None and at_ns is not None and until_ns + by_ns < at_ns


# ------------------------------------------------------------------------- what explains them


def _together(events: Sequence[_Statement]) -> list[_Case]:
    """Events of one domain or host and time are one. Its root is the first that says it is fatal;
    else a device before the errors of programs, and of these who names the smallest component."""

    def first(one: _Statement) -> tuple[object, ...]:
        finding = one.finding
        follows = finding.fatal is False or finding.parts is not None
        return (finding.fatal is not True, follows, one.size, finding.at_ns or 0, strength(finding))

    cases: list[_Case] = []
    for one in sorted(events, key=first):
        case = next((case for case in cases if _of_one_failure(one, case.head)), None)
        if case is None:
            cases.append(_Case(causes=(one,)))
        else:
            cases[cases.index(case)] = replace(case, causes=(*case.causes, one))
    return cases


def _of_one_failure(one: _Statement, root: _Statement) -> bool:
    a, b = one.finding, root.finding
    if a.at_ns is not None and b.at_ns is not None and abs(a.at_ns - b.at_ns) > TOGETHER_NS:
        return False
    brought = _brings_about(a, b)
    if brought is False or _over_before(a, b, TOGETHER_NS) or _over_before(b, a, TOGETHER_NS):
        return False
    # What a device brings about may be on its host if either's host is unknown.
    here = one.nodes & root.nodes or (brought and not (one.nodes and root.nodes))
    no_rank = one.cells == one.nodes or root.cells == root.nodes
    near = bool(here) and (no_rank or contain(one.cells, root.cells))
    return near or (bool(a.domain) and a.domain == b.domain)


def _brings_about(one: Finding, other: Finding) -> bool | None:
    """Whether such a device can bring about such an error; None: nothing says so."""
    pairs = [(a.part, b.parts) for a, b in ((one, other), (other, one)) if a.part]
    return next((part in parts for part, parts in pairs if parts is not None), None)


def _explained(cases: Sequence[_Case], causes: list[_Case]) -> tuple[list[_Case], list[_Case]]:
    """The cases, the worst first, each with all that explains it; and what explains none."""
    found: list[_Case] = []
    for case in sorted(cases, key=lambda case: (-case.share, strength(case.head.finding))):
        near = [cause for cause in causes if _explains(cause.head, case)]
        near.sort(key=lambda cause: _distance(cause.head, case.effects[0].finding))
        causes = [cause for cause in causes if cause not in near]
        found.append(replace(case, causes=tuple(one for cause in near for one in cause.causes)))
    return found, causes


def _explains(cause: _Statement, case: _Case) -> bool:
    """Whether a symptom or event can cause such an effect, is on its component, and was there
    before it."""
    effect, finding = case.effects[0], cause.finding
    lost = frozenset[Effect]().union(*(one.effects for one in case.effects))
    if not lost & cause.effects:
        return False
    # What an event brought about may come later; a symptom must still be there.
    passed = _over_before(finding, effect.finding) or not _lost_by_all(cause, effect)
    if finding.claim.kind == "symptom" and passed:
        return False
    placed = [one.cells for one in case.effects if one.cells] or [NOWHERE]
    began = effect.finding.at_ns
    in_time = finding.at_ns is None or began is None or finding.at_ns <= began + TOGETHER_NS
    # No job outlives what is fatal to one of its devices.
    anywhere = finding.fatal and "stop" in lost
    return in_time and (anywhere or any(contain(cause.reach, cells) for cells in placed))


def _lost_by_all(cause: _Statement, effect: _Statement) -> bool:
    """Whether most of them lose it, if it is what all of a job, a stage or a group show."""
    if cause.reach and cause.finding.claim.on not in ("stage", "group"):
        return True
    return not effect.cells or 2 * len(cause.reach & effect.cells) >= max(len(cause.reach), 1)


def _distance(cause: _Statement, effect: Finding) -> tuple[object, ...]:
    """The smallest component first, then events before symptoms, then what is nearer in time."""
    finding = cause.finding
    apart_ns = 0
    if finding.at_ns is not None and effect.at_ns is not None:
        apart_ns = abs(finding.at_ns - effect.at_ns)
    return (cause.size, finding.claim.kind != "event", apart_ns, strength(finding))


def _consequences(cases: Sequence[_Case]) -> dict[_Case, _Case]:
    """Cases that follow from another: what is slow, or shows, once the job has stopped; and where
    it runs slowly, a stop that is only suspected, as at any moment it seems to have stopped."""
    sure = [case for case in cases if case.stops and _severity_of(case) == "critical"]
    stop = min(sure, key=lambda case: strength(case.head.finding), default=None)
    if stop is not None:
        return {case: stop for case in cases if _follows(case, stop)}
    slow = [case for case in cases if case.effects and not case.stops and case.proven]
    faults = [case for case in slow if _severity_of(case) != "info"]
    root = min(faults, key=lambda case: -case.share, default=None)
    suspected = (case for case in cases if case.stops and not case.causes)
    return {} if root is None else {case: root for case in suspected}


def _severity_of(case: _Case) -> Severity:
    return case.effects[0].finding.severity


def _follows(case: _Case, stop: _Case) -> bool:
    finding = case.head.finding
    if case.stops or (finding.claim.kind == "event" and not case.effects):
        return False
    if case.effects and not any(one.measured for one in case.effects):
        return True
    stopped_ns = stop.effects[0].finding.at_ns
    return finding.at_ns is not None and stopped_ns is not None and finding.at_ns >= stopped_ns


# ------------------------------------------------------------------------------- what is shown


def _shown(case: _Case, job: Job) -> Finding:
    """The finding of a case: of its cause if that is known, with what it costs."""
    finding = case.head.finding
    if not case.effects:
        alone = finding.claim.kind == "symptom" and job.shows
        return replace(finding, severity="info", next=()) if alone else finding
    effect = case.effects[0].finding
    if case.causes:
        finding = replace(
            finding,
            severity=_severity(finding, effect),
            effect=effect.title,
            at_ns=effect.at_ns if effect.at_ns is not None else finding.at_ns,
            story=(*(replace(step, ask="") for step in effect.story[-1:]), *finding.story),
        )
    costs = [one.finding.lost for one in case.effects if one.finding.lost is not None]
    lost = max(costs, key=lambda lost: ((lost.low or 0) > 0, lost.share), default=None)
    if lost is not None and lost.gain_ns is not None and job.places.ranks:
        lost = replace(lost, gpu_seconds=lost.gain_ns / NS_PER_S * job.places.ranks)
    finding = _agreed(replace(finding, lost=lost), (*case.effects, *case.causes))
    return finding if case.proven or not job.shows else _unproven(finding)


def _severity(cause: Finding, effect: Finding) -> Severity:
    """As severe as what it costs, an event no less than it says. What is information though it
    costs time, such as a design, makes nobody's fault of it."""
    known = {effect.severity} | ({cause.severity} if cause.claim.kind == "event" else set())
    return "info" if cause.severity == "info" else min(known, key=_SEVEREST.index)


def _unproven(finding: Finding) -> Finding:
    """The finding as information: it may cost time, and nothing shows that it does."""
    said = Step("", "no", COSTS_NOTHING.capitalize() + ".", "", 0)
    reasons = (*finding.reasons, Reason("lost time", 1.0, COSTS_NOTHING))
    story = (*finding.story, said)
    return replace(finding, severity="info", story=story, reasons=reasons, next=())


def _agreed(finding: Finding, witnesses: Iterable[_Statement]) -> Finding:
    """As sure as all those are together that say it: with confidences a and b, 1 - (1-a)(1-b). Of
    each other rulebook only its surest counts."""
    surest: dict[str, float] = {}
    for other in (one.finding for one in witnesses):
        if other.rulebook != finding.rulebook:
            surest[other.rulebook] = max(surest.get(other.rulebook, 0.0), other.confidence)
    doubt = 1 - finding.confidence
    reasons = list(finding.reasons)
    for name, sure in sorted(surest.items()):
        doubt *= 1 - sure
        reasons.append(Reason("agreement", sure, f"the rulebook {name} says so too"))
    sure = min(max(1 - doubt, LEAST_SURE), MOST_SURE)
    return replace(finding, confidence=sure, reasons=tuple(reasons)) if surest else finding


def _beside(shown: dict[_Case, Finding]) -> dict[_Case, Finding]:
    """The cases in the order they are shown: what stops the job, then what costs most. Beside the
    first one, what is less likely than not is information."""

    def place(case: _Case) -> tuple[object, ...]:
        finding = shown[case]
        return (finding.severity == "info", not case.stops, -case.share, strength(finding))

    first = min(shown, key=place, default=None)
    for case, finding in shown.items():
        if case is not first and finding.confidence < LIKELY:
            shown[case] = replace(finding, severity="info")
    return {case: shown[case] for case in sorted(shown, key=place)}


def _numbered(shown: dict[_Case, Finding], follows: dict[_Case, _Case]) -> tuple[Finding, ...]:
    """All findings with their ids: the roots, then what each of them explains."""
    ids = (f"F{number}" for number in count(1))
    roots = {case: next(ids) for case in shown if case not in follows}
    found = [replace(shown[case], id=name) for case, name in roots.items()]
    for case, finding in shown.items():
        others = [one.finding for one in (*case.effects, *case.causes) if one is not case.head]
        if case in follows:
            others.insert(0, finding)
        name = roots[follows.get(case, case)]
        found += [
            replace(other, id=next(ids), explained_by=name, cause=_cause(case, other))
            for other in others
        ]
    return tuple(found)


def _cause(case: _Case, finding: Finding) -> Cause | None:
    """What explains an effect, as it is shown beside it."""
    if finding.claim.kind != "effect" or not case.causes:
        return None
    cause = case.causes[0].finding
    return Cause(cause.rulebook, cause.verdict, cause.title, cause.blame, cause.story)
