"""The rulebook: the file as written (DESIGN section 5), and the form the engine runs.

`RulebookFile` is the file, its shape the source of docs/reference/rulebook.schema.json. `Rulebook`
is what the engine gets: the same file with its parameters as quantities, which a site or the
command line may have replaced.
"""

# ruff: noqa: RUF009  (`key` makes a dataclass field)
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeVar, get_args

from oncall.core.diagnosis import Answer, FaultClass, Picture, Severity
from oncall.core.units import Quantity
from oncall.rules.language.condition import parse_condition
from oncall.rules.language.positions import Fault, Path
from oncall.rules.language.shape import (
    BOOLEAN,
    NAME,
    SCALAR,
    TEXT,
    Choice,
    Defs,
    Items,
    Named,
    Record,
    Scalar,
    Schema,
    Shape,
    Text,
    key,
    record,
)
from oncall.rules.language.template import Template, TemplateError, parse_template

FORMAT = 1
STARTED = "started"
NO_VERDICT = "none"
DEFAULT_CONFIDENCE = 0.9

Status = Literal["experimental", "test", "stable", "deprecated"]

_STEPS = Items(TEXT, or_one=True)
_NEXT = "What to do next: one sentence or command, or several."
_BOOK = Text(
    r"[a-z][a-z0-9_-]*", "a rulebook's name is lower-case letters, digits, `-` and `_`", "x"
)


@dataclass(frozen=True, kw_only=True)
class Param:
    """A named number with its unit and the reason for its value; sites override the value."""

    value: Scalar = key(SCALAR, "With its unit: 5 min, 64 MiB, 7 GB/s, 20 %; or plain.")
    why: str = key(TEXT, "Why this value and no other.")


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A relation's parameter under a name of the rulebook's own: one value for both."""

    of: str = key(TEXT, "relation.parameter; `oncall rules show RELATION` lists them.")
    value: Scalar | None = key(SCALAR, "Another value, for the relation too.", default=None)
    why: str | None = key(TEXT, "Why another value.", default=None)


_PARAM = Record(
    lambda data: Reference if "of" in data else Param, (lambda: Reference, lambda: Param)
)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a leaf may conclude."""

    title: str = key(TEXT)
    fault_class: FaultClass = key(Choice(get_args(FaultClass)), name="class")
    severity: Severity = key(Choice(get_args(Severity)))
    next: tuple[str, ...] = key(_STEPS, _NEXT, default=())
    draw: bool = key(BOOLEAN, "Whether the rulebook's picture shows it.", default=True)


