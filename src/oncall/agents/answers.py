"""The documents that the tools answer with; their JSON Schemas come from these types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, TypedDict

from oncall.agents.bounded import Envelope, cell
from oncall.render.contract import Count, DiagnosisDocument, Instant, fields_of
from oncall.render.json_schema import Schema, schema_of
from oncall.use_case.front import BlockedCall
from oncall.views.snapshot import JobLine, RuleLine, StepRows
from oncall.views.stacks import FoldedStacks, StackGroup


class JobDocument(TypedDict):
    """A job of some evidence."""

    job: str
    nodes: Count
    ranks: Count
    last_ns: Instant
    state: str


class JobsDocument(TypedDict):
    """The jobs to choose from."""

    jobs: Sequence[JobDocument]


class BlockedCallDocument(TypedDict):
    """A call in which ranks are blocked."""

    communicator: Annotated[str, "Its role or name, else its hash."]
    comm: Annotated[str | None, "Its hash, hexadecimal."]
    kind: Annotated[str, "coll or p2p"]
    op: Annotated[str | None, "null: only counters are known."]
    seq: int | None
    since_ns: Instant
    waiting: Annotated[Sequence[Count], "Ranks blocked in it."]
    missing: Annotated[
        Sequence[Count], "Members that keep it from completing; none: all called it."
    ]


class FrontDocument(TypedDict):
    """Who waits for whom where the evidence ends."""

    job: str
    calls: Annotated[Sequence[BlockedCallDocument], "Those with the fewest missing ranks first."]


class RowsDocument(TypedDict):
    """The rows behind a step of a finding's story."""

    finding: str
    step: Count
    fact: str
    sql: str
    params: Mapping[str, str]
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    total: Annotated[Count, "Rows in all; `rows` may hold fewer."]


class RuleDocument(TypedDict):
    """A rulebook in a list."""

    name: str
    title: str
    status: str
    enabled: bool
    shipped: bool
    verdicts: Sequence[str]
    broken: Annotated[str, "What is wrong with the site's file; else empty."]


class RulesDocument(TypedDict):
    """The rulebooks in force."""

    rulebooks: Sequence[RuleDocument]


class RuleTextDocument(TypedDict):
    """A rulebook."""

    name: str
    yaml: str


class VerdictDocument(TypedDict):
    """What a verdict means."""

    name: str
    lines: Annotated[Sequence[str], "Markdown; a page for each rulebook that has the verdict."]


class StacksDocument(TypedDict):
    """The stacks in the evidence, equal ones together, the odd one out first."""

    job: str
    processes: Count
    looks: Count
    headline: str
    groups: Sequence[StackGroup]


# tool -> the type of its answer
ANSWERS: Mapping[str, Any] = {
    "list_jobs": JobsDocument,
    "diagnose": DiagnosisDocument,
    "front": FrontDocument,
    "step_rows": RowsDocument,
    "list_rules": RulesDocument,
    "show_rule": RuleTextDocument,
    "explain_verdict": VerdictDocument,
    "stacks": StacksDocument,
}


def answer_schema(tool: str) -> Schema:
    """The JSON Schema of a tool's structured answer."""
    schema = schema_of(Envelope)
    schema["properties"]["answer"] = schema_of(ANSWERS[tool])
    return schema


def jobs_document(lines: Sequence[JobLine]) -> JobsDocument:
    """The jobs as plain data."""
    return {"jobs": [fields_of(line, JobDocument) for line in lines]}


def front_document(job: str, calls: Sequence[BlockedCall]) -> FrontDocument:
    """Who waits for whom as plain data."""
    return {"job": job, "calls": [_call(call) for call in calls]}


def _call(call: BlockedCall) -> BlockedCallDocument:
    comm = None if call.comm is None else f"{call.comm:#x}"
    return fields_of(call, BlockedCallDocument, communicator=call.name or comm or "", comm=comm)


def rows_document(found: StepRows) -> RowsDocument:
    """The rows behind a step as plain data; `step` counts from 1, as a reader does."""
    return fields_of(
        found,
        RowsDocument,
        step=found.step + 1,
        params=dict(found.params),
        columns=found.table.columns,
        rows=[[cell(value) for value in row] for row in found.table.rows],
        total=found.table.total,
    )


def rules_document(lines: Sequence[RuleLine]) -> RulesDocument:
    """The rulebooks as plain data."""
    return {"rulebooks": [fields_of(line, RuleDocument) for line in lines]}


def stacks_document(stacks: FoldedStacks) -> dict[str, Any]:
    """The folded stacks as plain data."""
    return {"headline": stacks.headline, **asdict(stacks)}
