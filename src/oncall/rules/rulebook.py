"""The rulebook: its model (DESIGN section 5), and the form the engine runs.

The pydantic classes are the file as written: they refuse unknown keys, and docs/reference/
rulebook.schema.json is generated from them. `Rulebook` is what the engine gets: the same file
with its parameters as quantities, which a site or the command line may have replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    ValidationInfo,
    field_validator,
)

from oncall.diagnosis import FaultClass, Severity
from oncall.rules.template import Template, TemplateError, parse_template
from oncall.units import Quantity

FORMAT = 1
STARTED = "started"
NO_VERDICT = "none"
DEFAULT_CONFIDENCE = 0.9

_TEST = re.compile(r"^(any|none)\((\w+)\)$")

Name = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_]*$")]
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Sql = Annotated[str, StringConstraints(min_length=1)]
Scalar = bool | int | float | str
Status = Literal["experimental", "test", "stable", "deprecated"]
Steps = Annotated[
    str | list[str], Field(description="What to do next: one sentence or command, or several.")
]


class Written(BaseModel):
    """A part of the file: unknown keys are errors, values are never converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Param(Written):
    """A named number with its unit and the reason for its value; sites override the value."""

    value: Scalar = Field(description="With its unit: 5 min, 64 MiB, 7 GB/s, 20 %; or plain.")
    why: Text = Field(description="Why this value and no other.")


class Verdict(Written):
    """What a leaf may conclude."""

    title: Text
    fault_class: FaultClass = Field(alias="class")
    severity: Severity
    next: Steps = Field(default_factory=list)


class Question(Written):
    """A node: `say` is said on arriving here, as the consequence of the answer that led here."""

    ask: Text = Field(description="The question shown to the reader.")
    test: Annotated[
        str,
        StringConstraints(pattern=_TEST.pattern),
        Field(description="any(fact) or none(fact), for each case on its own."),
    ]
    say: Text | None = Field(default=None, description="Said on arriving at this question.")
    if_yes: Branch
    if_no: Branch
    if_unknown: Branch | None = Field(
        default=None, description="Taken if the evidence that the test needs is missing."
    )

    @property
    def fact(self) -> str:
        return self.test[self.test.index("(") + 1 : -1]

    @property
    def yes_if_empty(self) -> bool:
        return self.test.startswith("none")

    @property
    def branches(self) -> dict[str, Question | Leaf]:
        """Answer -> branch, as written."""
        taken: dict[str, Question | Leaf] = {"yes": self.if_yes, "no": self.if_no}
        return taken | ({"unknown": self.if_unknown} if self.if_unknown else {})


class Leaf(Written):
    """An end of the tree: a verdict, or `verdict: none`."""

    verdict: Text = Field(description="An id under verdicts:, or none.")
    say: Text = Field(description="The sentence that concludes the story.")
    blame: Name | None = Field(default=None, description="The fact whose rows are at fault.")
    next: Steps = Field(default_factory=list)
    confidence: Name | None = Field(
        default=None, description="A fact with columns value (0..1), why and perhaps name."
    )
    explains: Name | None = Field(
        default=None,
        description="A fact with any of comm, rank, node, verdict, rulebook: findings that match "
        "a row are consequences of this one.",
    )


def _kind(value: Any) -> str:
    if isinstance(value, (Question, Leaf)):
        return "leaf" if isinstance(value, Leaf) else "question"
    return "leaf" if isinstance(value, dict) and "verdict" in value else "question"


Branch = Annotated[
    Annotated[Question, Tag("question")] | Annotated[Leaf, Tag("leaf")], Discriminator(_kind)
]
Question.model_rebuild()


class RulebookFile(Written):
    """A rulebook as written."""

    rulebook: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]*$")]
    format: Literal[1] = Field(description="Version of the rule language.")
    title: Text
    status: Status
    sources: Annotated[list[Text], Field(min_length=1, description="Papers, with sections.")]
    params: dict[Name, Param] = Field(default_factory=dict)
    case: Annotated[
        list[Name],
        Field(min_length=1, description="Columns: one diagnosis for each of their values."),
    ]
    facts: Annotated[
        dict[Name, Sql], Field(min_length=1, description="Name -> one SELECT, in order.")
    ]
    start_when: Annotated[
        str,
        StringConstraints(pattern=r"^any\(\w+\)$"),
        Field(description="any(fact): the cases in its rows are diagnosed."),
    ]
    tree: Branch
    verdicts: dict[str, Verdict] = Field(default_factory=dict)

    @field_validator("verdicts")
    @classmethod
    def _none_is_taken(cls, value: dict[str, Verdict], info: ValidationInfo) -> dict[str, Verdict]:
        del info
        if NO_VERDICT in value:
            raise ValueError("`none` means no verdict and cannot be declared")
        return value

    @property
    def start_fact(self) -> str:
        return self.start_when[len("any(") : -1]