@dataclass(frozen=True, kw_only=True)
class Conditional:
    """One of a list, of which the first one whose `when` holds is taken."""

    when: str | None = key(
        TEXT,
        "any(fact), none(fact), fact.column or a comparison such as fact.column = 'word'; several "
        "joined by `and`. Without it: always.",
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class Said(Conditional):
    """A text, and when it is said; the last one of a list has no `when`."""

    text: str = key(TEXT)


@dataclass(frozen=True, kw_only=True)
class Weighed(Conditional):
    """A value that a weight may have, when it has it, and why; if none holds, it does not count."""

    value: str = key(
        Text(r"[a-z_]\w*(\.[a-z_]\w*)?", "a weight's value is a parameter or fact.column", "-"),
        "A parameter, or a column of the fact's first row: 0..1.",
    )
    because: str = key(TEXT, "What is observed, as part of a sentence.")


class _Texts(Shape):
    """One text, or a list of them with their conditions: a tuple of Said."""

    _several: ClassVar[Items] = Items(record(Said), least=1)

    def read(self, value: Any, where: Path, faults: list[Fault]) -> tuple[Said, ...]:
        if isinstance(value, list):
            texts: tuple[Said, ...] = self._several.read(value, where, faults)
            return texts
        return (Said(text=TEXT.read(value, where, faults)),)

    def stand_in(self) -> tuple[Said, ...]:
        return (Said(text=TEXT.stand_in()),)

    def schema(self, defs: Defs) -> Schema:
        return {"anyOf": [TEXT.schema(defs), self._several.schema(defs)]}


_TEXTS = _Texts()
_BRANCH = Record(
    lambda data: Leaf if "verdict" in data else Question, (lambda: Question, lambda: Leaf)
)
_TEST = Text(r"(any|none)\(\w+\)", "a test is any(fact) or none(fact), and nothing else", "any(-)")


@dataclass(frozen=True, kw_only=True)
class Question:
    """A node: `say` is said on arriving here, as the consequence of the answer that led here."""

    id: str | None = key(
        NAME,
        "Its name in tests; by default its fact, with `no_` before it if it tests none(fact).",
        default=None,
    )
    ask: str = key(TEXT, "The question shown to the reader.")
    test: str = key(_TEST, "any(fact) or none(fact), for each case on its own.")
    say: tuple[Said, ...] = key(_TEXTS, "The sentences shown at this question.", default=())
    if_yes: Question | Leaf = key(_BRANCH)
    if_no: Question | Leaf = key(_BRANCH)
    if_unknown: Question | Leaf | None = key(
        _BRANCH, "Taken if the evidence that the test needs is missing.", default=None
    )

    @property
    def name(self) -> str:
        """What tests of the rulebook call it; unique on any way through the tree."""
        return self.id or ("no_" if self.yes_if_empty else "") + self.fact

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


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """An end of the tree: a verdict, or `verdict: none`."""

    verdict: str = key(Text(example=NO_VERDICT), "An id under verdicts:, or none.")
    say: tuple[Said, ...] = key(_TEXTS, "The sentence that concludes the report.")
    blame: str | None = key(NAME, "The fact whose rows are the culprits.", default=None)
    next: tuple[str, ...] = key(_STEPS, _NEXT, default=())
    confidence: tuple[str, ...] = key(
        Items(NAME, or_one=True),
        "Weights whose product it is, or facts with columns value (0..1), why and perhaps name.",
        default=(),
    )
    explains: str | None = key(
        NAME,
        "A fact with any of comm, rank, node, verdict, rulebook: findings that match a row are "
        "consequences of this one.",
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class RulebookFile:
    """A rulebook as written."""

    rulebook: str = key(_BOOK)
    format: int = key(Choice((FORMAT,)), "Version of the rule language.")
    title: str = key(TEXT)
    status: Status = key(Choice(get_args(Status)))
    sources: tuple[str, ...] = key(Items(TEXT, least=1), "Papers, with sections.")
    draw: Picture | None = key(
        Choice(get_args(Picture)),
        "What is drawn with its findings; rates: charts of rates, with its threshold.",
        default=None,
    )
    params: dict[str, Param | Reference] = key(Named(_PARAM, NAME), default={})
    case: tuple[str, ...] = key(
        Items(NAME, least=1), "Columns: one diagnosis for each of their values."
    )
    facts: dict[str, str] = key(Named(TEXT, NAME, least=1), "Name -> one SELECT, in order.")
    weights: dict[str, tuple[Weighed, ...]] = key(
        Named(Items(record(Weighed), least=1, or_one=True), NAME),
        "Name -> what makes a verdict more or less certain.",
        default={},
    )
    start_when: str = key(
        Text(r"any\(\w+\)", "`start_when` is any(fact), and nothing else", "any(-)"),
        "any(fact): the cases in its rows are diagnosed.",
    )
    tree: Question | Leaf = key(_BRANCH)
    verdicts: dict[str, Verdict] = key(
        Named(record(Verdict), refused={NO_VERDICT: "`none` means no verdict"}), default={}
    )
    explains: str | None = key(
        NAME, "What every leaf explains that names no fact itself; see there.", default=None
    )

    @property
    def start_fact(self) -> str:
        return self.start_when[len("any(") : -1]


@dataclass(frozen=True, kw_only=True)
class Override:
    """What a site changes in a shipped rulebook: values, or whether it runs. Never a condition."""

    params: dict[str, Scalar] = key(Named(SCALAR, NAME), default={})
    enabled: bool = key(BOOLEAN, default=True)


@dataclass(frozen=True, kw_only=True)
class OverrideFile:
    """A site's file that changes a rulebook of that name."""

    rulebook: str = key(_BOOK)
    override: Override = key(record(Override))


@dataclass(frozen=True, kw_only=True)
class Values:
    """What a site changes in a relation: values of its parameters."""

    params: dict[str, Scalar] = key(Named(SCALAR, NAME, least=1))


@dataclass(frozen=True, kw_only=True)
class RelationFile:
    """A site's file that changes parameters of the relation of that name."""

    relation: str = key(NAME)
    override: Values = key(record(Values))


Node = Question | Leaf


def nodes(tree: Node, where: Path = ("tree",)) -> Iterator[tuple[Path, Node]]:
    """Every node with its place in the file, the root first."""
    yield where, tree
    if isinstance(tree, Question):
        for answer, branch in tree.branches.items():
            yield from nodes(branch, (*where, f"if_{answer}"))


def explaining(node: Node, fact: str | None) -> Node:
    """The tree with what a leaf explains that does not say it."""
    if isinstance(node, Leaf):
        concludes = node.verdict != NO_VERDICT
        return replace(node, explains=fact) if concludes and not node.explains else node
    unknown = node.if_unknown
    return replace(
        node,
        if_yes=explaining(node.if_yes, fact),
        if_no=explaining(node.if_no, fact),
        if_unknown=unknown and explaining(unknown, fact),
    )


@dataclass(frozen=True)
class Rulebook:
    """A rulebook that may run: `params` are in base units and may differ from the file's.

    `site_file` is the site's file that it is from, or whose values it has; `instead_of` the shipped
    rulebook that it replaces. `of_relations` are replaced values of relations' parameters, by
    `relation.parameter`: all rulebooks in force have the same.
    """

    path: str
    text: str
    book: RulebookFile
    params: Mapping[str, Quantity]
    enabled: bool = True
    overridden_by: tuple[str, ...] = field(default=())
    site_file: str = ""
    instead_of: Rulebook | None = None
    of_relations: Mapping[str, Quantity] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.book.rulebook

    @property
    def written_here(self) -> bool:
        """The site's own, not a shipped one with other values."""
        return self.site_file == self.path

    def with_params(self, params: Mapping[str, Quantity], by: str) -> Rulebook:
        """The same rulebook with some values replaced; `by` says who did it. The value of a
        reference is replaced for the relation too."""
        shared = {self.references[name]: params[name] for name in params.keys() & self.references}
        replaced = self.instead_of
        if replaced is not None:
            known = {name: value for name, value in params.items() if replaced.takes(name, value)}
            replaced = replaced.with_params(known, by)
        changed = replace(
            self,
            params={**self.params, **params},
            overridden_by=(*self.overridden_by, by),
            instead_of=replaced,
        )
        return changed.with_relation_params(shared, by) if shared else changed

    def with_relation_params(self, values: Mapping[str, Quantity], by: str) -> Rulebook:
        """The same rulebook for relations with some values replaced, `relation.parameter`."""
        here = {name: values[of] for name, of in self.references.items() if of in values}
        told = by in ("", *self.overridden_by) or not here
        replaced = self.instead_of
        return replace(
            self,
            params={**self.params, **here},
            overridden_by=self.overridden_by if told else (*self.overridden_by, by),
            instead_of=replaced and replaced.with_relation_params(values, by),
            of_relations={**self.of_relations, **values},
        )

    @cached_property
    def references(self) -> Mapping[str, str]:
        """Parameters that are a relation's, with its name: `relation.parameter`."""
        declared = self.book.params.items()
        return {name: param.of for name, param in declared if isinstance(param, Reference)}

    def takes(self, param: str, value: Quantity) -> bool:
        """Whether it has a parameter of that name and dimension."""
        return param in self.params and self.params[param].dimension == value.dimension

    @cached_property
    def templates(self) -> dict[str, Template]:
        """Text -> parsed template, for every sentence of the tree and its verdicts."""
        return {text: parse_template(text) for _, text in sentences(self.book)}

    @cached_property
    def told(self) -> frozenset[str]:
        """Facts that are looked up by case: by the start, a test, a leaf, a sentence or a weight.

        They must have the case's columns; the others only prepare them.
        """
        found = {self.book.start_fact}
        for _, node in nodes(self.book.tree):
            if isinstance(node, Question):
                found.add(node.fact)
            else:
                found |= {fact for _, _, fact in roles(node)}
        for _, text in sentences(self.book):
            with suppress(TemplateError):
                found |= {slot.name for slot in parse_template(text).slots}
        for _, when in conditions(self.book):
            with suppress(TemplateError):
                found |= {term.fact for term in parse_condition(when).terms}
        for weight in self.book.weights.values():
            found |= {one.value.partition(".")[0] for one in weight}
        return frozenset(found & set(self.book.facts))

    @cached_property
    def columns_used(self) -> dict[str, set[str]]:
        """Fact -> the columns that sentences, conditions, weights and leaves may read of it."""
        used: dict[str, set[str]] = {name: set() for name in self.book.facts}
        for template in self.templates.values():
            for slot in template.slots:
                if slot.name in used:
                    used[slot.name] |= set(slot.columns)
        for _, when in conditions(self.book):
            for term in parse_condition(when).terms:
                used[term.fact] |= {term.column} if term.column else set()
        for one in (one for weight in self.book.weights.values() for one in weight):
            fact, _, column = one.value.partition(".")
            if column:
                used[fact].add(column)
        for _, node in nodes(self.book.tree):
            for role, _, fact in roles(node):
                if fact in used:
                    used[fact] |= set(ROLE_COLUMNS[role])
        used[self.book.start_fact].add("at_ns")
        return used


IDENTIFYING = (
    "rank", "node", "gpu", "nic", "port", "link", "flow", "comm", "comm_name",
    "stage", "replica", "iteration", "chunk", "micro_batch", "task",
)  # fmt: skip
MEASURING = ("slack_ns", "share_explained", "ranks")  # how much it is, beside who
ROLE_COLUMNS: dict[str, tuple[str, ...]] = {
    "blame": (*IDENTIFYING, *MEASURING, "kind", "at_ns"),
    "confidence": ("value", "why", "name"),
    "explains": ("comm", "rank", "node", "verdict", "rulebook"),
}


def roles(node: Node) -> Iterator[tuple[str, Path, str]]:
    """What a leaf names: `blame`, `confidence` or `explains`, where under it, and the name."""
    if isinstance(node, Leaf):
        for n, name in enumerate(node.confidence):
            yield "confidence", ("confidence", n), name
        for role in ("blame", "explains"):
            name = getattr(node, role)
            if name:
                yield role, (role,), name


def sentences(book: RulebookFile) -> Iterator[tuple[Path, str]]:
    """Every template of the rulebook with its place in the file."""
    for where, node in nodes(book.tree):
        if isinstance(node, Question):
            yield (*where, "ask"), node.ask
        yield from (((*where, "say", n, "text"), said.text) for n, said in enumerate(node.say))
        if isinstance(node, Leaf):
            yield from (((*where, "next", n), step) for n, step in enumerate(node.next))
    for name, weight in book.weights.items():
        yield from ((("weights", name, n, "because"), one.because) for n, one in enumerate(weight))
    for name, verdict in book.verdicts.items():
        for n, step in enumerate(verdict.next):
            yield ("verdicts", name, "next", n), step


def conditions(book: RulebookFile) -> Iterator[tuple[Path, str]]:
    """Every condition of a text or a weight with its place in the file."""
    for where, choices in choices_of(book):
        for n, one in enumerate(choices):
            if one.when is not None:
                yield (*where, n, "when"), one.when


def choices_of(book: RulebookFile) -> Iterator[tuple[Path, Sequence[Conditional]]]:
    """Every list of texts and every weight with its place in the file."""
    for where, node in nodes(book.tree):
        yield (*where, "say"), node.say
    for name, weight in book.weights.items():
        yield ("weights", name), weight


One = TypeVar("One", bound=Conditional)


def chosen(choices: Sequence[One], values: Mapping[str, Any]) -> One | None:
    """The first one whose condition holds for a case."""
    return next((one for one in choices if parse_condition(one.when).holds(values)), None)


def answered(book: RulebookFile, answers: Iterable[Answer]) -> Iterator[tuple[str, Answer]]:
    """The questions' names with the answers that were given from the root on."""
    node: Node | None = book.tree
    for answer in answers:
        if not isinstance(node, Question):
            return
        yield node.name, answer
        node = node.branches.get(answer)
