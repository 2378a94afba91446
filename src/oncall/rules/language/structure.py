"""What can be wrong in a rulebook without looking at any evidence: names, tree, sentences."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress

from oncall.evidence.schema import BY_NAME
from oncall.rules.language.positions import Fault, Path
from oncall.rules.language.rulebook import (
    NO_VERDICT,
    STARTED,
    Leaf,
    Node,
    Question,
    RulebookFile,
    nodes,
    sentences,
)
from oncall.rules.language.template import Slot, TemplateError, nearest, parse_template


def faults_of(book: RulebookFile) -> list[Fault]:
    """Every fault of names, tree and sentences."""
    return [*_names(book), *_tree(book), *_walked(book.tree), *_sentences(book)]


def _names(book: RulebookFile) -> Iterator[Fault]:
    """A name means one thing: in SQL a fact must not hide a table, in sentences a parameter."""
    taken = {STARTED: "the cases that started"} | dict.fromkeys(BY_NAME, "an evidence table")
    for kind, names in (("facts", book.facts), ("params", book.params)):
        for name in names:
            if name in taken:
                yield Fault((kind, name), f"`{name}` is already {taken[name]}", on_key=True)
            taken.setdefault(name, f"one of the {kind}")
    for index, name in enumerate(book.case):
        if name in book.facts or name in book.params:
            yield Fault(("case", index), f"`{name}` is already {taken[name]}")
        if name in book.case[:index]:
            yield Fault(("case", index), f"`{name}` is given twice")


def _tree(book: RulebookFile) -> Iterator[Fault]:
    facts = book.facts
    if book.start_fact not in facts:
        yield _unknown_fact(("start_when",), book.start_fact, facts, len("any("))
    reached: set[str] = set()
    for where, node in nodes(book.tree):
        if isinstance(node, Question):
            if node.fact not in facts:
                offset = node.test.index("(") + 1
                yield _unknown_fact((*where, "test"), node.fact, facts, offset)
            continue
        reached.add(node.verdict)
        if node.verdict != NO_VERDICT and node.verdict not in book.verdicts:
            near = nearest(node.verdict, book.verdicts)
            message = f"the verdict `{node.verdict}` is not declared under verdicts:{near}"
            yield Fault((*where, "verdict"), message)
        for role in ("blame", "confidence", "explains"):
            name = getattr(node, role)
            if name and name not in facts:
                yield _unknown_fact((*where, role), name, facts, 0)
    for name in book.verdicts:
        if name not in reached:
            message = f"no leaf of the tree concludes `{name}`"
            yield Fault(("verdicts", name), message, on_key=True)


def _unknown_fact(where: Path, name: str, facts: Collection[str], offset: int) -> Fault:
    message = f"unknown fact `{name}`{nearest(name, facts)}"
    return Fault(where, message, offset=offset, length=len(name))


def _walked(tree: Node) -> Iterator[Fault]:
    """What the way to a node makes senseless: asking again, or quoting a fact without rows."""
    waiting: list[tuple[Path, Node, frozenset[str], frozenset[str]]]
    waiting = [(("tree",), tree, frozenset(), frozenset())]
    while waiting:
        where, node, asked, empty = waiting.pop()
        said = [((*where, "say"), node.say or "")]
        if isinstance(node, Leaf):
            yield from _quotes(said, empty)
            continue
        if node.fact in asked:
            message = f"the way here has already asked about `{node.fact}`: one branch is dead"
            yield Fault((*where, "test"), message)
        yield from _quotes(said, empty)
        yield from _quotes([((*where, "ask"), node.ask)], empty | {node.fact})
        for answer, branch in node.branches.items():
            none = answer == "unknown" or (answer == "yes") is node.yes_if_empty
            gone = empty | {node.fact} if none else empty
            waiting.append(((*where, f"if_{answer}"), branch, asked | {node.fact}, gone))


def _quotes(said: list[tuple[Path, str]], empty: frozenset[str]) -> Iterator[Fault]:
    """Sentences that quote rows of facts that have none there, or may have none."""
    for where, text in said:
        with suppress(TemplateError):
            for slot in parse_template(text).slots:
                if slot.name in empty and slot.columns:
                    message = f"`{slot.name}` has no rows here to quote, or may have none"
                    yield Fault(where, message, offset=slot.offset, length=slot.length)


def _sentences(book: RulebookFile) -> Iterator[Fault]:
    for where, text in sentences(book):
        try:
            slots = parse_template(text).slots
        except TemplateError as error:
            yield Fault(where, str(error), offset=error.offset, length=error.length)
            continue
        for slot in slots:
            message = _slot_message(book, slot)
            if message:
                yield Fault(where, message, offset=slot.offset, length=slot.length)


def _slot_message(book: RulebookFile, slot: Slot) -> str | None:
    known = [*book.facts, *book.params, *book.case]
    if slot.name not in known:
        return f"unknown name `{slot.name}`{nearest(slot.name, known)}"
    first = slot.filters[0][0] if slot.filters else None
    if slot.name in book.facts:
        if slot.column is None and first not in ("ranks", "hosts", "count"):
            return (
                f"`{slot.name}` is a fact: name a column, as in `{slot.name}.{book.case[0]}`, "
                f"or write `{slot.name} | count`, `| ranks` or `| hosts`"
            )
        return None
    if slot.column is not None:
        kind = "parameter" if slot.name in book.params else "column of the case"
        return f"`{slot.name}` is a {kind} and has no columns"
    return None
