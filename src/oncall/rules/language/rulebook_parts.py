"""Ways through a rulebook file: nodes, sentences, conditions and roles, each with its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from oncall.rules.language.condition import parse_condition
from oncall.rules.language.positions import Path
from oncall.rules.language.rulebook_file import (
    NO_VERDICT,
    OTHERWISE,
    Conditional,
    Leaf,
    Node,
    Question,
    RulebookFile,
    Said,
    Switch,
)

IDENTIFYING = (
    "rank", "node", "gpu", "nic", "port", "link", "flow", "comm", "comm_name",
    "stage", "replica", "iteration", "chunk", "micro_batch", "task",
)  # fmt: skip
MEASURING = ("slack_ns", "share_explained", "ranks")  # how much it is, beside who
_COST = ("lost_share", "lost_low", "lost_high", "lost_ns", "until_ns")
# What the job lost, when it was over, what fails together, whether it says that it is fatal; what
# kind of device it is, or what kinds can have brought it about; what evidence says so.
WEIGHING = (*_COST, "domain", "fatal", "part", "parts", "witness")
ROLE_COLUMNS: dict[str, tuple[str, ...]] = {
    "blame": (*IDENTIFYING, *MEASURING, *WEIGHING, "kind", "at_ns"),
    "confidence": ("value", "why", "name"),
}


def nodes(tree: Node, where: Path = ("tree",)) -> Iterator[tuple[Path, Node]]:
    """Every node with its place in the file, the root first."""
    yield where, tree
    if not isinstance(tree, Leaf):
        for answer, branch in tree.branches.items():
            yield from nodes(branch, (*where, *step_to(tree, answer)))


def step_to(node: Question | Switch, answer: str) -> Path:
    """Where the branch of an answer or code is written, below its node."""
    if isinstance(node, Question):
        return (f"if_{answer}",)
    return (OTHERWISE,) if node.rows.get(answer) is None else ("rows", answer)


def roles(node: Node) -> Iterator[tuple[str, Path, str]]:
    """What a leaf, or a table for its leaves, names: `blame` or `confidence`, where under it, and
    the name."""
    if not isinstance(node, Question):
        for n, name in enumerate(node.confidence):
            yield "confidence", ("confidence", n), name
        if node.blame and node.blame != NO_VERDICT:
            yield "blame", ("blame",), node.blame


def sentences(book: RulebookFile) -> Iterator[tuple[Path, str]]:
    """Every template of the rulebook with its place in the file."""
    for where, node in nodes(book.tree):
        if isinstance(node, Question):
            yield (*where, "ask"), node.ask
    for where, choices in _texts_of(book):
        yield from (((*where, n, "text"), one.text) for n, one in enumerate(choices))
    for where, steps in advice_of(book):
        yield from (((*where, n, "text"), step.text) for n, step in enumerate(steps))
    for name, weight in book.weights.items():
        yield from ((("weights", name, n, "because"), one.because) for n, one in enumerate(weight))


def conditions(book: RulebookFile) -> Iterator[tuple[Path, str]]:
    """Every condition of a text or a weight with its place in the file."""
    for where, choices in (*choices_of(book), *advice_of(book)):
        for n, one in enumerate(choices):
            if one.when is not None:
                yield (*where, n, "when"), one.when


def advice_of(book: RulebookFile) -> Iterator[tuple[Path, Sequence[Said]]]:
    """What to do next, of every leaf, table and verdict, with its place in the file."""
    for where, node in nodes(book.tree):
        if not isinstance(node, Question):
            yield (*where, "next"), node.next
    for name, verdict in book.verdicts.items():
        yield ("verdicts", name, "next"), verdict.next


def choices_of(book: RulebookFile) -> Iterator[tuple[Path, Sequence[Conditional]]]:
    """Every list of which one is taken, texts and weights, with its place in the file."""
    yield from _texts_of(book)
    for name, weight in book.weights.items():
        yield ("weights", name), weight


def _texts_of(book: RulebookFile) -> Iterator[tuple[Path, Sequence[Said]]]:
    """What is said, and the titles of leaves."""
    for where, node in nodes(book.tree):
        yield (*where, "say"), node.say
        if isinstance(node, Leaf):
            yield (*where, "title"), node.title


One = TypeVar("One", bound=Conditional)


def chosen(choices: Sequence[One], values: Mapping[str, Any]) -> One | None:
    """The first one whose condition holds for a case."""
    return next((one for one in choices if parse_condition(one.when).holds(values)), None)


def holding(steps: Sequence[One], values: Mapping[str, Any]) -> list[One]:
    """All whose condition holds for a case."""
    return [one for one in steps if parse_condition(one.when).holds(values)]
