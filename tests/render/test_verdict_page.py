"""The page of a verdict: what it is, the ways to it, what excludes it, an example that was run."""

from __future__ import annotations

import re

import pytest

from oncall.core.errors import UsageError
from oncall.render.verdict_page import pages, verdict_page
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.rules.language.rulebook import Rulebook


@pytest.fixture(scope="module")
def books() -> list[Rulebook]:
    return load_rulebooks([shipped_folder()])


def test_a_page_says_what_leads_to_a_verdict_and_what_else_there_is(books: list[Rulebook]) -> None:
    (page,) = pages("hang.H2", books)
    assert "| kind | an effect: what the job lost |" in page
    stopped = "- Is the job hung (at least 90 % likely)? **Yes.**"
    assert f"{stopped} Otherwise STANDSTILL.\n- One of these is found:\n" in page
    assert "  - **mismatch**: ‹ranks› called ‹called›; the others: ‹others›. Calls numbered" in page
    assert "the first that `oncall rules show hang` lists is given" in page
    assert "- NCCL operations" in page
    assert "```text\nCRITICAL  " in page


def test_a_code_is_named_and_former_names_find_the_page(books: list[Rulebook]) -> None:
    (page,) = pages("reported.GPU_XID", books)
    assert "  - **xid**: ‹reason›: ‹text› (‹place›). ‹consequences›" in page
    assert "  - **gpu fault**: ‹about›: ‹meaning›" in page
    assert page == pages("faults.GPU_XID", books)[0] == pages("gpu_xid", books)[0]


def test_no_page_names_facts_or_columns(books: list[Rulebook]) -> None:
    for book in books:
        for verdict in book.book.verdicts:
            page = verdict_page(book, verdict, None)
            given = page[page.index("## When it is given") : page.index("## What it reads")]
            assert not re.search(r"\b[a-z]+_[a-z_]+\b", given), given


def test_a_verdict_that_is_none_is_an_error_with_the_name_that_is_near(
    books: list[Rulebook],
) -> None:
    with pytest.raises(UsageError, match="GPU_XID"):
        pages("GPU_XIT", books)
    with pytest.raises(UsageError, match=r"one of its verdicts: .*H1, H2, H3"):
        pages("hang", books)
