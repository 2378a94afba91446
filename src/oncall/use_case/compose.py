"""Effects, symptoms and events put together: what the job lost, and what caused it.

No effect, no accusation: a symptom that costs the job nothing is information, however large. An
effect with a symptom or event on its component is one finding, that of the cause; an event alone is
a finding too. Components, times and costs decide, never the name of a rulebook or verdict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count

from oncall.core.diagnosis import Cause, Finding, Reason, Severity, Step, strength
from oncall.core.places import contain
from oncall.core.units import NS_PER_S
from oncall.use_case.cases import Case, Job, Statement, apart_ns, over_before, placed

LEAST_SURE, MOST_SURE = 0.01, 0.99
# Beside surer findings, one that is less likely than this is information.
LIKELY = 0.5
# Hosts log what one failure brings about within this time; so far their clocks may be off, too.
TOGETHER_NS = 120 * NS_PER_S
# No job outlives what is fatal to one of its devices for longer: watchdogs wait half an hour.
OUTLIVED_NS = 1800 * NS_PER_S
COSTS_NOTHING = "nothing else shows that it costs the job time"

_SEVEREST: tuple[Severity, ...] = ("critical", "warning", "info")


def compose(findings: Sequence[Finding], job: Job) -> tuple[Finding, ...]:
    """The findings as they are shown: causes first, then what each of them explains, by its id.

    What stops the job comes first, then what costs most; information comes last. The order in which
    findings are given does not matter.
    """
    stated = [placed(finding, job.places) for finding in sorted(findings, key=strength)]
    effects = [one for one in stated if one.finding.claim.kind == "effect"]
    causes = [
        *_together([one for one in stated if one.finding.claim.kind == "event"]),
        *(Case(causes=(one,)) for one in stated if one.finding.claim.kind == "symptom"),
    ]
    stops, causes = _explained(_stops([one for one in effects if "stop" in one.effects]), causes)
    slow, causes = _explained(_slow([one for one in effects if "stop" not in one.effects]), causes)
    cases = [*stops, *slow, *causes]
    shown = {case: _shown(case, job) for case in cases}
    return _numbered(_beside(shown), _consequences(cases))


# --------------------------------------------------------------------- effects of one cause


def _stops(effects: Iterable[Statement]) -> list[Case]:
    """A job stops once: stops that contain one another, and those of other witnesses, are one."""
    cases: list[Case] = []
    for one in effects:
        near = [case for case in cases if case.head.meets(one)]
        others = [c for c in cases if c.head.finding.shown_by != one.finding.shown_by]
        _join(cases, one, next(iter(near or others), None))
    return [replace(case, effects=_smallest_first(case.effects)) for case in cases]


def _smallest_first(effects: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """The surest, or of those as severe that lie within it the one of the smallest component. If
    the surest names nobody, who is likely says whom the same stop is about."""
    surest = effects[0]
    severity = surest.finding.severity
    within = [
        one
        for one in effects
        if contain(surest.cells, one.cells)
        and (one.finding.severity == severity or _names_whom(one, surest))
    ]
    head = min(within, key=lambda one: one.size)
    others = tuple(one for one in effects if one is not head)
    return (replace(head, finding=replace(head.finding, severity=severity)), *others)


def _names_whom(one: Statement, surest: Statement) -> bool:
    return not surest.cells and one.finding.confidence >= LIKELY


def _slow(effects: Iterable[Statement]) -> list[Case]:
    """Who knows the cost speaks, and of these who knows the smallest component. Of one component
    and time, what is not measured itself is the same loss."""
    cases: list[Case] = []
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


def _join(cases: list[Case], one: Statement, case: Case | None) -> None:
    if case is None:
        cases.append(Case((one,)))
    else:
        cases[cases.index(case)] = replace(case, effects=(*case.effects, one))


def _apart(one: Finding, other: Finding) -> bool:
    """Whether one is known to have been over before the other began."""
    return over_before(one, other) or over_before(other, one)


# ------------------------------------------------------------------------- what explains them


def _together(events: Sequence[Statement]) -> list[Case]:
    """Events of one domain or host and time are one. Its root is the first that says it is fatal;
    else a device before the errors of programs, and of these who names the smallest component."""

    def first(one: Statement) -> tuple[object, ...]:
        finding = one.finding
        follows = finding.fatal is False or finding.parts is not None
        when = (finding.at_ns is None, finding.at_ns or 0)
        kept = when if finding.fatal else ()
        return (finding.fatal is not True, follows, kept, one.size, when, strength(finding))

    cases: list[Case] = []
    by_place: dict[str, list[int]] = defaultdict(list)  # by hosts, domain; "": of no known host
    for one in sorted(events, key=first):
        hosts = one.nodes or {""}
        places = {*hosts, "", f"domain {one.finding.domain}"}
        near = {number for place in places for number in by_place[place]}
        candidates: Iterable[int] = sorted(near) if one.nodes else range(len(cases))
        found = (n for n in candidates if _of_one_failure(one, cases[n].head))
        number = next(found, len(cases))
        if number == len(cases):
            cases.append(Case(causes=(one,)))
            for place in {*hosts, f"domain {one.finding.domain}"} - {"domain "}:
                by_place[place].append(number)
        else:
            cases[number] = replace(cases[number], causes=(*cases[number].causes, one))
    return cases


def _of_one_failure(one: Statement, root: Statement) -> bool:
    a, b = one.finding, root.finding
    if a.at_ns is not None and b.at_ns is not None and abs(a.at_ns - b.at_ns) > TOGETHER_NS:
        return False
    brought = _brings_about(a, b)
    if brought is False or over_before(a, b, TOGETHER_NS) or over_before(b, a, TOGETHER_NS):
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


def _explained(cases: Sequence[Case], causes: list[Case]) -> tuple[list[Case], list[Case]]:
    """The cases, the worst first, each with all that explains it; and what explains none."""
    found: list[Case] = []
    for case in sorted(cases, key=lambda case: (-case.share, strength(case.head.finding))):
        near = [cause for cause in causes if _explains(cause.head, case)]
        near.sort(key=lambda cause: _distance(cause.head, case))
        taken = set(near)
        causes = [cause for cause in causes if cause not in taken]
        found.append(replace(case, causes=tuple(one for cause in near for one in cause.causes)))
    return found, causes


def _explains(cause: Statement, case: Case) -> bool:
    """Whether a symptom or event can cause such an effect, is on its component, and was there
    before it. What is information by design stops no job."""
    effect, finding = case.effects[0], cause.finding
    if not case.lost & cause.effects or (case.stops and finding.severity == "info"):
        return False
    # What an event brought about may come later; a symptom must still be there.
    passed = over_before(finding, effect.finding) or not _lost_by_all(cause, effect)
    if finding.claim.kind == "symptom" and passed:
        return False
    began = effect.finding.at_ns
    in_time = finding.at_ns is None or began is None or finding.at_ns <= began + TOGETHER_NS
    return in_time and (_is_there(cause, case) or _fatal_to_job(cause, case))


def _is_there(cause: Statement, case: Case) -> bool:
    return any(contain(cause.reach, cells) for cells in case.placed)


def _fatal_to_job(cause: Statement, case: Case) -> bool:
    """Whether it is fatal to one of the job's devices, which no job outlives for long."""
    fatal = bool(cause.finding.fatal) and "stop" in case.lost and cause.of_job
    return fatal and apart_ns(cause.finding, case.effects[0].finding) <= OUTLIVED_NS


