"""A rulebook drawn as text: its tree, the way to a verdict, and how two rulebooks differ."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Container, Iterator, Sequence
from difflib import unified_diff
from pathlib import Path

from oncall.core.units import format_quantity
from oncall.evidence.parameters import Replaced, all_parameters
from oncall.evidence.relations import Relation
from oncall.rules.language.load import shipped_folder
from oncall.rules.language.rulebook import Rulebook
from oncall.rules.language.rulebook_file import (
    NO_VERDICT,
    Leaf,
    Node,
    Question,
    Reference,
    Said,
    Switch,
)
from oncall.rules.site import Rulebooks

WIDTH = 80


def listing(books: Sequence[Rulebook]) -> Iterator[str]:
    """One line a rulebook, with its verdicts under it."""
    for rulebook in books:
        book = rulebook.book
        state = book.status if rulebook.enabled else "disabled"
        yield f"{rulebook.name}  {book.title}  [{state}]"
        for name, verdict in book.verdicts.items():
            yield f"  {name:10} {verdict.title} ({verdict.fault_class}, {verdict.severity})"


def origins(rulebooks: Rulebooks) -> Iterator[str]:
    """One line a rulebook: where it is from; then the site's files that are wrong."""
    widest = max((len(book.name) for book in rulebooks.in_force), default=0)
    for book in rulebooks.in_force:
        yield f"{book.name:{widest}}  {book.book.status:12}  {_origin(book)}"
    for one in rulebooks.set_aside:
        yield f"{one.name:{widest}}  left out      {one.description}"


def _origin(book: Rulebook) -> str:
    shipped = Path(book.path).is_relative_to(shipped_folder())
    origin = "shipped" if shipped else f"site {book.path}" if book.written_here else book.path
    if book.overridden_by:
        origin += f", changed by {', '.join(book.overridden_by)}"
    return origin if book.enabled else f"{origin}, switched off"


def drawing(rulebook: Rulebook, width: int = WIDTH) -> Iterator[str]:
    """The whole rulebook but its SQL: parameters with their reasons, then the tree."""
    book = rulebook.book
    yield from _wrapped(f"{rulebook.name}: {book.title} [{book.status}]", "", "  ", width)
    yield from _wrapped("sources: " + "; ".join(book.sources), "  ", "    ", width)
    if rulebook.overridden_by:
        yield from _wrapped(f"changed by {', '.join(rulebook.overridden_by)}", "  ", "    ", width)
    if book.params:
        yield ""
        yield from _parameters(rulebook, book.params, width)
    yield ""
    yield from _wrapped(
        f"For each {', '.join(book.case)} in {book.start_fact}:", "  ", "    ", width
    )
    yield from _branch(rulebook, book.tree, "  ", "  ", width)


def _parameters(rulebook: Rulebook, names: Container[str], width: int) -> Iterator[str]:
    for name, param in rulebook.book.params.items():
        if name in names:
            value = format_quantity(rulebook.params[name])
            if isinstance(param, Reference):
                value = f"{value} ({param.of})"
                why = param.why or all_parameters()[param.of].why
            else:
                why = param.why
            yield from _wrapped(f"${name} = {value}: {why}", "  ", "    ", width)


def relation_drawing(entry: Relation, replaced: Replaced, width: int = WIDTH) -> Iterator[str]:
    """What a relation computes, and its parameters with their reasons."""
    yield from _wrapped(f"{entry.name}: {' '.join(entry.doc.split())}", "", "  ", width)
    yield ""
    for name, param in entry.params.items():
        of = param if isinstance(param, str) else f"{entry.name}.{name}"
        declared = all_parameters()[of]
        value = format_quantity(replaced.get(of, declared.quantity))
        other = f" ({of})" if isinstance(param, str) else ""
        yield from _wrapped(f"${name} = {value}{other}: {declared.why}", "  ", "    ", width)


def _branch(rulebook: Rulebook, node: Node, first: str, rest: str, width: int) -> Iterator[str]:
    if isinstance(node, Leaf):
        title = ""
        if node.verdict != NO_VERDICT and node.verdict in rulebook.book.verdicts:
            title = f" {rulebook.book.verdicts[node.verdict].title}"
        blame = f" (blames {node.blame})" if node.blame else ""
        yield from _wrapped(f"▶ {node.verdict}{title}{blame}", first, rest + "  ", width)
        yield from _said(node.say, rest + "  ", rest + "  ", width)
        return
    if isinstance(node, Switch):
        yield from _wrapped(f"The first of these that {node.switch} has:", first, rest, width)
        yield from _branches(rulebook, node, 0, rest, width)
        return
    if node.say:
        yield from _said(node.say, first, rest, width)
        first = rest
    yield from _wrapped(f"{node.ask}  {node.test}", first, rest, width)
    yield from _branches(rulebook, node, 3, rest, width)


