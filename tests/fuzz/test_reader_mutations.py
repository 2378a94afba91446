"""A few hundred damaged recordings with every run; thousands by the module itself."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import reader_mutations


def test_damaged_recordings_are_read_or_refused() -> None:
    found = reader_mutations.samples()
    failures = [failure for seed in range(120) if (failure := reader_mutations.check(seed, found))]
    assert not [(one.seed, one.name, one.problem) for one in failures]


def test_a_seed_makes_the_same_file_again() -> None:
    found = reader_mutations.samples()
    for seed in range(30):
        assert reader_mutations.damaged(seed, found) == reader_mutations.damaged(seed, found)


def test_the_samples_are_of_every_kind() -> None:
    """What is damaged is read while it is whole: every importer has a sample of its own."""
    from oncall.evidence.incident import Incident
    from oncall.ingest.importers import importers

    kinds = set()
    for sample in reader_mutations.samples():
        assert reader_mutations._read(sample) is None
        kinds |= reader_mutations.kinds_read(sample, Incident.empty())
    assert kinds == {importer.KIND for importer in importers()}
