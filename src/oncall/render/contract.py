"""`--format json`: the versioned contract for machines (DESIGN section 8).

Fields are only ever added under one version; `VERSION` rises when one changes its meaning or goes
away. docs/reference/diagnosis.schema.json is generated from `schema()`.
"""

from __future__ import annotations

import json
from typing import Any, get_args

from oncall.core.diagnosis import (
    Answer,
    BlameKind,
    Diagnosis,
    FaultClass,
    Finding,
    Gap,
    Result,
    Severity,
    Step,
)

VERSION = 2
FAILED = "error"


def to_json(diagnosis: Diagnosis, *, explain: bool = False) -> str:
    """The document as ASCII text: no byte in it can steer a terminal."""
    return json.dumps(document(diagnosis, explain=explain), indent=2, default=str) + "\n"


def failed(error: str) -> str:
    """The document where nothing could be diagnosed (exit code 2), with the error's sentence."""
    return json.dumps({"schema": VERSION, "result": FAILED, "error": error}, indent=2) + "\n"


def document(diagnosis: Diagnosis, *, explain: bool = False) -> dict[str, Any]:
    """The diagnosis as plain data. `explain` adds each step's SQL and parameters."""
    coverage = diagnosis.coverage
    return {
        "schema": VERSION,
        "job": diagnosis.job,
        "window": {"since_ns": diagnosis.since_ns, "until_ns": diagnosis.until_ns},
        "result": diagnosis.result,
        "healthy": diagnosis.healthy,
        "doubt": diagnosis.doubt,
        "would_decide": diagnosis.would_decide,
        "coverage": {
            "nodes": coverage.nodes,
            "answered": coverage.answered,
            "ranks": coverage.ranks,
            "ranks_seen": coverage.ranks_seen,
            "share": coverage.share,
            "gaps": [_gap(gap, explain) for gap in coverage.gaps],
            "contradictions": [
                {
                    "what": one.what,
                    "count": one.count,
                    "example": one.example,
                    "ranks": list(one.ranks),
                    "nodes": list(one.nodes),
                    "tables": list(one.tables),
                }
                for one in coverage.contradictions
            ],
            "skipped_rules": [
                {
                    "rule": rule.rule,
                    "missing": list(rule.missing),
                    "why": rule.why,
                    "set_aside": rule.set_aside,
                    "uncomputed": rule.uncomputed,
                }
                for rule in coverage.skipped_rules
            ],
        },
        "findings": [_finding(finding, explain) for finding in diagnosis.findings],
        "checked": list(diagnosis.checked),
        "site_rulebooks": dict(diagnosis.site_rulebooks),
        "notes": list(diagnosis.notes),
    }


def _gap(gap: Gap, explain: bool) -> dict[str, Any]:
    fields = {"nodes": list(gap.nodes), "ranks": list(gap.ranks), "reason": gap.reason}
    return fields | ({"details": gap.details} if explain and gap.details else {})


def _finding(finding: Finding, explain: bool) -> dict[str, Any]:
    fields = {
        "id": finding.id,
        "rulebook": finding.rulebook,
        "verdict": finding.verdict,
        "title": finding.title,
        "class": finding.fault_class,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "reasons": [
            {"name": reason.name, "value": reason.value, "why": reason.why}
            for reason in finding.reasons
        ],
        "at_ns": finding.at_ns,
        "blame": [{"kind": one.kind, **one.where} for one in finding.blame],
        "case": dict(finding.case),
        "story": [_step(step, explain) for step in finding.story],
        "stacks": [
            {"rank": stack.rank, "at": stack.at, "frames": list(stack.frames)}
            for stack in finding.stacks
        ],
        "ruled_out": [
            {"verdict": one.verdict, "because": one.because} for one in finding.ruled_out
        ],
        "explained_by": finding.explained_by,
        "next": list(finding.next),
        "sources": list(finding.sources),
    }
    return fields | ({"seen_before": finding.seen_before} if finding.seen_before else {})


def _step(step: Step, explain: bool) -> dict[str, Any]:
    fields = {
        "ask": step.ask,
        "answer": step.answer,
        "say": step.say,
        "fact": step.fact,
        "rows": step.rows,
    }
    return fields | ({"sql": step.sql, "params": dict(step.params)} if explain else {})


# ------------------------------------------------------------------ JSON Schema


