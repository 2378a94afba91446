"""The course of a watch: whatever looks show, one incident is opened once and closed once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncall.core.units import NS_PER_S
from oncall.watch.course import Next, Patience, State, after, announced
from oncall.watch.keeping import Kept, WatchFolder
from oncall.watch.look import Look, Trouble

HUNG = Trouble("hang", "H1", "rank 5", "critical", "hang", "Not-entered hang: rank 5")
OTHER = Trouble("hang", "H1", "rank 6", "critical", "hang", "Not-entered hang: rank 6")
SLOW = Trouble("slow", "S1", "rank 3", "warning", "slow", "Slow: rank 3")
FAILED = Trouble("logs", "FIRST_ERROR", "rank 2", "critical", "application", "failed: rank 2")
PATIENCE = Patience()


@dataclass
class Course:
    """Looks in, announcements out, as a watcher would."""

    state: State = field(default_factory=lambda: State("job"))
    at_ns: int = 0
    sent: list[tuple[str, str, int]] = field(default_factory=list)

    def look(self, *troubles: Trouble, after_s: float = 30, **more: object) -> Next:
        self.at_ns += int(after_s * NS_PER_S)
        look = replace(Look(self.at_ns, troubles), **more)  # type: ignore[arg-type]
        following = after(self.state, look, PATIENCE)
        self.state = following.state
        if following.gather is not None:
            found = replace(look, troubles=look.troubles or self.state.suspected)
            self.state = announced(self.state, following.gather, found)
            assert self.state.incident is not None
            one = self.state.incident
            self.sent.append((following.gather, one.name, one.number))
        if following.closed is not None:
            self.sent.append(("closed", following.closed.name, following.closed.number + 1))
        return following

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.sent]


def test_a_stop_is_looked_at_again_soon_and_what_is_slow_with_the_next_look() -> None:
    course = Course()
    assert course.look(SLOW, mark="1").look_at_ns - course.at_ns == PATIENCE.every_ns
    assert course.look(HUNG, mark="1").look_at_ns - course.at_ns == PATIENCE.confirm_ns


def test_a_changed_verdict_is_an_update_once_it_is_settled() -> None:
    course = Course()
    course.look(HUNG, mark="1")
    course.look(HUNG, mark="1")
    for _ in range(3):
        course.look(OTHER, mark="1", after_s=20)
    assert course.kinds == ["opened"]  # too soon after the first notification
    course.look(OTHER, mark="1", after_s=300)
    course.look(OTHER, mark="1")
    assert course.kinds == ["opened", "updated"]


def test_closed_only_when_it_moves_for_a_while() -> None:
    course = Course()
    course.look(HUNG, mark="1")
    course.look(HUNG, mark="1")
    for _ in range(20):
        course.look(mark="1")  # inconclusive, and nothing moved
    assert course.kinds == ["opened"]
    for number in range(6):
        course.look(mark=f"moved {number}")
    assert course.kinds == ["opened", "closed"]
    assert len({name for _, name, _ in course.sent}) == 1


def test_blindness_never_closes_and_is_reported() -> None:
    course = Course()
    course.look(HUNG, mark="1")
    course.look(HUNG, mark="1")
    for _ in range(30):
        course.look(blind="no node answers")
    assert course.kinds == ["opened", "updated"]


def test_a_job_that_was_never_seen_is_not_reported() -> None:
    course = Course()
    for _ in range(100):
        course.look(blind="no such job")
    assert course.sent == []


def test_an_error_in_a_log_that_goes_on_is_over() -> None:
    course = Course()
    for number in range(5):
        course.look(FAILED, mark=str(number), lasting=True)
    for _ in range(5):
        course.look(FAILED, mark="4", lasting=True)  # a long step
    assert course.sent == []


def test_an_error_in_a_log_that_ends_is_not() -> None:
    course = Course()
    course.look(mark="1", lasting=True)
    course.look(FAILED, mark="2", lasting=True)
    course.look(FAILED, mark="3", lasting=True)  # a step of a neighbour
    course.look(FAILED, mark="3", lasting=True)
    course.look(FAILED, mark="3", lasting=True)
    assert course.kinds == ["opened"]


LOOKS = st.lists(
    st.tuples(
        st.lists(st.sampled_from([HUNG, OTHER, SLOW, FAILED]), unique=True, max_size=2),
        st.integers(0, 3),  # the mark
        st.booleans(),  # sound
        st.booleans(),  # lasting
        st.sampled_from(["", "", "", "no node answers"]),
        st.sampled_from([1, 30, 400]),
        st.booleans(),  # the watch is restarted
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(LOOKS)
def test_whatever_looks_show(
    looks: list[tuple[list[Trouble], int, bool, bool, str, int, bool]],
) -> None:
    with TemporaryDirectory() as place:
        course = Course()
        for troubles, mark, sound, lasting, blind, after_s, restarted in looks:
            seen = () if blind else tuple(troubles)
            course.look(
                *seen,
                after_s=after_s,
                mark="" if blind else str(mark),
                sound=sound and not troubles and not blind,
                lasting=lasting,
                blind=blind,
            )
            if restarted:
                folder = WatchFolder(Path(place))
                folder.save(Kept(course.state))
                read = folder.load("job")
                folder.close()
                assert read.state == course.state
                course.state = read.state
    is_open = ""
    numbers: dict[str, int] = {}
    for kind, name, number in course.sent:
        if kind == "opened":
            assert not is_open and name not in numbers
            is_open = name
        else:
            assert is_open == name
        assert number == numbers.get(name, 0) + 1
        numbers[name] = number
        if kind == "closed":
            is_open = ""
    assert is_open == (course.state.incident.name if course.state.incident else "")


@pytest.mark.parametrize("damage", ["", "{", '{"version": 9}', '{"version": 1}', "[]"])
def test_a_damaged_state_is_put_aside(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state.json").write_text(damage)
    folder = WatchFolder(tmp_path)
    assert folder.load("job") == Kept(State("job"))
    folder.close()
    assert "put aside" in capsys.readouterr().err
    assert (tmp_path / "state.damaged").read_text() == damage