def _lost_by_all(cause: Statement, effect: Statement) -> bool:
    """Whether most of them lose it, if it is what all of a job, a stage or a group show."""
    if cause.reach and cause.finding.claim.on not in ("stage", "group"):
        return True
    return not effect.cells or 2 * len(cause.reach & effect.cells) >= max(len(cause.reach), 1)


def _distance(cause: Statement, case: Case) -> tuple[object, ...]:
    """Which cause is named: what is no design, is there, is fatal to what stopped, and began about
    then; of these the smallest component, then an event, then what is nearer in time."""
    finding = cause.finding
    distance_ns = apart_ns(finding, case.effects[0].finding)
    return (
        finding.severity == "info",
        not _is_there(cause, case),
        case.stops and not finding.fatal,
        distance_ns > TOGETHER_NS,
        cause.size,
        finding.claim.kind != "event",
        distance_ns,
        strength(finding),
    )


def _consequences(cases: Sequence[Case]) -> dict[Case, Case]:
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


def _severity_of(case: Case) -> Severity:
    return case.effects[0].finding.severity


def _follows(case: Case, stop: Case) -> bool:
    finding = case.head.finding
    if case.stops or (finding.claim.kind == "event" and not case.effects):
        return False
    if case.effects and not any(one.measured for one in case.effects):
        return True
    stopped_ns = stop.effects[0].finding.at_ns
    return finding.at_ns is not None and stopped_ns is not None and finding.at_ns >= stopped_ns


# ------------------------------------------------------------------------------- what is shown


def _shown(case: Case, job: Job) -> Finding:
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
    finding = _agreed(replace(finding, lost=lost), case.effects)
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


def _agreed(finding: Finding, witnesses: Iterable[Statement]) -> Finding:
    """As sure as all those are together that say it: with confidences a and b, 1 - (1-a)(1-b). Of
    each other witness only its surest counts."""
    surest: dict[str, float] = {}
    for other in (one.finding for one in witnesses):
        if other.shown_by != finding.shown_by:
            surest[other.shown_by] = max(surest.get(other.shown_by, 0.0), other.confidence)
    doubt = 1 - finding.confidence
    reasons = list(finding.reasons)
    for name, sure in sorted(surest.items()):
        doubt *= 1 - sure
        reasons.append(Reason("agreement", sure, f"the {name} shows the effect"))
    sure = min(max(1 - doubt, LEAST_SURE), MOST_SURE)
    return replace(finding, confidence=sure, reasons=tuple(reasons)) if surest else finding


def _beside(shown: dict[Case, Finding]) -> dict[Case, Finding]:
    """The cases in the order they are shown: what stops the job, then what costs most. Beside the
    first one, what is less likely than not is information."""

    def place(case: Case) -> tuple[object, ...]:
        finding = shown[case]
        return (finding.severity == "info", not case.stops, -case.share, strength(finding))

    first = shown[min(shown, key=place)].confidence if shown else 0.0
    for case, finding in shown.items():
        if finding.confidence < first and finding.confidence < LIKELY and not case.stops:
            shown[case] = replace(finding, severity="info")
    return {case: shown[case] for case in sorted(shown, key=place)}


def _numbered(shown: dict[Case, Finding], follows: dict[Case, Case]) -> tuple[Finding, ...]:
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


def _cause(case: Case, finding: Finding) -> Cause | None:
    """What explains an effect, as it is shown beside it."""
    if finding.claim.kind != "effect" or not case.causes:
        return None
    cause = case.causes[0].finding
    return Cause(cause.rulebook, cause.verdict, cause.title, cause.blame, cause.story)
