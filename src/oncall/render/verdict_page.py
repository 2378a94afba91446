"""The page of a verdict: what it means, what it needs, what excludes it, an example, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeGuard

from oncall.core.diagnosis import Finding
from oncall.core.errors import OncallError, UsageError
from oncall.evidence.registry import all_relations, base_tables
from oncall.evidence.schema import BY_NAME, data_of
from oncall.rules.authoring.outline import Step, ways
from oncall.rules.engine.engine import run
from oncall.rules.language.rulebook import Rulebook
from oncall.rules.language.rulebook_file import NO_VERDICT, Leaf, Node, Question, Said
from oncall.rules.language.rulebook_parts import nodes
from oncall.rules.language.template import nearest, parse_template
from oncall.rules.language.tests_file import evidence, load_tests, tests_of
from oncall.views.words import percent, sentence

_KINDS = {
    None: "a statement of its own",
    "effect": "an effect: what the job lost",
    "symptom": "a symptom: a component is unlike its peers or its past",
    "event": "an event: something failed and reported it",
}
_ANSWERS = {"yes": "**Yes.**", "no": "**No.**", "unknown": "**That is not recorded.**"}
_LOST = {"stop": "that the job stopped", "compute": "lost computation", "transfer": "lost transfer"}


def pages(name: str, books: Sequence[Rulebook]) -> list[str]:
    """The pages of the verdicts that a name means: `H1`, `hang.h1`, or a former name. Raises
    UsageError for a name that means none."""
    every = [(book, verdict) for book in books for verdict in book.book.verdicts]
    found = [one for one in every if name.upper() in _names(*one)]
    if not found:
        if of_book := [verdict for book, verdict in every if book.name == name]:
            names = ", ".join(of_book)
            raise UsageError(f"{name} is a rulebook: name one of its verdicts: {names}")
        near = nearest(name.rpartition(".")[2].upper(), [verdict for _, verdict in every])
        raise UsageError(f"no verdict `{name}`{near}; `oncall rules show` lists them")
    return [verdict_page(book, verdict, example(book, verdict)) for book, verdict in found]


def _names(book: Rulebook, verdict: str) -> set[str]:
    whole = (f"{book.name}.{verdict}", *book.former_names(verdict))
    return {one.upper() for name in whole for one in (name, name.partition(".")[2])}


def example(book: Rulebook, verdict: str) -> tuple[str, Finding] | None:
    """The first test of the rulebook that finds the verdict, and what it finds; None without."""
    try:
        _, tests, _ = load_tests(tests_of(Path(book.path)))
        for test in tests.tests:
            if not any(one.verdict == verdict for one in test.expect):
                continue
            with evidence(tests, test) as incident:
                findings = run(incident, [book]).findings
            found = next((one for one in findings if one.verdict == verdict), None)
            if found is not None:
                return test.name, found
    except OncallError:
        return None  # a site's rulebook may have no tests
    return None


def verdict_page(book: Rulebook, verdict: str, example: tuple[str, Finding] | None) -> str:
    """The page, as Markdown. `example`: the name of a test of the rulebook, and what it finds."""
    declared = book.book.verdicts[verdict]
    ways_there = [way for way in ways(book.book.tree) if way[1].verdict == verdict]
    lines = [
        f"# {book.name}.{verdict}",
        "",
        f"**{declared.title}.** {book.book.title}.",
        "",
        *_table(book, verdict),
        "",
        "## What it says",
        "",
        *(f"- {line}" for _, leaf in ways_there for line in _said(leaf.say, book)),
        *_advice(book, verdict, ways_there),
        "",
        "## When it is given",
        "",
        *_ways(book, ways_there),
        "",
        "## What it reads, as far as it is recorded",
        "",
        *(f"- {data}" for data in _needed(book, ways_there)),
        *(_example(*example) if example else ()),
    ]
    return "\n".join(lines) + "\n"


def _table(book: Rulebook, verdict: str) -> Iterator[str]:
    declared = book.book.verdicts[verdict]
    yield "| | |"
    yield "|---|---|"
    yield f"| kind | {_KINDS[declared.kind]} |"
    explained = [_LOST[effect] for effect in _LOST if effect in declared.claim.effects]
    if declared.kind in ("symptom", "event") and explained:
        yield f"| explains | {', '.join(explained)} |"
    yield f"| about | {declared.on or 'what is blamed'} |"
    yield f"| class | {declared.fault_class} |"
    yield f"| severity | {declared.severity} |"
    if book.book.was or declared.was:
        names = (*declared.was, *(f"of {one}" for one in book.book.was))
        yield f"| formerly | {', '.join(names)} |"
    yield f"| sources | {'; '.join(book.book.sources)} |"


def _said(texts: Sequence[Said], book: Rulebook) -> list[str]:
    """The sentences with values of parameters, and names of columns in place of what else they
    quote, the default last."""

    def slot(quoted: re.Match[str]) -> str:
        known = quoted[1].partition("|")[0].strip() in book.params
        return parse_template(quoted[0]).render(book.params) if known else _slot(quoted)

    return [re.sub(r"\{\{([^{}]*)\}\}", slot, said.text) for said in texts]


def _slot(slot: re.Match[str]) -> str:
    name, _, shown = slot[1].partition("|")
    shown = shown.strip().partition("(")[0]
    named = shown if shown in ("ranks", "hosts", "count") else name.strip().rpartition(".")[2]
    return "ssh HOST " if named == "reach" else f"‹{named.replace('_', ' ')}›"


def _ways(book: Rulebook, there: Sequence[tuple[tuple[Step, ...], Leaf]]) -> Iterator[str]:
    """The answers that lead to it, with what the other ones lead to: that excludes it; and of
    tables, what is said there, by its code."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for steps, leaf in there:
        asked = tuple(_asked(book, node, taken, leaf) for node, taken in steps if _is_asked(node))
        says = (_said(leaf.say, book) or [book.book.verdicts[leaf.verdict].title])[-1]
        codes = [taken.replace("_", " ") for node, taken in steps if not _is_asked(node)]
        rows.setdefault(asked, []).append(f"**{codes[-1]}**: {says}" if codes else says)
    for number, (asked, found) in enumerate(rows.items(), start=1):
        if len(rows) > 1:
            yield from ([""] if number > 1 else [])
            yield from (f"Way {number} of {len(rows)}:", "")
        yield from asked
        several = len(found) > 1
        yield from (["- One of these is found:"] if several else [])
        yield from (f"  - {one}" if several else f"- {one}" for one in found)
    if any(not _is_asked(node) for steps, _ in there for node, _ in steps):
        shown = f"`oncall rules show {book.name}`"
        yield from ("", f"Where the evidence shows several, the first that {shown} lists is given.")


