"""The page of a verdict: what it means, what it needs, what excludes it, an example, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from oncall.core.diagnosis import Finding
from oncall.core.errors import OncallError, UsageError
from oncall.evidence.registry import all_relations, base_tables
from oncall.evidence.schema import BY_NAME, data_of
from oncall.rules.authoring.outline import Step, ways
from oncall.rules.engine.engine import run
from oncall.rules.language.rulebook import Rulebook
from oncall.rules.language.rulebook_file import Leaf, Question, Said, Switch
from oncall.rules.language.rulebook_parts import nodes
from oncall.rules.language.template import nearest
from oncall.rules.language.tests_file import evidence, load_tests, tests_of
from oncall.views.words import percent, sentence

_KINDS = {
    None: "a statement of its own",
    "effect": "an effect: what the job lost",
    "symptom": "a symptom: a component is unlike its peers or its past",
    "event": "an event: something failed and reported it",
}
_LOST = {"stop": "that the job stopped", "compute": "lost computation", "transfer": "lost transfer"}


def pages(name: str, books: Sequence[Rulebook]) -> list[str]:
    """The pages of the verdicts that a name means: `H1`, `hang.H1`, or a former name. Raises
    UsageError for a name that means none."""
    every = [(book, verdict) for book in books for verdict in book.book.verdicts]
    found = [one for one in every if name in _names(*one)]
    if not found:
        near = nearest(name.rpartition(".")[2], [verdict for _, verdict in every])
        raise UsageError(f"no verdict `{name}`{near}")
    return [verdict_page(book, verdict, example(book, verdict)) for book, verdict in found]


def _names(book: Rulebook, verdict: str) -> set[str]:
    whole = (f"{book.name}.{verdict}", *book.former_names(verdict))
    return {*whole, *(one.partition(".")[2] for one in whole)}


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
        *(f"- {line}" for _, leaf in ways_there for line in _said(leaf.say)),
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


def _said(texts: Sequence[Said]) -> list[str]:
    """The sentences with names of columns in place of what they quote, the default last."""
    return [re.sub(r"\{\{\s*(.*?)\s*\}\}", _slot, said.text) for said in texts]


def _slot(slot: re.Match[str]) -> str:
    name, _, shown = slot[1].partition("|")
    shown = shown.strip().partition("(")[0]
    named = shown if shown in ("ranks", "hosts", "count") else name.strip().rpartition(".")[2]
    return "ssh HOST " if named == "reach" else f"‹{named.replace('_', ' ')}›"


def _ways(book: Rulebook, there: Sequence[tuple[tuple[Step, ...], Leaf]]) -> Iterator[str]:
    """Each way to it; at a question, what the other answer leads to: that excludes it."""
    for number, (steps, _) in enumerate(there, start=1):
        if len(there) > 1:
            yield from ([""] if number > 1 else [])
            yield from (f"Way {number} of {len(there)}:", "")
        yield f"- `{book.book.start_fact}` has a row, for each {', '.join(book.book.case)}"
        for node, taken in steps:
            if isinstance(node, Switch):
                yield f"- `{node.switch}` is {taken.replace(', ', ' or ')}"
            else:
                asked = _said([Said(text=node.ask)])[0]
                yield f"- {asked} **{taken}**; else {_elsewhere(node, taken)}"


def _elsewhere(node: Question, taken: str) -> str:
    others = [branch for answer, branch in node.branches.items() if answer != taken]
    found = (one for branch in others for _, one in nodes(branch) if isinstance(one, Leaf))
    names = list(dict.fromkeys(leaf.verdict for leaf in found if leaf.verdict != "none"))
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return shown or "nothing is found"


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
    texts = [line for _, leaf in there for line in _said(leaf.next)]
    texts = texts or _said(book.book.verdicts[verdict].next)
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
