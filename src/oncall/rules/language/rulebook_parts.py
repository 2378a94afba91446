"""Ways through a rulebook file: nodes, sentences, conditions and roles, each with its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from oncall.core.diagnosis import Answer
from oncall.rules.language.condition import parse_condition
from oncall.rules.language.positions import Path
from oncall.rules.language.rulebook_file import (
    Conditional,
    Leaf,
    Node,
    Question,
    RulebookFile,
    Said,
)

IDENTIFYING = (
    "rank", "node", "gpu", "nic", "port", "link", "flow", "comm", "comm_name",
    "stage", "replica", "iteration", "chunk", "micro_batch", "task",
)  # fmt: skip
MEASURING = ("slack_ns", "share_explained", "ranks")  # how much it is, beside who
_COST = ("lost_share", "lost_low", "lost_high", "lost_ns", "until_ns")
# What the job lost, when it was over, what fails together, whether it says that it is fatal; what
# kind of device it is, or what kinds can have brought it about.
WEIGHING = (*_COST, "domain", "fatal", "part", "parts")
ROLE_COLUMNS: dict[str, tuple[str, ...]] = {
    "blame": (*IDENTIFYING, *MEASURING, *WEIGHING, "kind", "at_ns"),
    "confidence": ("value", "why", "name"),
}


def nodes(tree: Node, where: Path = ("tree",)) -> Iterator[tuple[Path, Node]]:
    """Every node with its place in the file, the root first."""
    yield where, tree
    if isinstance(tree, Question):
        for answer, branch in tree.branches.items():
            yield from nodes(branch, (*where, f"if_{answer}"))


def roles(node: Node) -> Iterator[tuple[str, Path, str]]:
    """What a leaf names: `blame` or `confidence`, where under it, and the name."""
    if isinstance(node, Leaf):
        for n, name in enumerate(node.confidence):
            yield "confidence", ("confidence", n), name
        if node.blame:
            yield "blame", ("blame",), node.blame


def sentences(book: RulebookFile) -> Iterator[tuple[Path, str]]:
    """Every template of the rulebook with its place in the file."""
    for where, node in nodes(book.tree):
        if isinstance(node, Question):
            yield (*where, "ask"), node.ask
        else:
            yield from (
                ((*where, "title", n, "text"), one.text) for n, one in enumerate(node.title)
            )
        yield from (((*where, "say", n, "text"), said.text) for n, said in enumerate(node.say))
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
    """What to do next, of every leaf and verdict, with its place in the file."""
    for where, node in nodes(book.tree):
        if isinstance(node, Leaf):
            yield (*where, "next"), node.next
    for name, verdict in book.verdicts.items():
        yield ("verdicts", name, "next"), verdict.next


def choices_of(book: RulebookFile) -> Iterator[tuple[Path, Sequence[Conditional]]]:
    """Every list of which one is taken, texts and weights, with its place in the file."""
    for where, node in nodes(book.tree):
        yield (*where, "say"), node.say
        if isinstance(node, Leaf):
            yield (*where, "title"), node.title
    for name, weight in book.weights.items():
        yield ("weights", name), weight


One = TypeVar("One", bound=Conditional)


def chosen(choices: Sequence[One], values: Mapping[str, Any]) -> One | None:
    """The first one whose condition holds for a case."""
    return next((one for one in choices if parse_condition(one.when).holds(values)), None)


def holding(steps: Sequence[One], values: Mapping[str, Any]) -> list[One]:
    """All whose condition holds for a case."""
    return [one for one in steps if parse_condition(one.when).holds(values)]


def answered(book: RulebookFile, answers: Iterable[Answer]) -> Iterator[tuple[str, Answer]]:
    """The questions' names with the answers that were given from the root on."""
    node: Node | None = book.tree
    for answer in answers:
        if not isinstance(node, Question):
            return
        yield node.name, answer
        node = node.branches.get(answer)
