"""No text keeps a pattern of the package busy: none takes more than about the square of a line."""

from __future__ import annotations

import re

import pytest

from .patterns import Pattern, attacks, endless, patterns

# A pattern that takes the square of these characters takes 0.06 s of CPU at most, one that takes
# the cube two and more, and who tries every way to cut them has no end.
_CHARACTERS = 2_048
_MOST_S = 0.6


def _attacked(pattern: Pattern) -> str | None:
    """An attack that succeeds."""
    texts = attacks(pattern, _CHARACTERS)
    return next((text for text in texts if endless(pattern, text, _MOST_S)), None)


def test_no_pattern_is_kept_busy_by_a_line() -> None:
    found = patterns()
    kept_busy = {pattern.where: (pattern.text, _attacked(pattern)) for pattern in found}
    assert {place: why for place, why in kept_busy.items() if why[1]} == {}


@pytest.mark.parametrize(
    "text",
    [
        r"(?:\w+\s*)+:",  # every way to cut a word
        r"link (?:\w+ \d{1,18}\s*)+",  # what rdma's counters were read with
        r"\|\s*([^|]*?)\s*\|\s*([^|]*?)\s*\|",  # DCGM's table
        r"\S*?([\w.-]+)/ports/\d+",  # the kernel's counters, searched for
        r"\{(?:[^}]*\"(?:log|msg)\": ?\"[^}]*)+\}",
    ],
)
def test_those_that_are_kept_busy_are_found(text: str) -> None:
    assert _attacked(Pattern(text, int(re.compile(text).flags), False, "here", False))


def test_all_patterns_are_known_with_how_they_are_used() -> None:
    found = {(one.where.rpartition(":")[0], one.text): one for one in patterns()}
    # Compiled by a module, by a comprehension within one, by a function, of bytes.
    assert found["importers/switches/port_counters.py", r"NIC statistics:\s*"].only_matched
    assert not found["importers/logs/prefixes.py", r"\[titan\] "].only_matched
    assert not found["importers/process_ranks.py", r"(\d{1,18})"].only_matched
    assert found["importers/logs/recognition.py", r"\0{64,}"].is_bytes
