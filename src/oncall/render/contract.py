"""`--format json`: the versioned contract for machines (DESIGN section 8).

Fields are only ever added under one version; `VERSION` rises when one changes its meaning or goes
away. docs/reference/diagnosis.schema.json is generated from `schema()`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict, TypeVar, cast

from oncall.core.diagnosis import (
    Answer,
    Blame,
    BlameKind,
    Cause,
    Diagnosis,
    FaultClass,
    Finding,
    Gap,
    Kind,
    Result,
    Severity,
    Step,
    Suspect,
)
from oncall.render.json_schema import schema_of
from oncall.views import words
from oncall.views.lost_gpu_time import losing

VERSION: Literal[2] = 2
FAILED: Literal["error"] = "error"

AnyDocument = TypeVar("AnyDocument")
Count = Annotated[int, {"minimum": 0}]
Share = Annotated[float, {"minimum": 0, "maximum": 1}]
Instant = Annotated[int | None, "Unix time in ns; null if unknown."]


class WindowDocument(TypedDict):
    """The span of the evidence."""

    since_ns: Instant
    until_ns: Instant


class _Gap(TypedDict):
    nodes: Sequence[str]
    ranks: Sequence[Count]
    reason: str


class GapDocument(_Gap, total=False):
    """What could not be seen, and why."""

    details: Annotated[str, "Only with --explain: the traceback of a failure."]
    files: Annotated[Sequence[str], "Names of files that were not read, or not to their end."]


class ContradictionDocument(TypedDict):
    """Evidence that contradicts itself or cannot be."""

    what: str
    count: Annotated[Count, "How often it was met."]
    example: str
    ranks: Sequence[Count]
    nodes: Sequence[str]
    tables: Annotated[Sequence[str], "Tables of evidence that hold it."]


class SkippedRuleDocument(TypedDict):
    """A rulebook or a branch that could not run."""

    rule: str
    missing: Sequence[str]
    why: str
    set_aside: Annotated[bool, "The site's file is wrong, and was left out."]
    uncomputed: Annotated[str, "What it needs and could not be computed; else empty."]


class CoverageDocument(TypedDict):
    """How much of the job was seen."""

    nodes: Annotated[Count, "Nodes of the job, 0 if none is named."]
    answered: Annotated[Count, "Nodes that left evidence."]
    ranks: Annotated[Count, "Ranks the job has."]
    ranks_seen: Annotated[Count, "Ranks that left evidence."]
    at_least: Annotated[
        bool, "Texts name ranks, and nothing states how many there are: ranks is a lower bound."
    ]
    share: Annotated[Share, "ranks_seen over ranks; 1 if ranks is 0."]
    gaps: Sequence[GapDocument]
    contradictions: Annotated[
        Sequence[ContradictionDocument], "Evidence that contradicts itself or cannot be."
    ]
    skipped_rules: Annotated[
        Sequence[SkippedRuleDocument], "Rulebooks or branches that could not run."
    ]


class ReasonDocument(TypedDict):
    """A factor of the confidence."""

    name: str
    value: float
    why: str


class _Blame(TypedDict):
    kind: BlameKind


class BlameDocument(_Blame, total=False):
    """The culprit; more keys may name it."""

    rank: int
    node: str
    stage: Annotated[int, "Of the pipeline."]
    replica: Annotated[int, "Which pipeline."]
    iteration: Annotated[int, "In which it shows best."]
    chunk: int
    micro_batch: int
    task: Annotated[str, "Its direction, forward or backward, or what else it is."]
    ranks: Annotated[Sequence[Count], "Members of a group, or ranks of a stage."]
    slack_ns: Annotated[int, "How much longer it could take without harm."]
    share_explained: Annotated[
        float, "Of what the iteration lost, how much it would not have lost without."
    ]


Blames = Sequence[Annotated[BlameDocument, {"additionalProperties": True}]]


class _Step(TypedDict):
    ask: str
    answer: Answer
    say: str
    fact: Annotated[str, "The fact that answered."]
    rows: Annotated[Count, "Rows of the fact for this case."]


class StepDocument(_Step, total=False):
    """A step of the story."""

    sql: Annotated[str, "Only with --explain."]
    params: Mapping[str, str]


class StackDocument(TypedDict):
    """Where a blamed rank's program was, newest frame first."""

    rank: Count
    at: str
    frames: Sequence[str]


