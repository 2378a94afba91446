"""Shipped verdicts say what kind of statement they are, and no code knows any of them by name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import oncall
from oncall.rules.language.load import load_rulebooks, shipped_folder

BOOKS = load_rulebooks([shipped_folder()])
VERDICTS = {name for book in BOOKS for name in book.book.verdicts}
# Words that devices, states of processes and commands go by as well.
PLAIN_WORDS = {"GPU", "NIC", "NVLS", "DEAD", "STOPPED", "CHECKPOINT"}
SOURCE = Path(oncall.__file__).parent
KNOWS_THE_ANSWER = (SOURCE / "demo", SOURCE / "cli" / "demo.py")  # a demonstration of known faults


def constants(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_every_verdict_says_what_kind_of_statement_it_is() -> None:
    silent = [
        f"{book.name} {name}"
        for book in BOOKS
        for name, verdict in book.book.verdicts.items()
        if verdict.kind is None
    ]
    assert silent == []


def test_no_code_names_a_verdict() -> None:
    named = {
        f"{file.relative_to(SOURCE)}: {text}"
        for file in SOURCE.rglob("*.py")
        if not any(file.is_relative_to(one) for one in KNOWS_THE_ANSWER)
        for text in constants(file)
        if text in VERDICTS - PLAIN_WORDS
    }
    assert named == set()


def test_what_composes_a_diagnosis_names_no_rulebook() -> None:
    """Some are the names of classes of faults or of pictures as well, which are no rulebooks'."""
    names = {book.name for book in BOOKS} - {"hang", "slow", "network", "traffic"}
    for file in (SOURCE / "use_case" / "compose.py", SOURCE / "core" / "diagnosis.py"):
        assert not names & set(constants(file)), file
