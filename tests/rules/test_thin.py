"""Shipped rulebooks are read at night: short, thin facts, shallow trees, no table in a sentence."""

from __future__ import annotations

import re

import pytest

from oncall.evidence.registry import all_relations
from oncall.evidence.schema import BY_NAME
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.rules.language.rulebook import Rulebook
from oncall.rules.language.rulebook_file import Leaf, Node
from oncall.rules.language.rulebook_parts import sentences

LONGEST, LINES, COLUMNS, LEVELS = 350, 12, 120, 6
THICK = {"hang"}  # still to be thinned
LONG = {"faults"}  # a table with a row for each code
RULEBOOKS = load_rulebooks([shipped_folder()])


def levels(node: Node) -> int:
    branches = () if isinstance(node, Leaf) else node.branches.values()
    return 1 + max(map(levels, branches)) if branches else 0


@pytest.mark.parametrize(
    "book", [book for book in RULEBOOKS if book.name not in THICK], ids=lambda book: str(book.name)
)
def test_rulebooks_are_short_their_facts_thin_their_trees_shallow(book: Rulebook) -> None:
    assert len(book.text.splitlines()) <= LONGEST or book.name in LONG
    for name, sql in book.book.facts.items():
        lines = sql.strip().splitlines()
        assert len(lines) <= LINES, name
        assert max(map(len, lines)) <= COLUMNS - len("    "), name
    assert levels(book.book.tree) <= LEVELS


@pytest.mark.parametrize("book", RULEBOOKS, ids=lambda book: str(book.name))
def test_no_line_is_too_long_to_be_read(book: Rulebook) -> None:
    assert not [line for line in book.text.splitlines() if len(line) > COLUMNS]


@pytest.mark.parametrize("book", RULEBOOKS, ids=lambda book: str(book.name))
def test_no_sentence_names_a_table(book: Rulebook) -> None:
    tables = {name for name in (*BY_NAME, *all_relations()) if "_" in name}
    for _, text in sentences(book.book):
        words = set(re.findall(r"\w+", re.sub(r"\{\{.*?\}\}|`.*?`", "", text)))
        assert not words & tables, text
