"""The rulebook's file as written (DESIGN section 5): its shape, the source of
docs/reference/rulebook.schema.json.
"""

# ruff: noqa: RUF009  (`key` makes a dataclass field)
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

from oncall.core.diagnosis import (
    Claim,
    Component,
    Effect,
    FaultClass,
    Kind,
    Picture,
    Severity,
)
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

FORMAT = 1
STARTED = "started"
OTHERWISE = "otherwise"
NO_VERDICT = "none"
LOST_TIME: tuple[Effect, ...] = ("compute", "transfer")
DEFAULT_CONFIDENCE = 0.9

Status = Literal["experimental", "test", "stable", "deprecated"]

_NO_MORE = "Not read any more: a verdict's `kind` and `explains` say what it may cause."
_NEXT = "What to do next: one sentence or command, or several; those whose `when` holds are shown."
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
class Conditional:
    """A choice, and when it is taken: of a list of texts or weights, the first that holds."""

    when: str | None = key(
        TEXT,
        "any(fact), none(fact), fact.column or a comparison such as fact.column = 'word'; several "
        "joined by `and`. Without it: always.",
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class Said(Conditional):
    """A text, and when it is said; the last one of a list of which one is said has no `when`."""

    text: str = key(TEXT)


class _Step(Shape):
    """A text, or one with its condition: a Said."""

    def read(self, value: Any, where: Path, faults: list[Fault]) -> Said:
        if isinstance(value, dict):
            said: Said = record(Said).read(value, where, faults)
            return said
        return Said(text=TEXT.read(value, where, faults))

    def stand_in(self) -> Said:
        return Said(text=TEXT.stand_in())

    def schema(self, defs: Defs) -> Schema:
        return {"anyOf": [TEXT.schema(defs), record(Said).schema(defs)]}


_STEPS = Items(_Step(), or_one=True)


_EFFECT = Choice(get_args(Effect))


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a leaf may conclude."""

    title: str = key(TEXT)
    fault_class: FaultClass = key(Choice(get_args(FaultClass)), name="class")
    severity: Severity = key(
        Choice(get_args(Severity)),
        "Of an effect or event. A symptom is as severe as what it explains, unless it is info, "
        "as a design is; alone it is info.",
    )
    kind: Kind | None = key(
        Choice(get_args(Kind)),
        "effect: the job stopped or lost time through it; symptom: a component is unlike its "
        "peers or its past; event: something failed and reported it.",
        default=None,
    )
    effect: Effect | None = key(
        _EFFECT,
        "Of an effect: what the job lost. stop: it stopped; compute, transfer: time to that; all: "
        "time to both.",
        default=None,
    )
    explains: tuple[Effect, ...] = key(
        Items(_EFFECT, or_one=True),
        "Of a symptom or event: the effects on its component that it can be the cause of.",
        default=(),
    )
    on: Component | None = key(
        Choice(get_args(Component)),
        "The component it is about, if not what is blamed.",
        default=None,
    )
    next: tuple[Said, ...] = key(_STEPS, _NEXT, default=())
    draw: bool = key(BOOLEAN, "Whether the rulebook's picture shows it.", default=True)
    was: tuple[str, ...] = key(Items(TEXT, or_one=True), "Its former names.", default=())

    @property
    def claim(self) -> Claim:
        """What kind of statement it is. A verdict that does not say so is an effect."""
        parts = lost_by(self.effect) if self.effect else frozenset(self.explains)
        if not self.effect and "all" in parts:
            parts = frozenset((*LOST_TIME, "stop"))
        return Claim(self.kind or "effect", parts, self.on, declared=self.kind is not None)


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
    lambda data: Leaf if "verdict" in data else Switch if "switch" in data else Question,
    (lambda: Question, lambda: Switch, lambda: Leaf),
)
_CONFIDENCE = Items(NAME, or_one=True)
_OF_LEAVES = "Of the table's leaves that have none."
_CODES = Text(r"[^,]+(,[^,]+)*", "a code, or several with commas between them", "-")
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
    if_yes: Node = key(_BRANCH)
    if_no: Node = key(_BRANCH)
    if_unknown: Node | None = key(
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
    def branches(self) -> dict[str, Node]:
        """Answer -> branch, as written."""
        taken: dict[str, Node] = {"yes": self.if_yes, "no": self.if_no}
        return taken | ({"unknown": self.if_unknown} if self.if_unknown else {})


def lost_by(effect: Effect) -> frozenset[Effect]:
    """What an effect takes time from, or that it stops the job."""
    return frozenset(LOST_TIME if effect == "all" else (effect,))


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """An end of the tree: a verdict, or `verdict: none`."""

    verdict: str = key(Text(example=NO_VERDICT), "An id under verdicts:, or none.")
    title: tuple[Said, ...] = key(
        _TEXTS, "Instead of the verdict's, where more is known here.", default=()
    )
    kind: Kind | None = key(
        Choice(get_args(Kind)),
        "Instead of the verdict's: an event here, a symptom elsewhere.",
        default=None,
    )
    effect: Effect | None = key(
        _EFFECT, "Instead of the verdict's, where less is known here.", default=None
    )
    on: Component | None = key(
        Choice(get_args(Component)), "Instead of the verdict's, where less is known.", default=None
    )
    say: tuple[Said, ...] = key(_TEXTS, "The sentence that concludes the report.", default=())
    blame: str | None = key(NAME, "The fact whose rows are the culprits; or none.", default=None)
    next: tuple[Said, ...] = key(_STEPS, _NEXT, default=())
    confidence: tuple[str, ...] = key(
        _CONFIDENCE,
        "Weights whose product it is, or facts with columns value (0..1), why and perhaps name.",
        default=(),
    )
    explains: str | None = key(NAME, _NO_MORE, default=None)


@dataclass(frozen=True, kw_only=True)
class Switch:
    """A table by a code: a case takes the first row of the table whose code it has. Below it, the
    fact has the rows with that code only."""

    switch: str = key(
        Text(r"[a-z_]\w*\.[a-z_]\w*", "a switch is fact.column, and nothing else", "-.-"),
        "fact.column; the column holds the code.",
    )
    rows: dict[str, Node] = key(
        Named(_BRANCH, _CODES, least=1), "A code, or several with commas -> what follows from it."
    )
    otherwise: Node | None = key(_BRANCH, "Of a case without such a code.", default=None)
    blame: str | None = key(
        NAME, "Of the table's leaves without a blame; by default its fact.", default=None
    )
    say: tuple[Said, ...] = key(_TEXTS, _OF_LEAVES, default=())
    next: tuple[Said, ...] = key(_STEPS, _OF_LEAVES, default=())
    confidence: tuple[str, ...] = key(_CONFIDENCE, _OF_LEAVES, default=())

    @property
    def fact(self) -> str:
        return self.switch.partition(".")[0]

    @property
    def column(self) -> str:
        return self.switch.partition(".")[2]

    @property
    def branches(self) -> dict[str, Node]:
        """Codes -> branch, as written."""
        return self.rows | ({OTHERWISE: self.otherwise} if self.otherwise else {})

    def completed(self, leaf: Leaf) -> Leaf:
        """One of its leaves, with what the table says for all of them."""
        return replace(
            leaf,
            blame=leaf.blame or self.blame or self.fact,
            say=leaf.say or self.say,
            next=leaf.next or self.next,
            confidence=leaf.confidence or self.confidence,
        )


def codes_of(written: str) -> tuple[str, ...]:
    """The codes that a row of a switch is for."""
    return tuple(code.strip() for code in written.split(","))


@dataclass(frozen=True, kw_only=True)
class RulebookFile:
    """A rulebook as written."""

    rulebook: str = key(_BOOK)
    was: tuple[str, ...] = key(
        Items(_BOOK, or_one=True),
        "Rulebooks whose place it took: their names still mean it, in files, options and reports.",
        default=(),
    )
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
    tree: Node = key(_BRANCH)
    verdicts: dict[str, Verdict] = key(
        Named(record(Verdict), refused={NO_VERDICT: "`none` means no verdict"}), default={}
    )
    explains: str | None = key(NAME, _NO_MORE, default=None)

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


Node = Question | Switch | Leaf
