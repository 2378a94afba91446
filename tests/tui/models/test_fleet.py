"""Ranks as a fleet: how they group, which of them a text means, and where their cells stand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.tui.screens.fleet import model as fleet
from oncall.tui.screens.fleet.layout import lay_out, moved
from oncall.views.snapshot import Ranks, RankState

from ..snapshots import ranks_of


def everyone(ranks: Ranks) -> fleet.Mask:
    return np.ones(len(ranks), dtype=np.bool_)


@pytest.mark.parametrize(
    ("node", "rack"),
    [("r12-n03", "r12"), ("rack7gpu03.example.org", "rack7"), ("dgx-a100-12-03", "dgx-a100-12"),
     ("gpu017", ""), ("login", ""), ("", "")],
)  # fmt: skip
def test_a_host_name_may_tell_its_rack(node: str, rack: str) -> None:
    assert fleet.rack_of(node) == rack


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", list(range(16))),
        ("3", [3]),
        ("2-3,9", [2, 3, 9]),
        ("gpu018", list(range(8, 16))),
        ("GPU018 mlx5_1", [9]),
        ("blamed", [5]),
        ("wait", [13]),
        ("tp2", [4, 5]),
        ("stage:1 gpu018", list(range(8, 16))),
        ("nobody", []),
    ],
)
def test_a_text_narrows_by_every_word(text: str, found: list[int]) -> None:
    ranks = ranks_of(16, {5: RankState.BLAMED, 13: RankState.WAITING})
    assert np.flatnonzero(fleet.matching(ranks, text)).tolist() == found


# -------------------------------------------------------------------- layout


@st.composite
def jobs(draw: st.DrawFn) -> Ranks:
    """Ranks on nodes of any size, some unknown, in groups of any size."""
    count = draw(st.integers(2, 120))
    ranks = ranks_of(count, {}, gpus_per_node=draw(st.integers(1, 40)))
    group = draw(st.lists(st.integers(-1, 5), min_size=count, max_size=count))
    unknown = draw(st.sets(st.integers(0, count - 1), max_size=5))
    node = tuple("" if one in unknown else name for one, name in enumerate(ranks.node))
    return replace(ranks, node=node, groups={"dp": np.array(group), "pp": np.array(group)})


@given(jobs(), st.sampled_from(["node", "stage", "dp", "pp"]), st.integers(30, 200), st.data())
def test_every_shown_rank_has_one_cell_of_its_own(
    ranks: Ranks, by: str, width: int, data: st.DataObject
) -> None:
    shown = np.array(data.draw(st.lists(st.booleans(), min_size=len(ranks), max_size=len(ranks))))
    layout = lay_out(ranks, by, shown, width, 24)
    assert sorted(layout.order.tolist()) == np.flatnonzero(shown).tolist()
    taken = list(zip(layout.row.tolist(), layout.column.tolist(), strict=True))
    assert taken == sorted(set(taken))  # in reading order, no two in one place
    for place, index in enumerate(layout.order.tolist()):
        assert layout.at(int(layout.column[place]), int(layout.row[place])) == index
    for line, labels in layout.labels.items():
        cells = layout.column[layout.row == line].tolist()
        ends = [one.column + len(one.text) for one in labels if one.members is None]
        assert not any(
            one.column <= cell < end
            for one, end in zip(labels, ends, strict=False)
            for cell in cells
        )


@given(jobs(), st.lists(st.tuples(st.integers(-2, 2), st.integers(-30, 30)), max_size=20))
def test_the_cursor_reaches_everything_and_leaves_nothing(
    ranks: Ranks, moves: list[tuple[int, int]]
) -> None:
    layout = lay_out(ranks, "node", everyone(ranks), 60, 10)
    at = moved(layout, None)
    for columns, lines in moves:
        at = moved(layout, at, columns, lines)
        assert at in layout.place
    seen, at = set(), moved(layout, moved(layout, at, -len(ranks)))
    for _ in range(len(ranks)):
        seen.add(at)
        at = moved(layout, at, columns=1)
    assert len(seen) == len(ranks)
