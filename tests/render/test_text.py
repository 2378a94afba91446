"""The terminal report: goldens at 80 columns, and what holds for any diagnosis at all."""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from oncall.core.diagnosis import Blame, Coverage, Diagnosis, Finding, Gap, Stack, Step
from oncall.render.text.report import to_text

GOLDEN = Path(__file__).parent / "golden"
ANSI = re.compile("\x1b\\[[0-9;]*m")


@pytest.mark.parametrize("explain", [False, True])
@pytest.mark.parametrize("name", ["hang", "two_roots", "healthy", "unseen"])
def test_golden(name: str, explain: bool, request: pytest.FixtureRequest) -> None:
    """The committed text is what is printed. ONCALL_UPDATE_GOLDEN=1 writes it anew."""
    text = to_text(request.getfixturevalue(name), explain=explain)
    path = GOLDEN / f"{name}{'_explained' if explain else ''}.txt"
    if os.environ.get("ONCALL_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_nothing_checked_is_not_called_healthy() -> None:
    text = to_text(Diagnosis("j", None, None, Coverage(0, 0, 0, 0), ()))
    assert text.startswith("? Inconclusive: no rulebook had the evidence it needs\n")
    assert "✔" not in text


def test_colour_changes_nothing_but_colour(two_roots: Diagnosis) -> None:
    coloured = to_text(two_roots, colour=True, explain=True)
    assert "\x1b[" in coloured
    assert ANSI.sub("", coloured) == to_text(two_roots, explain=True)


# Evidence is written by others: any text may come.
words = st.text(max_size=120)
ranks = st.integers(0, 100_000)


@st.composite
def diagnoses(draw: st.DrawFn) -> Diagnosis:
    findings = [
        Finding(
            id=f"F{number}",
            rulebook="hang",
            verdict="H1",
            title=draw(words),
            fault_class="hang",
            severity=draw(st.sampled_from(["critical", "warning", "info"])),
            confidence=draw(st.floats(0, 1)),
            at_ns=draw(st.none() | st.integers(0, 2**63 - 1)),
            blame=(
                *(Blame("rank", {"rank": draw(ranks), "node": draw(words)}) for _ in range(20)),
                Blame("nic", {"nic": draw(words), "node": draw(words)}),
            ),
            case={"job": "j", "comm": draw(words)},
            story=(Step(draw(words), "no", draw(words), "fact", 3, draw(words)),),
            explained_by=draw(st.sampled_from([None, "F1", "F9"])) if number > 1 else None,
            stacks=(Stack(1, draw(words), tuple(draw(st.lists(words, max_size=8)))),),
        )
        for number in range(1, draw(st.integers(1, 9)))
    ]
    gaps = st.builds(
        Gap,
        reason=words,
        nodes=st.lists(words, max_size=30).map(tuple),
        ranks=st.lists(ranks, max_size=200).map(tuple),
    )
    coverage = Coverage(3, 2, 16, 3, gaps=tuple(draw(st.lists(gaps, max_size=12))))
    return Diagnosis(draw(words), 0, 10**18, coverage, tuple(findings), (draw(words),), ("hang",))


@settings(max_examples=60, deadline=None)
@given(diagnosis=diagnoses(), width=st.integers(60, 100))
def test_nothing_is_wider_than_asked_and_nothing_steers_the_terminal(
    diagnosis: Diagnosis, width: int
) -> None:
    text = to_text(diagnosis, width=width)
    assert all(c == "\n" or unicodedata.category(c) not in ("Cc", "Cs") for c in text)
    for line in text.split("\n"):
        assert cell_len(line) <= width, line
        assert line == line.rstrip(" ")
