"""Ranks as a fleet: how they group, which of them a text means, and where their cells stand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.core.errors import UsageError
from oncall.tui.screens.fleet import model as fleet
from oncall.tui.screens.fleet.layout import begins_at, heading_text, lay_out, moved, next_at
from oncall.views.snapshot import Ranks, RankState

from ..snapshots import large_snapshot, ranks_of


def everyone(ranks: Ranks) -> fleet.Mask:
    return np.ones(len(ranks), dtype=np.bool_)


@pytest.mark.parametrize(
    ("node", "rack"),
    [("r12-n03", "r12"), ("rack7gpu03.example.org", "rack7"), ("dgx-a100-12-03", "dgx-a100-12"),
     ("gpu017", ""), ("login", ""), ("", "")],
)  # fmt: skip
def test_a_host_name_may_tell_its_rack(node: str, rack: str) -> None:
    assert fleet.rack_of(node) == rack


def test_what_cannot_be_grouped_by_says_why() -> None:
    ranks = replace(ranks_of(16, {}), groups={"tp": np.arange(16) // 2})
    why = fleet.groupings(ranks)
    assert why["node"] == why["tp"] == ""
    assert why["rack"] == "host names such as gpu017 do not contain a rack"
    assert why["stage"] == "no pipeline-parallel communicator was recorded"
    assert fleet.next_grouping(ranks, "node") == "tp"
    assert fleet.next_grouping(ranks, "tp") == "node"


def test_groupings_that_are_passed_over_say_why() -> None:
    ranks = ranks_of(16, {})
    after = fleet.next_grouping(ranks, "node")
    assert fleet.left_out_phrase(ranks, "node", after).startswith("not by rack: host names")
    assert fleet.left_out_phrase(ranks, "tp", "dp") == ""
    assert fleet.left_out_phrase(ranks, "no such order", "dp") == ""


def test_a_stage_is_the_place_in_the_pipeline() -> None:
    ranks = ranks_of(8, {})  # two stages of four
    assert fleet.stages(ranks).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    some = replace(ranks, groups={"pp": np.array([0, 1, -1, 3, 0, 1, 2, 3])})
    assert fleet.stages(some).tolist() == [0, 0, -1, 0, 1, 1, 0, 1]


def test_unknown_groups_and_nodes_have_a_name() -> None:
    ranks = ranks_of(4, {})
    ranks = replace(ranks, node=("a1", "a1", "", ""), groups={"tp": np.array([0, -1, 0, 1])})
    assert fleet.grouped(ranks, "node").labels == ("a1", "node unknown")
    assert fleet.grouped(ranks, "tp").labels == ("tp 0", "tp 1", "no tp")
    assert fleet.grouped(ranks, "tp").code.tolist() == [0, 2, 0, 1]


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


def test_a_role_that_the_job_lacks_is_an_error() -> None:
    with pytest.raises(UsageError, match="no ep communicator"):
        fleet.matching(ranks_of(4, {}), "ep1")


def test_faults_are_who_others_wait_for_and_victims_only_without_those() -> None:
    state = ranks_of(8, {1: RankState.LATE, 2: RankState.UNKNOWN, 3: RankState.WAITING}).state
    assert np.flatnonzero(fleet.faults(state)).tolist() == [1, 2]
    assert fleet.faults(ranks_of(4, {}).state).all()
    assert fleet.counts_phrase(state) == "1 L · 1 ? · 5 H · 1 w"


def test_a_rank_in_words() -> None:
    ranks = ranks_of(16, {5: RankState.BLAMED})
    assert (
        fleet.rank_phrase(ranks, 5)
        == "rank 5 on gpu017 · GPU 5 · mlx5_5 · blamed · tp 2, dp 1, pp 5"
    )
    stuck = replace(ranks, waited_ns=np.full(16, 600 * 10**9))
    assert "blamed, waits for 10 min" in fleet.rank_phrase(stuck, 5)
    hidden = replace(ranks, node=("",) * 16, nic=("",) * 16, gpu=np.full(16, -1), groups={})
    assert fleet.rank_phrase(hidden, 4) == "rank 4 · hung for 10 min"
    assert fleet.rank_phrase(ranks, 16) == ""


# -------------------------------------------------------------------- layout


def test_a_small_job_has_numbered_cells_a_node_a_line() -> None:
    ranks = ranks_of(16, {})
    layout = lay_out(ranks, "node", everyone(ranks), 80, 20)
    assert (layout.cell, layout.height) == (4, 2)
    assert [one.text for one in layout.labels[1]] == ["gpu018"]
    assert layout.at(int(layout.column[0]), 1) == 8


def test_a_large_job_is_packed_and_fills_the_width() -> None:
    ranks = large_snapshot().ranks
    layout = lay_out(ranks, "node", everyone(ranks), 78, 130)
    assert (layout.cell, layout.stack, layout.height) == (1, 1, 128)
    assert len(layout.labels[0]) == 4


@pytest.mark.parametrize(
    ("number", "width", "height", "stack", "lines"),
    [(4096, 140, 35, 1, 32), (4096, 78, 35, 2, 32), (16384, 160, 55, 2, 54)],
)
def test_a_job_that_does_not_fit_is_a_map(
    number: int, width: int, height: int, stack: int, lines: int
) -> None:
    ranks = ranks_of(number, {})
    layout = lay_out(ranks, "node", everyone(ranks), width, height)
    assert (layout.cell, layout.stack, layout.height) == (1, stack, lines)
    assert layout.width <= width
    assert [one.text.strip() for one in layout.labels[0]] == ["gpu017"]
    assert lay_out(ranks, "node", everyone(ranks), width, height, named=True).cell > 2


def test_large_groups_are_sections_that_count_their_members() -> None:
    ranks = large_snapshot().ranks
    layout = lay_out(ranks, "stage", everyone(ranks), 100, 40)
    (heading,) = layout.labels[0]
    assert heading_text(heading, ranks.state) == "stage 0 · 2,048 ranks: 1 X · 1 L · 2,045 H · 1 ."
    assert [one.text for one in layout.labels[layout.stack]][:2] == ["gpu017"]
    assert layout.headings_above(np.array([5, 6])) == [0]
    roomy = lay_out(ranks, "stage", everyone(ranks), 100, 90)
    assert [one.text for one in roomy.labels[1]][:2] == ["gpu017", "gpu018"]


def test_a_missing_gpu_leaves_its_place_free() -> None:
    ranks = ranks_of(16, {})
    shown = everyone(ranks)
    shown[2] = False
    columns = lay_out(ranks, "node", shown, 80, 20).column.tolist()
    assert columns[2] - columns[1] == 2 * (columns[1] - columns[0])


def test_nothing_to_show_is_a_layout_too() -> None:
    ranks = ranks_of(16, {})
    layout = lay_out(ranks, "node", ~everyone(ranks), 80, 20)
    assert layout.height == 0 and layout.at(0, 0) is None
    assert moved(layout, None) is None and next_at(layout, 3, everyone(ranks)) is None


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


def test_down_goes_to_the_cell_below() -> None:
    ranks = ranks_of(32, {})
    layout = lay_out(ranks, "node", everyone(ranks), 80, 20)
    assert moved(layout, 5, rows=1) == 13
    assert moved(layout, 5, rows=-1) == 5
    assert moved(layout, 5, rows=99) == 29


def test_the_next_wanted_goes_around_the_end() -> None:
    ranks = ranks_of(16, {3: RankState.LATE, 9: RankState.UNKNOWN})
    layout = lay_out(ranks, "node", everyone(ranks), 80, 20)
    wanted = fleet.faults(ranks.state)
    assert [next_at(layout, at, wanted) for at in (None, 3, 9)] == [3, 9, 3]
    assert [next_at(layout, at, wanted, -1) for at in (None, 3, 9)] == [9, 9, 3]


def test_the_cursor_begins_on_who_is_blamed_before_who_is_silent() -> None:
    ranks = ranks_of(16, {})
    everywhere = lay_out(ranks, "node", everyone(ranks), 100, 20)
    state = np.full(16, RankState.RUNNING, dtype=np.int64)
    assert begins_at(everywhere, state) == 0
    state[3], state[9] = RankState.UNKNOWN, RankState.BLAMED
    assert begins_at(everywhere, state) == 9
    state[9] = RankState.HUNG
    assert begins_at(everywhere, state) == 3
