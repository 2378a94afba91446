"""Arrays by what they hold, and tables of them: a column is an array, a row a place in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Columns:
    """A frozen dataclass of arrays of one length."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))  # type: ignore[arg-type]

    def where(self, chosen: Bools | Ints) -> Self:
        """Only the chosen rows; by their index in its order, and its shape."""
        names = [item.name for item in fields(self)]  # type: ignore[arg-type]
        return type(self)(**{name: getattr(self, name)[chosen] for name in names})

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """All rows of all parts, of which there is one at least."""
        names = [item.name for item in fields(cls)]  # type: ignore[arg-type]
        each = {name: [getattr(part, name) for part in parts] for name in names}
        return cls(**{name: np.concatenate(column) for name, column in each.items()})


def changes(*columns: NDArray[Any]) -> Bools:
    """Where a row differs in any column from the one before; the first one does."""
    new = np.zeros(len(columns[0]), dtype=np.bool_)
    new[:1] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return new


def lost_runs(rng: np.random.Generator, rows: int, share: float, mean_run: float) -> Bools:
    """(rows,): about this share of them, lost in runs of `mean_run` rows on average."""
    index = np.arange(rows)
    begins = rng.random(rows) < share / mean_run
    lengths = rng.geometric(1 / mean_run, size=rows)
    lost: Bools = index < np.maximum.accumulate(np.where(begins, index + lengths, 0))
    return lost
