"""Which rounds a thinned selection keeps: the same ones wherever it is made.

A round is kept at step 2^k by its number alone, so all members of a communicator keep the same
rounds without a word between them, and what is kept at a larger step is kept at every smaller one.
Not every 2^k-th: a training step repeats its calls, so that a fixed stride may meet only one of
them for ever. Multiples of the golden ratio, modulo one, are spread as evenly and
keep step with no pattern (Weyl; Knuth's multiplicative hash).
"""

from __future__ import annotations

_TURN = 2**32
_GOLDEN = 2_654_435_769  # 2^32 divided by the golden ratio
_MASK = 2**31 - 1  # keeps the product within 63 bits


def number(row: str) -> str:
    """SQL: the number by which `row` of ops is sampled. Both sides of a Send and a Recv count
    their pair alike; each counts its own calls differently."""
    return f"coalesce(CASE WHEN {row}.kind = 'p2p' THEN {row}.pair_seq END, {row}.seq, 0)"


def is_sampled(number: str, step: str) -> str:
    """SQL: whether a round of that number is kept at `step`, a power of two."""
    return f"((({number} & {_MASK}) * {_GOLDEN}) & {_TURN - 1}) < {_TURN} // {step}"
