"""The generated reference pages are current. If this fails: `make docs`."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncall.cli import reference

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize("name", reference.PAGES)
def test_page_is_current(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == reference.PAGES[name]()


def test_every_page_is_explained() -> None:
    about = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(f"]({name})" in about for name in reference.PAGES)


def test_every_verdict_has_its_page() -> None:
    wanted = {f"{book.name}.{verdict}.md" for book, verdict in reference.verdict_names()}
    assert {path.name for path in (FOLDER / "verdicts").iterdir()} == wanted


@pytest.mark.slow  # each example is a test of a rulebook, run
def test_pages_are_written_where_asked(tmp_path: Path) -> None:
    reference.write(tmp_path / "new")
    assert {path.name for path in (tmp_path / "new").iterdir()} == {*reference.PAGES, "verdicts"}
    for page in (tmp_path / "new" / "verdicts").iterdir():
        assert page.read_text() == (FOLDER / "verdicts" / page.name).read_text(), page.name


def test_no_line_of_help_is_wider_than_80_columns() -> None:
    assert max(map(len, reference.cli_page().splitlines())) <= 80