def schema() -> dict[str, Any]:
    """The JSON Schema of `document` and `failed`, for whoever reads them with a program."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "oncall diagnosis",
        "description": "What `oncall diagnose --format json` writes. Fields may be added.",
        "if": {"properties": {"result": {"const": FAILED}}, "required": ["result"]},
        "then": _object(
            {
                "schema": {"const": VERSION},
                "result": {"const": FAILED, "description": "Nothing could be read; exit code 2."},
                "error": _TEXT | {"description": "What is wrong, where, and what to do."},
            }
        ),
        "else": _object(
            {
                "schema": {"const": VERSION},
                "job": _TEXT,
                "window": _object({"since_ns": _INSTANT, "until_ns": _INSTANT}),
                "result": _one_of(Result)
                | {"description": "inconclusive: the evidence could not have shown a fault."},
                "healthy": {"type": "boolean", "description": "No fault, and no doubt."},
                "doubt": _TEXT | {"description": "Why finding nothing would not mean health."},
                "would_decide": _TEXT
                | {"description": "What would decide it while the job is alive, if inconclusive."},
                "coverage": _coverage_schema(),
                "findings": _list(_finding_schema(), "Root causes first."),
                "checked": _list(_TEXT, "Rulebooks that could run."),
                "site_rulebooks": {
                    "type": "object",
                    "additionalProperties": _TEXT,
                    "description": "Of these, those that the site wrote or changed, with the file.",
                },
                "notes": _list(_TEXT),
            }
        ),
    }


def _object(properties: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def _list(items: dict[str, Any], description: str = "") -> dict[str, Any]:
    fields = {"description": description} if description else {}
    return {"type": "array", "items": items, **fields}


def _one_of(literal: Any) -> dict[str, Any]:
    return {"enum": list(get_args(literal))}


_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_SHARE = {"type": "number", "minimum": 0, "maximum": 1}
_INSTANT = {"type": ["integer", "null"], "description": "Unix time in ns; null if unknown."}


def _coverage_schema() -> dict[str, Any]:
    return _object(
        {
            "nodes": _COUNT | {"description": "Nodes of the job, 0 if none is named."},
            "answered": _COUNT | {"description": "Nodes that left evidence."},
            "ranks": _COUNT | {"description": "Ranks the job has."},
            "ranks_seen": _COUNT | {"description": "Ranks that left evidence."},
            "share": _SHARE | {"description": "ranks_seen over ranks; 1 if ranks is 0."},
            "gaps": _list(
                _object(
                    {
                        "nodes": _list(_TEXT),
                        "ranks": _list(_COUNT),
                        "reason": _TEXT,
                        "details": _TEXT
                        | {"description": "Only with --explain: the traceback of a failure."},
                    },
                    optional=("details",),
                )
            ),
            "contradictions": _list(
                _object(
                    {
                        "what": _TEXT,
                        "count": _COUNT | {"description": "How often it was met."},
                        "example": _TEXT,
                        "ranks": _list(_COUNT),
                        "nodes": _list(_TEXT),
                        "tables": _list(_TEXT, "Tables of evidence that hold it."),
                    }
                ),
                "Evidence that contradicts itself or cannot be.",
            ),
            "skipped_rules": _list(
                _object(
                    {
                        "rule": _TEXT,
                        "missing": _list(_TEXT),
                        "why": _TEXT,
                        "set_aside": {
                            "type": "boolean",
                            "description": "The site's file is wrong, and was left out.",
                        },
                        "uncomputed": _TEXT
                        | {"description": "What it needs and could not be computed; else empty."},
                    }
                ),
                "Rulebooks or branches that could not run.",
            ),
        }
    )


def _finding_schema() -> dict[str, Any]:
    step = {
        "ask": _TEXT,
        "answer": _one_of(Answer),
        "say": _TEXT,
        "fact": _TEXT | {"description": "The fact that answered."},
        "rows": _COUNT | {"description": "Rows of the fact for this case."},
        "sql": _TEXT | {"description": "Only with --explain."},
        "params": {"type": "object", "additionalProperties": _TEXT},
    }
    number = {"type": "integer"}
    keys = {
        "rank": number,
        "node": _TEXT,
        "stage": number | {"description": "Of the pipeline."},
        "replica": number | {"description": "Which pipeline."},
        "iteration": number | {"description": "In which it shows best."},
        "chunk": number,
        "micro_batch": number,
        "task": _TEXT | {"description": "Its direction, forward or backward, or what else it is."},
        "ranks": _list(_COUNT, "Members of a group, or ranks of a stage."),
        "slack_ns": number | {"description": "How much longer it could take without harm."},
        "share_explained": {
            "type": "number",
            "description": "Of what the iteration lost, how much it would not have lost without.",
        },
    }
    blame = _object({"kind": _one_of(BlameKind), **keys}, optional=tuple(keys))
    return _object(
        {
            "id": _TEXT,
            "rulebook": _TEXT,
            "verdict": _TEXT,
            "title": _TEXT,
            "class": _one_of(FaultClass),
            "severity": _one_of(Severity),
            "confidence": _SHARE,
            "reasons": _list(_object({"name": _TEXT, "value": {"type": "number"}, "why": _TEXT})),
            "at_ns": _INSTANT,
            "blame": _list(
                blame | {"additionalProperties": True},
                "The culprit: kind, and the keys that name it (rank, node, nic, comm ...).",
            ),
            "case": {"type": "object", "additionalProperties": True},
            "story": _list(_object(step, optional=("sql", "params"))),
            "stacks": _list(_object({"rank": _COUNT, "at": _TEXT, "frames": _list(_TEXT)})),
            "ruled_out": _list(_object({"verdict": _TEXT, "because": _TEXT})),
            "explained_by": {"type": ["string", "null"], "description": "Id of the root finding."},
            "next": _list(_TEXT),
            "sources": _list(_TEXT),
            "seen_before": _TEXT | {"description": "Of former incidents, if an archive is given."},
        },
        optional=("seen_before",),
    )
