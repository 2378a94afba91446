"""The list of slow tests names tests that exist: a test renamed would run by default again."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).parents[1]


def test_every_slow_test_exists() -> None:
    listed = (REPOSITORY / "tests" / "slow.txt").read_text(encoding="utf-8").splitlines()
    assert listed == sorted(set(listed))
    for one in listed:
        path, _, name = one.partition("::")
        source = (REPOSITORY / path).read_text(encoding="utf-8")
        assert f"def {name.partition('[')[0]}(" in source, one
