"""What the cell of a rank says by its width: a letter or a level, its number, a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from oncall.tui.drawing.states import STATES
from oncall.tui.models.rates import value_phrase

if TYPE_CHECKING:
    from oncall.views.ranks.ranks import RankValues
    from oncall.views.snapshot import Ints, Ranks

# By look: the states' letters, behind them the levels of a value, and none.
LETTERS = np.array([*(look.letter for look in STATES), *"0123456789", "·"])


def cell_texts(
    ranks: Ranks, order: Ints, looks: Ints, values: RankValues | None, cell: int
) -> list[str]:
    """The texts of the ranks at `order` (k,), each `cell` columns wide; `looks` (n,)."""
    letters = LETTERS[looks[order]].tolist()
    if cell <= 2:
        return [letter.ljust(cell) for letter in letters]
    if values is not None:
        known = cell if cell >= value_widths(ranks, looks, values)[0] else cell - 2
        texts = _with_values(ranks, order, looks, values)  # of a value no part is shown
        return [text[:known].ljust(cell) for text in texts]
    numbers = ranks.rank[order].tolist()
    return [
        f"{number:>{cell - 2}}{letter} " for number, letter in zip(numbers, letters, strict=True)
    ]


def value_widths(ranks: Ranks, looks: Ints, values: RankValues) -> tuple[int, ...]:
    """Of cells with the rank, the level and the value; with the first two; with the level."""
    texts = _with_values(ranks, np.arange(len(ranks)), looks, values)
    return max(map(len, texts), default=0), len(str(int(ranks.rank.max()))) + 4, 2


def _with_values(ranks: Ranks, order: Ints, looks: Ints, values: RankValues) -> list[str]:
    """`13 9 84 °C`: rank, level and value, of which a narrow cell shows the first two."""
    width = len(str(int(ranks.rank.max()))) if len(ranks) else 1
    phrases = [value_phrase(one, values.unit) for one in values.value[order]]
    longest = max(map(len, phrases), default=0)
    return [
        f"{number:>{width}} {letter} {phrase:<{longest}}  "
        for number, letter, phrase in zip(
            ranks.rank[order].tolist(), LETTERS[looks[order]].tolist(), phrases, strict=True
        )
    ]
