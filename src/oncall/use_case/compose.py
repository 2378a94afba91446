"""Effects, symptoms and events put together: what the job lost, and what caused it.

No effect, no accusation: a symptom that costs the job nothing is information, however large. An
effect with a symptom or event on its component is one finding, the cause; so is an event alone. The
function knows the components, times and costs of findings, and no rulebook or verdict by its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from oncall.core.diagnosis import Cause, Effect, Finding, Reason, Severity, Step, strength
from oncall.core.places import NOWHERE, Cells, Places, contain
from oncall.core.units import NS_PER_S

LEAST_SURE, MOST_SURE = 0.01, 0.99
# Below, a finding beside surer ones is told for information.
LIKELY = 0.5
# What a device's failure brings about is logged within this time, and clocks of hosts are off by it.
TOGETHER_NS = 120 * NS_PER_S


@dataclass(frozen=True)
class Job:
    """What is known of the job whose findings are put together.

    `shown`: something was recorded that can show what it loses. `accounted`: what no finding says
    it lost, it did not lose.
    """

    places: Places = Places()
    shown: bool = True
    accounted: bool = False


@dataclass(frozen=True)
class _Statement:
    """A finding with its place: `cells` of what it blames, `reach` of what it can have caused."""

    finding: Finding
    cells: Cells
    reach: Cells
    nodes: frozenset[str]

    @property
    def effects(self) -> frozenset[Effect]:
        return self.finding.claim.effects

    @property
    def size(self) -> float:
        return len(self.cells) or float("inf")

    @property
    def share(self) -> float:
        return self.finding.lost.share if self.finding.lost else 0.0

    @property
    def measured(self) -> bool:
        """Whether it is known that what it costs is no noise."""
        return self.finding.lost is not None and (self.finding.lost.low or 0) > 0


@dataclass(frozen=True)
class _Case:
    """One cause: the effects that are one, strongest first, and what explains them."""

    effects: tuple[_Statement, ...] = ()
    causes: tuple[_Statement, ...] = ()

    @property
    def head(self) -> _Statement:
        return (self.causes or self.effects)[0]

    @property
    def stops(self) -> bool:
        return any("stop" in one.effects for one in self.effects)

    @property
    def share(self) -> float:
        return max((one.share for one in self.effects), default=0.0)

    @property
    def accuses(self) -> bool:
        """Whether it is proven: measured, or shown by two that do not know of one another."""
        books = {one.finding.rulebook for one in self.effects if one.cells}
        return any(one.measured or not one.finding.claim.declared for one in self.effects) or (
            len(books) > 1
        )


def compose(findings: Sequence[Finding], job: Job) -> tuple[Finding, ...]:
    """The findings as they are shown: causes first, each consequence naming its root's id.

    The order of the findings does not matter. What stops the job comes first, then what costs
    most; information comes last.
    """
    told = [_placed(finding, job.places) for finding in sorted(findings, key=strength)]
    effects = [one for one in told if one.finding.claim.kind == "effect"]
    stops, slow = _stops(effects), _slow([one for one in effects if "stop" not in one.effects])
    events = _together([one for one in told if one.finding.claim.kind == "event"])
    symptoms = [_Case(causes=(one,)) for one in told if one.finding.claim.kind == "symptom"]
    stops, left = _explained(stops, [*events, *symptoms])
    slow, left = _explained(slow, left)
    roots = [*stops, *slow, *left]
    return _numbered(_weighed(_halted(roots), job))


def _placed(finding: Finding, places: Places) -> _Statement:
    cells = places.cells(finding, None)
    on = finding.claim.on
    reach = places.cells(finding, on) if on else cells
    return _Statement(
        finding, reach if on not in (None, "job") else cells, reach, places.nodes(finding)
    )


# --------------------------------------------------------------------- effects of one cause


def _stops(effects: Sequence[_Statement]) -> list[_Case]:
    """The stops of the job. A job stops once: what other rulebooks say of it is the same stop."""
    cases: list[_Case] = []
    for one in effects:
        if "stop" not in one.effects:
            continue
        near = [case for case in cases if contain(case.head.cells, one.cells)]
        others = [c for c in cases if c.head.finding.rulebook != one.finding.rulebook]
        _join(cases, one, (near or others)[:1])
    return cases


def _slow(effects: Sequence[_Statement]) -> list[_Case]:
    """What the job loses time to. Who knows the cost speaks, and of these who knows the place."""
    cases: list[_Case] = []
    for one in sorted(effects, key=lambda one: (not one.measured, one.size)):
        same = [
            case
            for case in cases
            if contain(case.head.cells, one.cells)
            and (not one.measured or one.effects & case.head.effects)
            and _overlap(case.head.finding, one.finding)
        ]
        _join(cases, one, same[:1])
    return cases


def _join(cases: list[_Case], one: _Statement, same: Sequence[_Case]) -> None:
    if not same:
        cases.append(_Case((one,)))
        return
    at = cases.index(same[0])
    cases[at] = replace(same[0], effects=(*same[0].effects, one))


def _overlap(one: Finding, other: Finding) -> bool:
    """Whether two were at one time, as far as is known."""
    return not (_before(one, other) or _before(other, one))


def _before(one: Finding, other: Finding) -> bool:
    """Whether one was over when the other began."""
    return one.until_ns is not None and other.at_ns is not None and one.until_ns < other.at_ns


# ------------------------------------------------------------------------- what explains them


def _together(events: Sequence[_Statement]) -> list[_Case]:
    """Events that are one: of one domain or host, one after the other. The root is the first that
    says it is fatal, or else the one that names the smallest component."""

    def first(one: _Statement) -> tuple[object, ...]:
        fatal, at_ns = one.finding.fatal, one.finding.at_ns
        return (fatal is not True, fatal is False, one.size, at_ns or 0, strength(one.finding))

    cases: list[_Case] = []
    for one in sorted(events, key=first):
        same = next((case for case in cases if _is_consequence(one, case.head)), None)
        if same is None:
            cases.append(_Case(causes=(one,)))
        else:
            cases[cases.index(same)] = replace(same, causes=(*same.causes, one))
    return cases


def _is_consequence(one: _Statement, root: _Statement) -> bool:
    """Whether an event is of the same failure: of its domain or host, and at its time."""
    a, b = one.finding, root.finding
    if a.at_ns is not None and b.at_ns is not None and abs(a.at_ns - b.at_ns) > TOGETHER_NS:
        return False
    domain = bool(a.domain) and a.domain == b.domain
    return domain or (bool(one.nodes & root.nodes) and contain(one.cells, root.cells))


def _explained(cases: Sequence[_Case], left: Sequence[_Case]) -> tuple[list[_Case], list[_Case]]:
    """The cases, the worst first, each with what explains it, and what explains none."""
    found: list[_Case] = []
    for case in sorted(cases, key=lambda case: (-case.share, strength(case.head.finding))):
        near = sorted(
            (one for one in left if _explains(one.head, case)),
            key=lambda one: _nearness(one.head, case.effects[0].finding),
        )
        left = [one for one in left if one not in near]
        found.append(replace(case, causes=tuple(cause for one in near for cause in one.causes)))
    return found, list(left)


def _explains(cause: _Statement, case: _Case) -> bool:
    """Whether a symptom or event can be the cause: of such an effect, on its component, and there
    before it. What all ranks show explains only what all of them lose."""
    lost = frozenset[Effect]().union(*(one.effects for one in case.effects))
    effect, finding = case.effects[0], cause.finding
    if not lost & cause.effects or _before(finding, effect.finding):
        return False
    if finding.claim.kind == "symptom" and not cause.reach and effect.cells:
        return False
    placed = [one.cells for one in case.effects if one.cells] or [NOWHERE]
    if not any(contain(cause.reach, cells) for cells in placed):
        return False
    began = effect.finding.at_ns
    return finding.at_ns is None or began is None or finding.at_ns <= began + TOGETHER_NS


def _nearness(cause: _Statement, effect: Finding) -> tuple[object, ...]:
    """The smallest component first, then events before symptoms, then the nearer in time."""
    finding = cause.finding
    known = finding.at_ns is not None and effect.at_ns is not None
    apart_ns = abs((finding.at_ns or 0) - (effect.at_ns or 0)) if known else 0
    return (cause.size, finding.claim.kind != "event", apart_ns, strength(finding))


def _halted(cases: Sequence[_Case]) -> list[tuple[_Case, _Case | None]]:
    """Each case with the one that it follows from: what is slow or shows after the job stopped, and
    a stop that is only suspected where the job runs slowly: at any moment it seems to stand still.
    """
    sure = [case for case in cases if case.stops and case.effects[0].finding.severity == "critical"]
    stop = min(sure, key=lambda case: strength(case.head.finding), default=None)
    slow = next(
        (c for c in cases if c.effects and not c.stops and c.accuses and _is_fault(c)), None
    )

    def follows(case: _Case) -> _Case | None:
        if stop is None:
            return slow if case.stops and not case.causes else None
        if case.stops or case.head.finding.claim.kind == "event":
            return None
        return stop if _began_after(case, stop) else None

    return [(case, follows(case)) for case in cases]


def _is_fault(case: _Case) -> bool:
    return case.effects[0].finding.severity != "info"


def _began_after(case: _Case, stop: _Case) -> bool:
    at_ns, stopped_ns = case.head.finding.at_ns, stop.effects[0].finding.at_ns
    if case.effects and not any(one.measured for one in case.effects):
        return True
    return at_ns is not None and stopped_ns is not None and at_ns >= stopped_ns


# ------------------------------------------------------------------------------- how they weigh


def _weighed(
    cases: Sequence[tuple[_Case, _Case | None]], job: Job
) -> list[tuple[_Case, Finding, _Case | None]]:
    """Each case with the finding that is told of it, and what it follows from."""
    found = [(case, _told(case, job), root) for case, root in cases]
    order = sorted(found, key=lambda one: _place(one[0], one[1]))
    first = next((case for case, _, root in order if root is None), None)
    return [
        (case, _doubtful(finding) if case is not first and root is None else finding, root)
        for case, finding, root in order
    ]


def _told(case: _Case, job: Job) -> Finding:
    """The finding of a case: its cause if that is known, told with what it costs."""
    finding = case.head.finding
    effect = case.effects[0].finding if case.effects else None
    if effect is None:
        alone = finding.claim.kind == "symptom" and job.shown
        return replace(finding, severity="info", next=()) if alone else finding
    if case.causes:
        says = replace(effect.story[-1], ask="") if effect.story else None
        severity = _severity(finding, effect)
        finding = replace(
            finding,
            severity=severity,
            effect=effect.title,
            at_ns=finding.at_ns if effect.at_ns is None else effect.at_ns,
            story=(*([says] if says else ()), *finding.story),
        )
    finding = _agreed(finding, (*case.effects, *case.causes))
    lost = max((one.finding.lost for one in case.effects if one.finding.lost), default=None,
               key=lambda lost: ((lost.low or 0) > 0, lost.share))  # fmt: skip
    finding = replace(finding, lost=lost)
    proven = case.stops or case.accuses or not job.shown
    return finding if proven else _unproven(finding)


def _severity(cause: Finding, effect: Finding) -> Severity:
    """As severe as what it costs; an event no less than it says itself. A cause for information,
    such as a design, makes of its effect no fault."""
    known = {cause.severity} if cause.claim.kind == "event" else set[Severity]()
    order: tuple[Severity, ...] = ("critical", "warning", "info")
    return "info" if cause.severity == "info" else min({effect.severity, *known}, key=order.index)


_COSTS_NOTHING = "nothing shows that it costs the job time"


def _unproven(finding: Finding) -> Finding:
    conclusion = Step("", "no", _COSTS_NOTHING.capitalize() + ".", "", 0)
    return replace(
        finding,
        severity="info",
        story=(*finding.story, conclusion),
        reasons=(*finding.reasons, Reason("lost time", 1.0, _COSTS_NOTHING)),
        next=(),
    )


def _doubtful(finding: Finding) -> Finding:
    """A finding beside surer ones: less likely than not, it is told for information."""
    return replace(finding, severity="info") if finding.confidence < LIKELY else finding


def _agreed(finding: Finding, witnesses: Iterable[_Statement]) -> Finding:
    """As sure as those are together that say it: with confidences a and b, 1 - (1-a)(1-b); of each
    other rulebook only its surest counts."""
    surest: dict[str, float] = {}
    for one in witnesses:
        other = one.finding
        if other.rulebook != finding.rulebook:
            surest[other.rulebook] = max(surest.get(other.rulebook, 0.0), other.confidence)
    doubt = 1 - finding.confidence
    reasons = list(finding.reasons)
    for name, sure in sorted(surest.items()):
        doubt *= 1 - sure
        reasons.append(Reason("agreement", sure, f"the rulebook {name} says so too"))
    sure = min(max(1 - doubt, LEAST_SURE), MOST_SURE)
    return replace(finding, confidence=sure, reasons=tuple(reasons)) if surest else finding


def _place(case: _Case, finding: Finding) -> tuple[object, ...]:
    """What stops the job, then what costs most; information last."""
    return (finding.severity == "info", not case.stops, -case.share, strength(finding))


def _numbered(cases: Sequence[tuple[_Case, Finding, _Case | None]]) -> tuple[Finding, ...]:
    """All findings in order, with ids: roots, then what each of them explains."""
    ids = (f"F{number}" for number in count(1))
    roots = {id(case): (next(ids), finding) for case, finding, root in cases if root is None}
    shown = [replace(finding, id=name) for name, finding in roots.values()]
    for case, finding, root in cases:
        name = roots[id(root if root is not None else case)][0]
        others = [one.finding for one in (*case.effects, *case.causes) if one is not case.head]
        if root is not None:
            others.insert(0, finding)
        shown += [
            replace(other, id=next(ids), explained_by=name, cause=_cause(case, other))
            for other in others
        ]
    return tuple(shown)


def _cause(case: _Case, finding: Finding) -> Cause | None:
    """What explains an effect, as it is told beside it."""
    if finding.claim.kind != "effect" or not case.causes:
        return None
    cause = case.causes[0].finding
    return Cause(cause.rulebook, cause.verdict, cause.title, cause.blame, cause.story)
