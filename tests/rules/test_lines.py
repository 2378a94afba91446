"""Rulebooks can be read aloud: no line of one is over 120 columns."""

from __future__ import annotations

from oncall.rules.language.load import rulebook_files, shipped_folder

LONGEST = 120


def test_no_line_of_a_shipped_rulebook_is_too_long() -> None:
    lines = {
        f"{path.name}:{number}"
        for path in rulebook_files(shipped_folder())
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if len(line) > LONGEST
    }
    assert not lines