def _is_asked(node: Node) -> TypeGuard[Question]:
    return isinstance(node, Question)


def _asked(book: Rulebook, node: Question, taken: str, leaf: Leaf) -> str:
    others = [branch for answer, branch in node.branches.items() if answer != taken]
    asked = _said([Said(text=node.ask)], book)[0]
    return f"- {asked} {_ANSWERS[taken]}{_otherwise(others, leaf.verdict)}"


def _otherwise(branches: Sequence[Node], verdict: str) -> str:
    if names := _verdicts(branches, verdict):
        return f" Otherwise {names}."
    found = [one for branch in branches for _, one in nodes(branch) if isinstance(one, Leaf)]
    return "" if any(leaf.verdict == verdict for leaf in found) else " Otherwise nothing is found."


def _verdicts(branches: Iterable[Node], but: str) -> str:
    """The other verdicts that these lead to, at most four by name."""
    found = (one for branch in branches for _, one in nodes(branch) if isinstance(one, Leaf))
    names = list(dict.fromkeys(leaf.verdict for leaf in found if leaf.verdict != NO_VERDICT))
    names = [name for name in names if name != but]
    shown = names if len(names) <= 4 else [*names[:3], f"{len(names) - 3} more"]
    return " or ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


def _needed(book: Rulebook, there: Sequence[tuple[tuple[Step, ...], Leaf]]) -> list[str]:
    """The data behind the facts on the way, as a user knows it."""
    facts = {book.book.start_fact} | {node.fact for steps, _ in there for node, _ in steps}
    waiting, read = list(facts), set[str]()
    while waiting:
        names = set(re.findall(r"\w+", book.book.facts[waiting.pop()]))
        waiting += [name for name in names & book.book.facts.keys() - facts]
        facts |= names & book.book.facts.keys()
        read |= names & {*BY_NAME, *all_relations()}
    return sorted({data_of(table) for table in base_tables(read)})


def _advice(
    book: Rulebook, verdict: str, there: Sequence[tuple[tuple[Step, ...], Leaf]]
) -> Iterator[str]:
    texts = [line for _, leaf in there for line in _said(leaf.next, book)]
    texts = texts or _said(book.book.verdicts[verdict].next, book)
    if texts:
        yield from ("", "## What to do", "")
        yield from (f"- {text}" for text in dict.fromkeys(texts))


def _example(name: str, found: Finding) -> Iterator[str]:
    yield from ("", "## An example", "", f'The rulebook\'s test "{name}" gives:', "", "```text")
    yield f"{found.severity.upper()}  {sentence(found)} ({percent(found.confidence)})"
    for step in found.story:
        yield from ([f"  {step.ask}  {step.answer.capitalize()}."] if step.ask else [])
        yield from ([f"  {step.say}"] if step.say else [])
    yield from (f"  Next: {advice}" for advice in found.next[:1])
    yield "```"