def _branches(
    rulebook: Rulebook, node: Question | Switch, widest: int, rest: str, width: int
) -> Iterator[str]:
    branches = list(node.branches.items())
    for number, (answer, branch) in enumerate(branches, start=1):
        last = number == len(branches)
        lead = f"{rest}{'└' if last else '├'}─ {answer:{widest}} "
        follow = f"{rest}{' ' if last else '│'}  " + " " * (widest + 1)
        yield from _branch(rulebook, branch, lead, follow, width)


def _said(texts: Sequence[Said], first: str, rest: str, width: int) -> Iterator[str]:
    for said in texts:
        when = f" if {said.when}" if said.when else ""
        yield from _wrapped(f"“{said.text}”{when}", first, rest, width)
        first = rest


def _wrapped(text: str, first: str, rest: str, width: int) -> list[str]:
    # A `{{ slot }}` stays on one line.
    kept = re.sub(r"\{\{[^{}]*\}\}", lambda slot: slot[0].replace(" ", "\u00a0"), text)
    lines = textwrap.wrap(
        kept,
        max(width, len(rest) + 24),
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\u00a0", " ") for line in lines]


def ways_to(rulebook: Rulebook, verdict: str, width: int = WIDTH) -> Iterator[str]:
    """Every way to a verdict: the questions with the answers that lead there, then the SQL behind
    them with its parameters, each once."""
    book = rulebook.book
    declared = book.verdicts[verdict]
    kind = f"{declared.kind or 'effect'}, {declared.fault_class}, {declared.severity}"
    yield f"{rulebook.name} {verdict}: {declared.title} ({kind})"
    facts = [book.start_fact]
    for path, leaf in ways(book.tree):
        if leaf.verdict != verdict:
            continue
        yield ""
        for number, (node, answer) in enumerate(path, start=1):
            asked = f"{node.switch} is" if isinstance(node, Switch) else node.ask
            yield from _wrapped(f"{number}. {asked}  {answer}", "  ", "     ", width)
            facts.append(node.fact)
        yield from _said(leaf.say, "  ▶ ", "     ", width)
        facts += [leaf.blame] if leaf.blame in book.facts else []
    for fact in dict.fromkeys(facts):
        yield ""
        yield f"  {fact}:"
        yield from textwrap.indent(book.facts[fact].strip(), " " * 4).splitlines()
    read = {name for fact in facts for name in re.findall(r"\$(\w+)", book.facts[fact])}
    read |= rulebook.references.keys()  # relations read those
    if read:
        yield ""
        yield from _parameters(rulebook, read, width)


Step = tuple[Question | Switch, str]  # a question or table, and the answer or codes taken


def ways(node: Node, path: tuple[Step, ...] = ()) -> Iterator[tuple[tuple[Step, ...], Leaf]]:
    """Every way from a node to a leaf, each leaf with what its tables say for it."""
    if isinstance(node, Leaf):
        for table, _ in reversed(path):
            node = table.completed(node) if isinstance(table, Switch) else node
        yield path, node
        return
    for answer, branch in node.branches.items():
        yield from ways(branch, (*path, (node, answer)))


def differences(shipped: Rulebook, site: Rulebook) -> Iterator[str]:
    """What may change a verdict between two rulebooks: values, facts, tree; comments do not."""
    if not site.enabled:
        yield "disabled"
    names = dict.fromkeys((*shipped.params, *site.params))
    for name in names:
        before, after = (
            format_quantity(book.params[name]) if name in book.params else "absent"
            for book in (shipped, site)
        )
        if before != after:
            yield f"${name}: {before} -> {after}"
    for name in dict.fromkeys((*shipped.book.facts, *site.book.facts)):
        sides = [book.book.facts.get(name, "").strip().splitlines() for book in (shipped, site)]
        yield from _changed(f"fact {name}", *sides)
    for part in ("case", "start_when"):
        sides = [[str(getattr(book.book, part))] for book in (shipped, site)]
        yield from _changed(part, *sides)
    sides = [list(_branch(book, book.book.tree, "", "", 100)) for book in (shipped, site)]
    yield from _changed("tree", *sides)


def _changed(what: str, before: list[str], after: list[str]) -> Iterator[str]:
    if before != after:
        yield f"{what}:"
        for line in list(unified_diff(before, after, lineterm="", n=1))[2:]:
            yield f"  {line}"
