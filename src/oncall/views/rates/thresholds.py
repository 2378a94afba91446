"""The numbers by which a rulebook compares rates, as far as a chart can show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from oncall.rules.language.rulebook import Rulebook
from oncall.views.rates.buckets import BASELINE_NS, BASELINE_PART, Floats


@dataclass(frozen=True)
class RateThresholds:
    """The baseline is of the first `baseline_part`-th of the time, `baseline_ns` at most; who is
    below `rate_below` of its peers' mean rate is singled out (None: nobody is)."""

    baseline_part: float = BASELINE_PART
    baseline_ns: float = BASELINE_NS
    rate_below: float | None = None

    @classmethod
    def of(cls, rulebooks: Sequence[Rulebook]) -> RateThresholds:
        """As the rulebook that declares `draw: rates` has it, a site's own values included."""
        drawn = (one for one in rulebooks if one.book.draw == "rates" and one.enabled)
        book = next(drawn, None)
        if book is None:
            return cls()
        values = {
            name: quantity.value
            for name, quantity in book.params.items()
            if isinstance(quantity.value, int | float)
        }
        below = values.get("rate_below")
        return cls(
            # A site may write 0, which is no part.
            baseline_part=max(1.0, float(values.get("baseline_part", BASELINE_PART))),
            baseline_ns=float(values.get("baseline_for", BASELINE_NS)),
            rate_below=None if below is None else float(below),
        )

    def threshold(self, rank: int, measured: Mapping[int, Floats]) -> float | None:
        """Below which rate the rank is singled out among others, by rank; None without others."""
        others = [value[~np.isnan(value)] for other, value in measured.items() if other != rank]
        known = np.concatenate([np.empty(0), *others])
        if self.rate_below is None or not len(known):
            return None
        return self.rate_below * float(known.mean())