class Override(Written):
    """What a site changes in a shipped rulebook: values, or whether it runs. Never a condition."""

    params: dict[Name, Scalar] = Field(default_factory=dict)
    enabled: bool = True


class OverrideFile(Written):
    """A site's file that changes a rulebook of that name."""

    rulebook: str
    override: Override


Node = Question | Leaf
Path = tuple[str | int, ...]


def nodes(tree: Node, where: Path = ("tree",)) -> Iterator[tuple[Path, Node]]:
    """Every node with its place in the file, the root first."""
    yield where, tree
    if isinstance(tree, Question):
        for answer, branch in tree.branches.items():
            yield from nodes(branch, (*where, f"if_{answer}"))


def lines_of(steps: str | list[str]) -> tuple[str, ...]:
    """`next` as written, always as several."""
    return (steps,) if isinstance(steps, str) else tuple(steps)


@dataclass(frozen=True)
class Rulebook:
    """A rulebook that may run: `params` are in base units and may differ from the file's."""

    path: str
    text: str
    book: RulebookFile
    params: Mapping[str, Quantity]
    enabled: bool = True
    overridden_by: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        return self.book.rulebook

    def with_params(self, params: Mapping[str, Quantity], by: str, **changes: Any) -> Rulebook:
        """The same rulebook with some values replaced; `by` says who did it."""
        return replace(
            self,
            params={**self.params, **params},
            overridden_by=(*self.overridden_by, by),
            **changes,
        )

    @cached_property
    def templates(self) -> dict[str, Template]:
        """Text -> parsed template, for every sentence of the tree and its verdicts."""
        return {text: parse_template(text) for _, text in sentences(self.book)}

    @cached_property
    def told(self) -> frozenset[str]:
        """Facts that are looked up by case: by the start, a test, a leaf or a sentence.

        They must have the case's columns; the others only prepare them.
        """
        found = {self.book.start_fact}
        for _, node in nodes(self.book.tree):
            if isinstance(node, Question):
                found.add(node.fact)
            else:
                found |= {getattr(node, role) for role in ROLE_COLUMNS}
        for _, text in sentences(self.book):
            with suppress(TemplateError):
                found |= {slot.name for slot in parse_template(text).slots}
        return frozenset(found & set(self.book.facts))

    @cached_property
    def columns_used(self) -> dict[str, set[str]]:
        """Fact -> the columns that sentences, blame, confidence or explains may read of it."""
        used: dict[str, set[str]] = {name: set() for name in self.book.facts}
        for template in self.templates.values():
            for slot in template.slots:
                if slot.name in used:
                    used[slot.name] |= set(slot.columns)
        for _, node in nodes(self.book.tree):
            if isinstance(node, Leaf):
                for role, columns in ROLE_COLUMNS.items():
                    fact = getattr(node, role)
                    if fact:
                        used[fact] |= set(columns)
        used[self.book.start_fact].add("at_ns")
        return used


IDENTIFYING = ("rank", "node", "gpu", "nic", "port", "link", "flow", "stage", "comm", "comm_name")
ROLE_COLUMNS: dict[str, tuple[str, ...]] = {
    "blame": (*IDENTIFYING, "kind", "at_ns"),
    "confidence": ("value", "why", "name"),
    "explains": ("comm", "rank", "node", "verdict", "rulebook"),
}


def sentences(book: RulebookFile) -> Iterator[tuple[Path, str]]:
    """Every template of the rulebook with its place in the file."""
    for where, node in nodes(book.tree):
        if isinstance(node, Question):
            yield (*where, "ask"), node.ask
        if node.say:
            yield (*where, "say"), node.say
        if isinstance(node, Leaf):
            yield from _steps((*where, "next"), node.next)
    for name, verdict in book.verdicts.items():
        yield from _steps(("verdicts", name, "next"), verdict.next)


def _steps(where: Path, steps: str | list[str]) -> Iterator[tuple[Path, str]]:
    if isinstance(steps, str):
        yield where, steps
    else:
        for index, step in enumerate(steps):
            yield (*where, index), step
