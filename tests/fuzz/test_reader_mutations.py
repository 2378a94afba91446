"""Damaged recordings with every run, and thousands by the module itself."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from reader_mutations import Reader, checked, damaged
from recording_samples import samples

from oncall.importers.importers import importers


def test_damaged_recordings_are_read_or_refused() -> None:
    failures = [(one.seed, one.name, one.problem) for one in checked(range(40), samples())]
    assert failures == []


def test_a_seed_makes_the_same_file_again() -> None:
    found = samples()
    assert all(damaged(seed, found) == damaged(seed, found) for seed in range(30))


def test_the_samples_are_of_every_kind() -> None:
    with Reader() as reader:
        kinds = set().union(*map(reader.kinds, samples()))
    assert kinds == {importer.KIND for importer in importers()}
