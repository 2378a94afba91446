"""What the documentation shows is what the program prints; `make docs` writes it anew."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from tests.command import oncall

_PROGRAM = Path(__file__).parents[2] / "docs" / "transcripts.py"
_spec = importlib.util.spec_from_file_location("transcripts", _PROGRAM)
assert _spec and _spec.loader
transcripts = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(transcripts)


SLOW = ("simulate.md",)  # asks simulated nodes, a process each


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(path, marks=[pytest.mark.slow] if path.name in SLOW else [], id=path.name)
        for path in transcripts.DOCUMENTS
        if transcripts.has_transcripts(path)
    ],
)
def test_a_document_shows_what_the_program_prints(document: Path) -> None:
    assert transcripts.transcribed(document) == document.read_text()


@pytest.mark.parametrize("document", transcripts.DOCUMENTS, ids=lambda path: path.name)
def test_no_transcript_misses_its_file(document: Path) -> None:
    assert "No such file or directory" not in "".join(
        block["body"]
        for block in transcripts._BLOCK.finditer(document.read_text())
        if block["info"].split()[0] == "console"
    )


@pytest.mark.parametrize("document", transcripts.DOCUMENTS, ids=lambda path: path.name)
def test_make_knows_what_a_document_says_to_make(document: Path) -> None:
    makefile = (transcripts.TOP / "Makefile").read_text()
    for target in re.findall(r"`make\s+([a-z][a-z-]*)", document.read_text()):
        assert re.search(rf"^{target}\b.*:", makefile, re.MULTILINE), target


def test_the_guide_of_the_hooks_shows_their_variables() -> None:
    """But for where oncall is installed."""
    guide = (transcripts.TOP / "docs" / "guide" / "hooks.md").read_text()
    command, _, rest = guide.partition("    $ oncall ")[2].partition("\n")
    shown = [line.strip() for line in rest.partition("\n\n")[0].splitlines()]
    printed = oncall(*command.split()).stdout.splitlines()
    assert [re.sub(r"=/\S+/", "=", line) for line in printed if line.startswith("export")] == [
        re.sub(r"=/\S+/", "=", line) for line in shown
    ]
