"""Recordings of every format, damaged, and evidence whose rows say what no recorder should.

Both make their inputs from a seed (reader_mutations.py, evidence_mutations.py, which run alone
too); a saved input is that seed.
"""

from __future__ import annotations

import struct
import sys
from functools import cache
from pathlib import Path

from ..registry import target

sys.path.insert(0, str(Path(__file__).parents[1]))  # both are programs of their own, too

from evidence_mutations import mutate_and_diagnose
from reader_mutations import Reader
from recording_samples import Sample, samples

_SEED = struct.Struct("<q")


def _seed(seed: int) -> bytes:
    return _SEED.pack(seed)


def _of(data: bytes) -> int:
    return _SEED.unpack(data.ljust(_SEED.size, b"\0")[: _SEED.size])[0] if data else 0


@cache
def _reader() -> tuple[Reader, list[Sample]]:
    """Made once in a process: its tables take longer than most recordings."""
    return Reader(), samples()


@target(make=_seed)
def damaged_recordings(data: bytes) -> None:
    """A recording of any format, damaged, read as `oncall diagnose` reads it."""
    reader, samples = _reader()
    failure = reader.check(_of(data), samples)
    assert failure is None, (failure.name, failure.problem)


@target(make=_seed)
def mutated_evidence(data: bytes) -> None:
    """An incident with mutated rows, diagnosed and shown in every way there is."""
    outcome = mutate_and_diagnose(_of(data))
    assert outcome.mutations
