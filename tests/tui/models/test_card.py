"""A rank's card as lines that fit."""

from __future__ import annotations

import pytest

from oncall.core.diagnosis import Stack
from oncall.render.text.lines import cell_len, cut, padded
from oncall.tui.widgets.sheet_table import aligned, fitting_frame
from oncall.views.ranks.rank_card import RankCard
from oncall.views.snapshot import Table


def card(rows: int = 2, total: int = 2) -> RankCard:
    operations = Table(("seq", "op"), tuple((number, "AllReduce") for number in range(rows)), total)
    facts = (("node", "gpu017\x1b[2J"), ("GPU", "5"))
    return RankCard(5, facts, operations, Stack(5, "in data loader", ("wait at loader.py:88",)))


def test_wide_characters_take_two_columns() -> None:
    assert padded("训练", 6) == "训练  "
    assert cut("训练任务", 5) == "训练…"
    assert cut("训练任务", 8) == "训练任务"
    assert cut("gpu", 0) == ""
    table = Table(("name", "seq"), (("训练", 1), ("dp", 2)), 2)
    assert len({cell_len(line) for line in aligned(table, 9)[1:]}) == 1


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (60, "all_reduce at …/torch/distributed/distributed_c10d.py:2943"),
        (52, "all_reduce at …/distributed/distributed_c10d.py:2943"),
        (45, "all_reduce at …/distributed_c10d.py:2943"),
        (10, "all_reduce at …/distributed_c10d.py:2943"),
    ],
)
def test_of_a_frame_that_is_too_long_the_file_and_line_stay(columns: int, said: str) -> None:
    frame = "all_reduce at …/torch/distributed/distributed_c10d.py:2943"
    assert fitting_frame(frame, columns) == said
    assert fitting_frame("no place", 3) == "no place"
