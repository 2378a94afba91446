"""What can be wrong in a rulebook without looking at any evidence: names, tree, sentences."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress

from oncall.evidence.schema import BY_NAME
from oncall.rules.language.condition import parse_condition
from oncall.rules.language.positions import Fault, Path
from oncall.rules.language.rulebook_file import (
    NO_VERDICT,
    STARTED,
    Leaf,
    Node,
    Question,
    RulebookFile,
    Said,
    Switch,
    codes_of,
)
from oncall.rules.language.rulebook_parts import (
    choices_of,
    conditions,
    nodes,
    roles,
    sentences,
    step_to,
)
from oncall.rules.language.template import Slot, TemplateError, nearest, parse_template

CHARTED = frozenset(("baseline_part", "baseline_for", "rate_below"))  # by charts of rates


def faults_of(book: RulebookFile) -> list[Fault]:
    """Every fault of names, tree, sentences, conditions and weights."""
    return [
        *_names(book),
        *_tree(book),
        *_claims(book),
        *_walked(book.tree, book.start_fact),
        *_sentences(book),
        *_conditions(book),
        *_choices(book),
        *_weights(book),
    ]


def _names(book: RulebookFile) -> Iterator[Fault]:
    """A name means one thing: in SQL a fact must not hide a table, in sentences a parameter."""
    taken = {STARTED: "the cases that started"} | dict.fromkeys(BY_NAME, "an evidence table")
    named = (("facts", book.facts), ("params", book.params), ("weights", book.weights))
    for kind, names in named:
        for name in names:
            if name in taken:
                yield Fault((kind, name), f"`{name}` is already {taken[name]}", on_key=True)
            taken.setdefault(name, f"one of the {kind}")
    if book.draw == "rates":
        for name in CHARTED.difference(book.params):
            yield Fault(("draw",), f"a chart of rates needs the parameter `{name}`")
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
        if isinstance(node, Question) and node.fact not in facts:
            offset = node.test.index("(") + 1
            yield _unknown_fact((*where, "test"), node.fact, facts, offset)
        elif isinstance(node, Switch):
            if node.fact not in facts:
                yield _unknown_fact((*where, "switch"), node.fact, facts, 0)
            yield from _codes(node, where)
        elif isinstance(node, Leaf):
            reached.add(node.verdict)
            if node.verdict != NO_VERDICT and node.verdict not in book.verdicts:
                near = nearest(node.verdict, book.verdicts)
                message = f"the verdict `{node.verdict}` is not declared under verdicts:{near}"
                yield Fault((*where, "verdict"), message)
        for role, place, name in roles(node):
            if role == "confidence" and name not in {*book.weights, *facts}:
                message = f"unknown weight `{name}`{nearest(name, book.weights)}"
                yield Fault((*where, *place), message)
            elif role != "confidence" and name not in facts:
                yield _unknown_fact((*where, *place), name, facts, 0)
    for name in book.verdicts:
        if name not in reached:
            message = f"no leaf of the tree has the verdict `{name}`"
            yield Fault(("verdicts", name), message, on_key=True)


def _codes(table: Switch, where: Path) -> Iterator[Fault]:
    """Rows of a table that are never taken: an earlier one is for their code."""
    taken: dict[str, str] = {}
    for written in table.rows:
        for code in codes_of(written):
            if code in taken:
                message = f"the row `{taken[code]}` is already for `{code}`"
                yield Fault((*where, "rows", written), message, on_key=True)
            taken.setdefault(code, written)


def _claims(book: RulebookFile) -> Iterator[Fault]:
    """Verdicts that say what only another kind of statement has to say."""
    meant = {name: f"`{name}` is a verdict still: it means itself" for name in book.verdicts}
    for name, verdict in book.verdicts.items():
        where = ("verdicts", name)
        for former in verdict.was:
            if former in meant:
                yield Fault((*where, "was"), meant[former])
            meant.setdefault(former, f"`{former}` is already what `{name}` was called")
        if verdict.kind == "effect" and verdict.effect is None:
            message = (
                "an effect says what the job lost: `effect: stop`, `compute`, `transfer`, `all`"
            )
            yield Fault((*where, "kind"), message)
        if verdict.kind != "effect" and verdict.effect is not None:
            yield Fault((*where, "effect"), "only `kind: effect` has an `effect`", on_key=True)
        if verdict.kind in ("effect", None) and verdict.explains:
            message = "`explains` needs `kind: symptom` or `kind: event`"
            yield Fault((*where, "explains"), message, on_key=True)


def _unknown_fact(where: Path, name: str, facts: Collection[str], offset: int) -> Fault:
    message = f"unknown fact `{name}`{nearest(name, facts)}"
    return Fault(where, message, offset=offset, length=len(name))


def _walked(tree: Node, start: str) -> Iterator[Fault]:
    """What the way to a node makes senseless: asking again, or quoting a fact without rows."""
    waiting: list[tuple[Path, Node, frozenset[str], frozenset[str], bool]]
    waiting = [(("tree",), tree, frozenset(), frozenset(), False)]
    while waiting:
        where, node, asked, empty, said = waiting.pop()
        yield from _said(node, where, empty)
        if isinstance(node, Leaf):
            if not (node.say or said):
                yield Fault((*where, "say"), "`say` is missing", on_key=True)
            continue
        if isinstance(node, Switch):
            for code, branch in node.branches.items():
                place = (*where, *step_to(node, code))
                # A case that takes `otherwise` has rows of the fact if it has any here.
                known = code in node.rows or node.fact in {start, *asked}
                gone = frozenset(() if known else (node.fact,))
                below = said or bool(node.say)
                waiting.append((place, branch, asked | {node.fact}, empty | gone, below))
            continue
        if node.fact in asked:
            message = (
                f"an earlier question already tested `{node.fact}`: one branch cannot be reached"
            )
            yield Fault((*where, "test"), message)
        yield from _quotes((*where, "ask"), node.ask, empty | {node.fact})
        for answer, branch in node.branches.items():
            none = answer == "unknown" or (answer == "yes") is node.yes_if_empty
            gone = empty | {node.fact} if none else empty
            waiting.append(((*where, f"if_{answer}"), branch, asked | {node.fact}, gone, said))


def _said(node: Node, where: Path, empty: frozenset[str]) -> Iterator[Fault]:
    """What a node says of facts that have no rows there, unless it is said only if they have."""
    for n, said in enumerate(node.say):
        with suppress(TemplateError):
            condition = parse_condition(said.when)
            for term in condition.terms:
                if term.wants_rows and term.fact in empty:
                    message = f"`{term.fact}` has or may have no rows here: this is never shown"
                    place = (*where, "say", n, "when")
                    yield Fault(place, message, offset=term.offset, length=len(term.fact))
            gone = empty | {term.fact for term in condition.terms if not term.wants_rows}
            yield from _quotes((*where, "say", n, "text"), said.text, gone)


def _quotes(where: Path, text: str, empty: frozenset[str]) -> Iterator[Fault]:
    """Quotes of rows of facts that have none there, or may have none."""
    with suppress(TemplateError):
        for slot in parse_template(text).slots:
            if slot.name in empty and slot.columns:
                message = f"`{slot.name}` has or may have no rows here to quote"
                yield Fault(where, message, offset=slot.offset, length=slot.length)


def _choices(book: RulebookFile) -> Iterator[Fault]:
    """Texts that are never reached, and lists that may leave nothing to say."""
    for where, choices in choices_of(book):
        for n, one in enumerate(choices):
            last = n == len(choices) - 1
            if one.when is None and not last:
                yield Fault(
                    (*where, n), "without `when` it is always taken: what follows is never taken"
                )
            # Where no title holds, there is the verdict's.
            if one.when is not None and last and isinstance(one, Said) and where[-1] != "title":
                yield Fault((*where, n), "the last text must have no `when`: it is the default")


def _conditions(book: RulebookFile) -> Iterator[Fault]:
    for where, when in conditions(book):
        try:
            terms = parse_condition(when).terms
        except TemplateError as error:
            yield Fault(where, str(error), offset=error.offset, length=error.length)
            continue
        for term in terms:
            if term.fact not in book.facts:
                yield _unknown_fact(where, term.fact, book.facts, term.offset)
            if term.param is not None and term.param not in book.params:
                message = f"unknown parameter `{term.param}`{nearest(term.param, book.params)}"
                at = when.index(term.param, term.offset + len(term.fact))
                yield Fault(where, message, offset=at, length=len(term.param))


def _weights(book: RulebookFile) -> Iterator[Fault]:
    counted = {name for _, node in nodes(book.tree) for _, _, name in roles(node)}
    for name, weight in book.weights.items():
        if name not in counted:
            yield Fault(("weights", name), f"no leaf uses the weight `{name}`", on_key=True)
        for n, one in enumerate(weight):
            known = book.facts if "." in one.value else book.params
            value = one.value.partition(".")[0]
            if value not in known:
                kind = "fact" if "." in one.value else "parameter"
                message = f"unknown {kind} `{value}`{nearest(value, known)}"
                yield Fault(("weights", name, n, "value"), message)


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
