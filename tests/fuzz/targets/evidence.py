"""Evidence tables that are damaged at random, diagnosed and shown (evidence_mutations)."""

from __future__ import annotations

from ..registry import target


def _seed(seed: int) -> bytes:
    return seed.to_bytes(8, "little")


@target(make=_seed)
def evidence_tables(data: bytes) -> None:
    """A diagnosis of whatever is left, and every report, picture and screen of it."""
    from ..evidence_mutations import mutate_and_diagnose

    mutate_and_diagnose(int.from_bytes(data[:8], "little"))
