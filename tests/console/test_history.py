"""What is kept of earlier gathers stays within bounds, however long a session lasts."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from oncall.console.history import APART_NS, Gathered, History
from oncall.core.units import NS_PER_S
from oncall.fleet.merge import Answers

SIZE = 1000


def gathered(folder: Path, at_ns: int, *, whole: bool = False) -> Gathered:
    place = folder / str(at_ns)
    place.mkdir(parents=True)
    (place / "part").write_bytes(b"x" * SIZE)
    return Gathered("job", at_ns - 600 * NS_PER_S, at_ns, Answers((), {}, {}), place, whole)


def test_hours_of_gathers_take_a_bounded_place(tmp_path: Path) -> None:
    history = History(most_bytes=50 * SIZE, most_kept=100)
    at_ns = 10**18
    for _ in range(6 * 3600 // 5):
        at_ns += 5 * NS_PER_S
        history.add(gathered(tmp_path, at_ns))
        assert len(history) <= 50 and history.bytes <= 50 * SIZE
    assert len(list(tmp_path.iterdir())) == len(history)
    assert history.newest is not None and history.newest.at_ns == at_ns
    # About one a minute: the last three quarters of an hour can be gone back to.
    for back_s in range(0, 45 * 60, 90):
        assert history.covering(at_ns - back_s * NS_PER_S) is not None
    history.clear()
    assert list(tmp_path.iterdir()) == [] and history.newest is None


def test_the_newest_stays_however_large(tmp_path: Path) -> None:
    history = History(most_bytes=1)
    for at_ns in (10**18, 2 * 10**18):
        history.add(gathered(tmp_path, at_ns))
    assert [path.name for path in tmp_path.iterdir()] == [str(2 * 10**18)]


def test_only_what_is_whole_and_reaches_there_tells_as_much_as_asking(tmp_path: Path) -> None:
    one = gathered(tmp_path, 10**18, whole=True)
    assert one.covers(10**18) and one.covers(10**18 - 600 * NS_PER_S)
    assert not one.covers(10**18 + 1) and not one.covers(10**18 - 601 * NS_PER_S)
    assert not gathered(tmp_path / "thin", 10**18).covers(10**18)


@given(st.lists(st.integers(1, 100), min_size=2, max_size=60))
def test_the_kept_are_in_order_and_a_minute_apart_but_for_the_newest(steps_s: list[int]) -> None:
    history = History()
    at_ns = 10**18
    for step_s in steps_s:
        at_ns += step_s * NS_PER_S
        history.add(Gathered("job", None, at_ns, Answers((), {}, {}), Path("/nowhere"), False))
    instants = [one.at_ns for one in history._kept]
    assert instants == sorted(instants) and instants[-1] == at_ns
    gaps = [b - a for a, b in pairwise(instants[:-1])]
    assert all(gap >= APART_NS for gap in gaps)
