"""No text keeps a pattern of the package busy: each takes time by the length of what it meets."""

from __future__ import annotations

import re

import pytest

from . import patterns
from .patterns import Pattern, superlinear


def test_every_pattern_takes_time_by_the_length_of_a_text() -> None:
    grown = {pattern.text: (pattern.where, superlinear(pattern)) for pattern in patterns.patterns()}
    assert {text: why for text, why in grown.items() if why[1]} == {}


@pytest.mark.parametrize(
    "text",
    [
        r"(?:\w+\s*)+:",  # every way to cut a word
        r"link (?:\w+ \d{1,18}\s*)+",  # what rdma's counters were read with
        r"\|\s*([^|]*?)\s*\|\s*([^|]*?)\s*\|",  # DCGM's table
        r"\S*?([\w.-]+)/ports/\d+",  # the kernel's counters, searched for
        r"\{(?:[^}]*\"(?:log|msg)\": ?\"[^}]*)+\}",
        r"step: \d+ .*tps: \d+",  # from every step to the end of the line
        r"\s*\(\d+\)$",  # from every blank of a row of them
        r"(?:\.(?:log|txt))+$",
        r"\[([^\]]*)\]",
    ],
)
def test_those_that_are_kept_busy_are_found(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "LONG_S", 0.3)
    assert superlinear(Pattern(text, int(re.compile(text).flags), False, "here", False))


@pytest.mark.parametrize(
    "text",
    [
        r"^(?>.*?step: \d+ ).*tps: \d+",
        r"(?<!\s)\s*+\(\d+\)$",
        r"(?:\.(?:log|txt)){1,9}$",
        r"\[([^\[\]]*)\]",
    ],
)
def test_those_that_are_not_are_left_alone(text: str) -> None:
    assert superlinear(Pattern(text, int(re.compile(text).flags), False, "here", False)) is None


def test_all_patterns_are_known_with_how_they_are_used() -> None:
    found = {(one.where.rpartition(":")[0], one.text): one for one in patterns.patterns()}
    # Compiled by a module, by a comprehension within one, by a function, of bytes.
    ethtool = r"NIC statistics:\s*|FEC parameters for (?P<port>\S+):\s*"
    assert found["importers/switches/port_counters.py", ethtool].only_matched
    assert not found["importers/logs/prefixes.py", r"\A(?:\[titan\] )"].only_matched
    assert not found["importers/process_ranks.py", r"(\d{1,18})"].only_matched
    assert found["importers/logs/importer.py", r"\0{64,}"].is_bytes
    # With its flags, and once.
    assert found["importers/strange.py", r"\s*<(?:!doctype html|html)\b"].only_matched
