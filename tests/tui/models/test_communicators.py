"""Communicators in a list, and one's members against its rounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oncall.tui.screens.communicators import round_grid as model
from oncall.tui.screens.communicators import screen
from oncall.views.ranks.communicators import CommunicatorView
from oncall.views.snapshot import CommunicatorSummary, RankState

from ..snapshots import DP, TP, hang_snapshot


def summary(label: str, behind: int = 0, waiting: int = 0, wait_s: int = -1) -> CommunicatorSummary:
    wait_ns = wait_s * 10**9 if wait_s >= 0 else -1
    return CommunicatorSummary(ord(label[0]), label, label, 8, 5, behind, waiting, wait_ns)


def view(state: list[list[int]], reported: int | None = None, first: int = 10) -> CommunicatorView:
    """Rows are members 0, 1 ...; a member took 100 ms times its rank plus one where done."""
    states = np.array(state, dtype=np.int8).reshape(len(state), -1)
    took = np.where(states == model.DONE, 100_000_000 * (np.arange(len(state)) + 1)[:, None], -1)
    rounds = states.shape[1]
    return CommunicatorView(
        summary=replace(hang_snapshot().communicators[0], size=len(state)),
        ranks=np.arange(len(state)),
        seqs=np.arange(first, first + rounds),
        ops=("AllReduce",) * rounds,
        state=states,
        duration_ns=took.astype(np.int64),
        finding_seq=reported,
        round_bytes=(2**20,) * rounds,
    )


def test_a_text_and_faults_only_narrow_the_list_in_its_order() -> None:
    late, long, calm = summary("a", 1, 3, 10), summary("b", 1, 2, 60), summary("c")
    together = summary("d", 0, 8, 600)  # all are in it: nobody is missing
    everything = (together, late, long, calm)
    assert screen.chosen((calm, *everything[:3])) == everything
    assert screen.chosen([summary("pp_10"), summary("pp_9"), late]) == (
        late, summary("pp_9"), summary("pp_10"),
    )  # fmt: skip
    assert screen.chosen(everything, faults_only=True) == (late, long)
    assert screen.chosen((calm, late), text="C") == (calm,)
    assert screen.chosen((late,), text=hex(late.comm)) == (late,)


def test_progress_in_words() -> None:
    assert screen.progress_phrase(summary("a", 1, 3, 600)) == "1 behind, 3 wait 10 min"
    assert screen.progress_phrase(summary("a", 0, 1)) == "1 waits"
    assert screen.progress_phrase(summary("a")) == "in step"
    assert screen.progress_phrase(replace(summary("a"), entered=-1)) == "no collective recorded"


def test_members_alike_share_a_row_and_who_has_not_come_is_first() -> None:
    rows = model.member_rows(view([[2, 2, 1], [2, 2, 1], [2, 2, 0], [2, 3, 3]]))
    assert [row.ranks for row in rows] == [(2,), (0, 1), (3,)]
    assert rows[1].label == "ranks 0-1"
    assert len(model.member_rows(view([[2, 1], [2, 1]]), folded=False)) == 2


def test_the_reported_round_decides_the_order_wherever_it_stands() -> None:
    reported = view([[2, 0, 2], [2, 1, 2]], reported=11)
    assert model.finding_column(reported) == 1
    assert model.finding_column(replace(reported, finding_seq=99)) == 2  # not among those shown
    assert [row.ranks for row in model.member_rows(reported)] == [(0,), (1,)]
    assert model.shown_states(model.member_rows(reported)[1], 1)[1] == RankState.HUNG


def test_a_communicator_without_rounds_has_members_all_the_same() -> None:
    none = view([[], []])
    assert model.finding_column(none) is None
    assert [row.ranks for row in model.member_rows(none)] == [(0,), (1,)]
    assert model.durations(none).tolist() == []


def test_a_round_in_words() -> None:
    shown = view([[2, 1], [2, 1], [2, 0]])
    assert model.round_lines(shown, 0) == (
        "AllReduce 10 of 1 MiB: 3 of 3 done",
        "took 100 ms to 300 ms (rank 2), median 200 ms · 3.5 MB/s per member",
    )
    assert model.round_lines(shown, 1) == (
        "AllReduce 11 of 1 MiB: 0 of 3 done · ranks 0-1 waiting · rank 2 not entered",
    )


def test_how_long_a_round_took_is_its_longest_member() -> None:
    seconds = model.durations(view([[2, 1], [2, 0]]))
    assert seconds[0] == 0.2 and np.isnan(seconds[1])


def test_a_waiter_is_followed_to_where_it_stands() -> None:
    snapshot = hang_snapshot()
    comm, seq = snapshot.ranks.comm.copy(), snapshot.ranks.seq.copy()
    comm[5], seq[5] = TP, 812
    snapshot = replace(snapshot, ranks=replace(snapshot.ranks, comm=comm, seq=seq))
    row = model.MemberRow((5,), "rank 5", np.zeros(1, dtype=np.int8))
    assert model.elsewhere(snapshot, DP, row.ranks) == (5, TP)
    assert model.where_phrase(snapshot, DP, row) == "rank 5 is blocked in operation 812 of tp 0-1"
    assert model.elsewhere(snapshot, TP, row.ranks) is None
    assert model.elsewhere(snapshot, DP, (0, 1)) is None


def test_the_newest_rounds_are_shown_and_the_cursor_always() -> None:
    assert model.window(100, 40, 99) == (60, 100)
    assert model.window(100, 40, 10) == (10, 50)
    assert model.window(10, 40, 3) == (0, 10)


def test_the_axis_marks_the_reported_round_and_the_cursor() -> None:
    reported = view([[2] * 8], reported=15)
    assert model.axis(reported, 0, 8, 3) == "10 ^ ▼  "
    assert model.axis(reported, 0, 8, 5) == "10   ▼  "
