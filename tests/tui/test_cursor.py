"""The time cursor never leaves the evidence, whatever is done to it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncall.core.units import NS_PER_S
from oncall.tui.shell.state import SPEEDS, TimeCursor

FIRST_NS, LAST_NS = 10**18, 10**18 + 600 * NS_PER_S
WHOLE = TimeCursor(first_ns=FIRST_NS, last_ns=LAST_NS)

moves = st.one_of(
    st.builds(lambda n: lambda c: c.stepped(n), st.integers(-100, 100)),
    st.builds(lambda at: lambda c: c.jumped(at), st.integers(0, 2 * 10**18)),
    st.builds(lambda s: lambda c: c.moved(s), st.floats(0, 1000)),
    st.builds(lambda n: lambda c: c.faster(n), st.integers(-9, 9)),
    st.sampled_from([TimeCursor.paused, TimeCursor.played, TimeCursor.following]),
)


@given(st.lists(moves, max_size=20))
def test_the_cursor_stays_within_the_evidence(done: list) -> None:  # type: ignore[type-arg]
    cursor = WHOLE
    for move in done:
        cursor = move(cursor)
        assert cursor.at_ns is None or FIRST_NS <= cursor.at_ns < LAST_NS or not cursor.playing
        assert FIRST_NS <= cursor.shown_ns <= LAST_NS
        assert cursor.speed in SPEEDS
        assert not (cursor.playing and cursor.follows)


@given(st.integers(-50, -1))
def test_a_step_back_and_on_again_is_where_one_was(steps: int) -> None:
    there = WHOLE.stepped(steps)
    assert there.stepped(-1).stepped(1) == there or there.at_ns == FIRST_NS


def test_a_step_is_a_round_time_of_which_sixty_make_the_span() -> None:
    assert WHOLE.step_ns == 10 * NS_PER_S
    assert TimeCursor(None, 0, 3 * NS_PER_S).step_ns == NS_PER_S
    assert TimeCursor(None, 0, 10**6 * NS_PER_S).step_ns == 3600 * NS_PER_S


def test_playing_takes_as_long_as_its_speed_says() -> None:
    playing = WHOLE.played()
    assert playing.at_ns == FIRST_NS
    assert playing.moved(3).at_ns == FIRST_NS + 30 * NS_PER_S
    assert playing.faster(1).moved(3).at_ns == FIRST_NS + 90 * NS_PER_S
    assert playing.moved(60).follows


def test_evidence_without_time_has_nothing_to_move_in() -> None:
    nowhere = TimeCursor()
    assert not nowhere.movable
    for moved in (nowhere.stepped(-1), nowhere.jumped(5), nowhere.played(), nowhere.paused()):
        assert moved == nowhere
