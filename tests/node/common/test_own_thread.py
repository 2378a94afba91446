"""Sources with threads of their own: what comes through, and what one that hangs may hold up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.core.units import NS_PER_S
from oncall.node.agent.agent import Agent
from oncall.node.agent.recorder import Recorder
from oncall.node.common.config import Configuration
from oncall.node.common.log import Log
from oncall.node.common.own_thread import OwnThread, next_due_ns
from oncall.node.common.source import Collected, Instant, read_clock
from oncall.node.store.batch import Batch, of_rows

Until = Callable[[Callable[[], object]], None]
Rows = Callable[[str], list[tuple[object, ...]]]
MINUTE_NS = 60 * NS_PER_S


def hosts(rows: int = 1, at_ns: int = 0) -> Batch:
    return of_rows("hosts", ("node", "at_ns"), [("gpu017", at_ns)] * rows)


class Scripted:
    """A source that does at each reading what a test tells it to."""

    name = "scripted"

    def __init__(self, read: Callable[[], Collected], every_ns: int = NS_PER_S // 1000) -> None:
        self.every_ns = every_ns
        self.readings = 0
        self.threads: set[int] = set()
        self.closed = False
        self._read = read

    def collect(self, now: Instant) -> Collected:  # noqa: ARG002
        self.readings += 1
        self.threads.add(threading.get_ident())
        return self._read()

    def current_state(self, now: Instant) -> Sequence[Batch]:  # noqa: ARG002
        return [hosts(at_ns=self.readings)]

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.closed = True


@pytest.fixture
def run() -> Iterator[Callable[..., tuple[OwnThread, Scripted]]]:
    """A source in its thread, which is over when the test is."""
    made: list[OwnThread] = []

    def make(read: Callable[[], Collected], every_ns: int = 10**6) -> tuple[OwnThread, Scripted]:
        source = Scripted(read, every_ns)
        made.append(OwnThread(source))
        return made[-1], source

    yield make
    for one in made:
        one.close()


def test_rows_come_through_from_one_other_thread(
    run: Callable[..., tuple[OwnThread, Scripted]], until: Until
) -> None:
    thread, source = run(lambda: Collected([hosts(2)], notes=("no device",), dropped=3))
    rows = 0

    def ten_came() -> bool:
        nonlocal rows
        collected = thread.collect(read_clock())
        rows += sum(batch.rows for batch in collected.batches)
        return rows >= 10

    until(ten_came)
    collected = thread.collect(read_clock())
    assert (collected.notes, collected.problems, collected.dropped) == (("no device",), (), 3)
    assert thread.current_state(read_clock())[0].rows == 1
    thread.close()
    assert source.closed and source.threads.isdisjoint({threading.get_ident()})
    assert len(source.threads) == 1


def test_nothing_is_asked_before_the_first_collect(
    run: Callable[..., tuple[OwnThread, Scripted]],
) -> None:
    thread, source = run(Collected)
    thread.close()
    assert source.closed and source.readings == 0


def test_a_source_that_hangs_is_said_and_holds_nothing_up(
    run: Callable[..., tuple[OwnThread, Scripted]], until: Until
) -> None:
    let_go = threading.Event()
    thread, source = run(lambda: (let_go.wait(60), Collected([hosts()]))[1])
    until(lambda: thread.collect(read_clock()) and source.readings)
    soon = read_clock()
    assert thread.collect(soon).problems == ()
    (problem,) = thread.collect(_later(soon)).problems
    assert problem.startswith("does not answer: a reading begun at ")
    assert (problem,) == thread.collect(_later(soon, 2)).problems  # said once, not each second
    let_go.set()
    until(lambda: thread.collect(read_clock()).batches)
    assert thread.collect(read_clock()).problems == ()


def test_one_that_raises_is_said_and_asked_again(
    run: Callable[..., tuple[OwnThread, Scripted]], until: Until
) -> None:
    answers = iter([Collected(notes=("no GPU",)), ZeroDivisionError("oh")])

    def read() -> Collected:
        answer = next(answers, Collected([hosts()]))
        if isinstance(answer, Exception):
            raise answer
        return answer

    output: list[Collected] = []
    thread, _ = run(read, every_ns=50_000_000)

    def rows_came() -> bool:
        output.append(thread.collect(read_clock()))
        return bool(output[-1].batches)

    until(rows_came)
    raised = [each for each in output if each.problems]
    assert {each.problems for each in raised} == {("a bug: ZeroDivisionError: oh",)}
    assert {each.notes for each in raised} == {("no GPU",)}
    assert output[-1].problems == ()


def test_what_nobody_fetches_is_bounded_and_counted(
    run: Callable[..., tuple[OwnThread, Scripted]], until: Until
) -> None:
    begin = threading.Event()
    numbers = iter(range(1, 30))

    def read() -> Collected:
        begin.wait(60)
        return Collected([hosts(1000, number) for number in [next(numbers, 0)] if number])

    thread, source = run(read)
    thread.collect(read_clock())
    begin.set()
    until(lambda: source.readings > 30)
    collected = thread.collect(read_clock())
    assert [batch.columns["at_ns"][0] for batch in collected.batches] == list(range(10, 30))
    assert collected.dropped == 9000


def test_quick_readings_keep_their_rate() -> None:
    every_ns, due_ns = 250, 1000
    for _ in range(10):
        began_ns = due_ns + 1  # woken a little late
        due_ns = next_due_ns(due_ns, began_ns, began_ns + 40, every_ns)
    assert due_ns == 1000 + 10 * 250


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(1, 10**10))
def test_a_slow_source_is_left_alone_as_long_as_it_was_busy_up_to_a_turn(
    late_ns: int, took_ns: int, every_ns: int
) -> None:
    due_ns = 10**15
    began_ns = due_ns + late_ns
    ended_ns = began_ns + took_ns
    pause_ns = next_due_ns(due_ns, began_ns, ended_ns, every_ns) - ended_ns
    assert pause_ns >= min(took_ns, every_ns)
    assert pause_ns <= every_ns


def test_the_collector_goes_on_beside_a_source_that_hangs(
    config: Configuration, sealed_rows: Rows, until: Until
) -> None:
    let_go = threading.Event()
    stuck = Scripted(lambda: (let_go.wait(60), Collected())[1])
    stuck.name = "stuck"
    sound = Scripted(lambda: Collected([hosts()], notes=("no swap",)))
    log = Log()
    recorder = Recorder(config, log)
    now = read_clock()
    clock = [now]
    agent = Agent(config, [OwnThread(stuck), OwnThread(sound)], recorder, log, lambda: clock[0])
    until(lambda: agent.step() or (stuck.readings and sound.readings > 2))
    clock[0] = _later(read_clock())
    agent.step()
    assert any(problem.startswith("does not answer") for problem in agent.problems)
    let_go.set()
    agent.finish()
    stored = dict(sealed_rows("SELECT source, max(error) FROM collectors GROUP BY source"))
    assert str(stored["stuck"]).startswith("does not answer")
    assert stored["scripted"] is None
    assert sealed_rows("SELECT DISTINCT note FROM collectors WHERE source = 'scripted'") == [
        ("no swap",)
    ]
    ((rows,),) = sealed_rows("SELECT count(*) FROM hosts")
    assert isinstance(rows, int) and rows > 2


def _later(now: Instant, times: int = 1) -> Instant:
    return replace(now, monotonic_ns=now.monotonic_ns + times * MINUTE_NS)
