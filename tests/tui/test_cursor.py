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


def test_evidence_without_time_has_nothing_to_move_in() -> None:
    nowhere = TimeCursor()
    assert not nowhere.movable
    for moved in (nowhere.stepped(-1), nowhere.jumped(5), nowhere.played(), nowhere.paused()):
        assert moved == nowhere
