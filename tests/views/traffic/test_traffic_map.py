"""Traffic maps: folding keeps every byte, and what is uneven is marked."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oncall.render.svg.traffic import map_svg
from oncall.render.text.lines import plain_lines
from oncall.render.text.traffic import map_lines
from oncall.views.traffic.rate_curves import TrafficMap, folded


def ring(ranks: int, blamed: int = 0) -> TrafficMap:
    sent = np.roll(np.eye(ranks, dtype=np.int64), 1, axis=1) * 2**20
    groups = tuple((rank,) for rank in range(ranks))
    return TrafficMap("a ring", groups, sent, blamed=frozenset({blamed}))


@given(st.integers(1, 200), st.integers(1, 64))
def test_folding_keeps_ranks_and_bytes(ranks: int, most: int) -> None:
    shown = ring(ranks)
    small = folded(shown, most)
    assert len(small.groups) <= most
    assert [rank for group in small.groups for rank in group] == list(range(ranks))
    assert small.bytes.sum() == shown.bytes.sum()
    assert small.received().sum() == shown.received().sum()


def test_a_busy_expert_is_reported() -> None:
    sent = np.full((4, 4), 10 * 2**20)
    sent[:, 2] *= 3
    lines = plain_lines(map_lines(TrafficMap("Sends", ((0,), (1,), (2,), (3,)), sent)))
    assert [line for line in lines if line.endswith(" x")] == [lines[5]]
    assert lines[5].split()[0] == "2" and lines[5].endswith("3 x")


def test_many_ranks_fit_a_terminal_and_say_how_they_were_put_together() -> None:
    lines = plain_lines(map_lines(ring(512, blamed=17), 80))
    assert max(map(len, lines)) <= 80
    assert "each row and column is 32 ranks" in lines[-1]
    assert lines[3].startswith("▶ ")


def test_nothing_between_known_ranks_is_said() -> None:
    empty = TrafficMap("the job", (), np.zeros((0, 0), dtype=np.int64))
    assert "no traffic between known ranks" in plain_lines(map_lines(empty))[0]
    assert "<svg" in map_svg(empty)


def test_bytes_to_unknown_peers_are_reported() -> None:
    shown = TrafficMap("a", ((0,), (1,)), np.array([[0, 5], [5, 0]]), unplaced_bytes=3 * 2**20)
    assert any("3 MiB went to unknown peers" in line for line in plain_lines(map_lines(shown)))
    assert "3 MiB went to unknown peers" in map_svg(shown)