class RuledOutDocument(TypedDict):
    """A verdict that the evidence excludes."""

    verdict: str
    because: str


_Class = TypedDict("_Class", {"class": FaultClass})  # a keyword of Python


class _Finding(_Class):
    id: str
    rulebook: str
    verdict: str
    title: str
    severity: Severity
    confidence: Share
    reasons: Sequence[ReasonDocument]
    at_ns: Instant
    blame: Annotated[
        Blames, "The culprit: kind, and the keys that name it (rank, node, nic, comm ...)."
    ]
    case: Mapping[str, Any]
    story: Sequence[StepDocument]
    stacks: Sequence[StackDocument]
    ruled_out: Sequence[RuledOutDocument]
    kind: Annotated[
        Kind,
        "effect: the job stopped or lost time; symptom: a component is unlike its peers or its "
        "past; event: something failed and reported it.",
    ]
    explained_by: Annotated[str | None, "Id of the root finding."]
    next: Sequence[str]
    sources: Sequence[str]


class CauseDocument(TypedDict):
    """The symptom or event that explains an effect; a root finding of its own says the same."""

    rulebook: str
    verdict: str
    title: str
    blame: Blames
    story: Sequence[StepDocument]


class FindingDocument(_Finding, total=False):
    """One verdict, its culprit and its story."""

    until_ns: Annotated[int, "When it was over, if it is known to be."]
    effect: Annotated[str, "Of a cause: what it does to the job."]
    lost_share: Annotated[float, "Of the time, what the job loses by it."]
    lost_low: Annotated[float, "The same, less what may be noise."]
    lost_high: Annotated[float, "The same, with what may be noise."]
    lost_gpu_seconds: Annotated[float, "Lost by all ranks together in the recorded time."]
    cause: Annotated[CauseDocument, "Of an effect: what explains it."]
    former_names: Annotated[Sequence[str], "What rulebook.VERDICT was called before; both mean it."]
    seen_before: Annotated[
        str, "What an archive of former incidents says of the culprit, if one is given."
    ]


class _Suspect(TypedDict):
    blame: Annotated[Blames, "Empty where the job loses time and nothing shows by whom."]
    why: Annotated[str, "What speaks against them, without their names."]


class SuspectDocument(_Suspect, total=False):
    """Whom an inconclusive answer names."""

    share: Annotated[float, "Of the time, what may be lost by them."]
    low: Annotated[float, "The same, at least."]
    high: Annotated[float, "The same, at most."]


class DiagnosisDocument(TypedDict):
    """What `oncall diagnose --format json` writes."""

    schema: Literal[2]
    job: str
    window: WindowDocument
    result: Annotated[Result, "inconclusive: the evidence could not have shown a fault."]
    healthy: Annotated[bool, "No fault, and no doubt."]
    doubt: Annotated[str, "Why finding nothing would not mean health, the first suspect first."]
    suspects: Annotated[Sequence[SuspectDocument], "If inconclusive; the likeliest first."]
    would_decide: Annotated[str, "What would decide it while the job is alive, if inconclusive."]
    coverage: CoverageDocument
    findings: Annotated[Sequence[FindingDocument], "Root causes first."]
    checked: Annotated[Sequence[str], "Rulebooks that could run."]
    site_rulebooks: Annotated[
        Mapping[str, str], "Of these, those that the site wrote or changed, with the file."
    ]
    notes: Sequence[str]


class FailedDocument(TypedDict):
    """What it writes where nothing could be diagnosed."""

    schema: Literal[2]
    result: Annotated[Literal["error"], "Nothing could be read; exit code 2."]
    error: Annotated[str, "What is wrong, where, and what to do."]


def to_json(diagnosis: Diagnosis, *, explain: bool = False) -> str:
    """The document as ASCII text: no byte in it can steer a terminal."""
    return json.dumps(document(diagnosis, explain=explain), indent=2, default=str) + "\n"


def failed(error: str) -> str:
    """The document where nothing could be diagnosed (exit code 2), with the error's sentence."""
    document: FailedDocument = {"schema": VERSION, "result": FAILED, "error": error}
    return json.dumps(document, indent=2) + "\n"


