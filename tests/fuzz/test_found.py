"""Inputs that once broke a reader are read, or refused in order, ever since.

A file dropped into `found/<target>/` is a test from then on.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .registry import FOUND, targets


@pytest.mark.parametrize("name", sorted(targets()))
def test_a_target_takes_its_first_input(name: str) -> None:
    target = targets()[name]
    target.run(target.make(0))
    target.run(b"")


@pytest.mark.parametrize(
    "path", sorted(FOUND.glob("*/*.bin")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_what_once_broke_it(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    targets()[path.parent.name].run(path.read_bytes())
    assert capfd.readouterr() == ("", "")


def test_inputs_of_a_seed_are_the_same_each_time() -> None:
    target = targets()["wire_requests"]
    assert [target.make(seed) for seed in range(9)] == [target.make(seed) for seed in range(9)]


def test_every_folder_of_found_inputs_has_its_target() -> None:
    assert {path.parent.name for path in FOUND.glob("*/*.bin")} <= set(targets())