def document(diagnosis: Diagnosis, *, explain: bool = False) -> DiagnosisDocument:
    """The diagnosis as plain data. `explain` adds each step's SQL and parameters."""
    coverage, until_ns = diagnosis.coverage, diagnosis.until_ns
    lost_s = {one.finding: one.seconds(until_ns) for one in losing(diagnosis) if until_ns}
    return fields_of(
        diagnosis,
        DiagnosisDocument,
        schema=VERSION,
        window=fields_of(diagnosis, WindowDocument),
        doubt=words.doubt(diagnosis),
        suspects=[_suspect(one) for one in diagnosis.suspects],
        coverage=fields_of(
            coverage,
            CoverageDocument,
            gaps=[_gap(gap, explain) for gap in coverage.gaps],
            contradictions=[
                fields_of(one, ContradictionDocument) for one in coverage.contradictions
            ],
            skipped_rules=[fields_of(one, SkippedRuleDocument) for one in coverage.skipped_rules],
        ),
        findings=[
            _finding(finding, explain, lost_s.get(finding.id)) for finding in diagnosis.findings
        ],
        site_rulebooks=dict(diagnosis.site_rulebooks),
    )


def fields_of(of: object, document: type[AnyDocument], **given: object) -> AnyDocument:
    """The fields of something that its document has, by the same names; and those
    that are `given`."""
    names = document.__annotations__
    values = ((name, given[name] if name in given else getattr(of, name)) for name in names)
    lists = {name: list(one) if isinstance(one, tuple) else one for name, one in values}
    return cast(AnyDocument, lists)


def _gap(gap: Gap, explain: bool) -> GapDocument:
    details = gap.details if explain else ""
    more = _known(files=list(gap.files) or None, details=details or None)
    return cast(GapDocument, {**fields_of(gap, _Gap), **more})


def _known(**fields: object) -> dict[str, object]:
    """Those that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def _finding(finding: Finding, explain: bool, lost_s: float | None) -> FindingDocument:
    fields: _Finding = {
        "id": finding.id,
        "rulebook": finding.rulebook,
        "verdict": finding.verdict,
        "title": finding.title,
        "class": finding.fault_class,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "reasons": [fields_of(one, ReasonDocument) for one in finding.reasons],
        "at_ns": finding.at_ns,
        "blame": _blame(finding.blame),
        "case": dict(finding.case),
        "story": [_step(step, explain) for step in finding.story],
        "stacks": [fields_of(one, StackDocument) for one in finding.stacks],
        "ruled_out": [fields_of(one, RuledOutDocument) for one in finding.ruled_out],
        "kind": finding.claim.kind,
        "explained_by": finding.explained_by,
        "next": list(finding.next),
        "sources": list(finding.sources),
    }
    lost = finding.lost
    return cast(
        FindingDocument,
        fields
        | _known(
            former_names=list(finding.former_names) or None,
            seen_before=finding.seen_before or None,
            until_ns=finding.until_ns,
            effect=finding.effect or None,
            cause=_cause(finding.cause, explain) if finding.cause is not None else None,
            lost_share=lost.share if lost else None,
            lost_low=lost.low if lost else None,
            lost_high=lost.high if lost else None,
            lost_gpu_seconds=lost.gpu_seconds if lost else lost_s,
        ),
    )


def _cause(cause: Cause, explain: bool) -> CauseDocument:
    story = [_step(step, explain) for step in cause.story]
    return fields_of(cause, CauseDocument, blame=_blame(cause.blame), story=story)


def _blame(blame: Sequence[Blame]) -> list[BlameDocument]:
    return [cast(BlameDocument, {"kind": one.kind, **one.where}) for one in blame]


def _suspect(suspect: Suspect) -> SuspectDocument:
    fields: _Suspect = {"blame": _blame(suspect.blame), "why": suspect.why}
    shares = _known(share=suspect.share, low=suspect.low, high=suspect.high)
    return cast(SuspectDocument, fields | shares)


def _step(step: Step, explain: bool) -> StepDocument:
    more = {"sql": step.sql, "params": dict(step.params)} if explain else {}
    return cast(StepDocument, {**fields_of(step, _Step), **more})


def schema() -> dict[str, Any]:
    """The JSON Schema of `document` and `failed`, for whoever reads them with a program."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "oncall diagnosis",
        "description": "What `oncall diagnose --format json` writes. Fields may be added.",
        "if": {"properties": {"result": {"const": FAILED}}, "required": ["result"]},
        "then": schema_of(FailedDocument),
        "else": schema_of(DiagnosisDocument),
    }
