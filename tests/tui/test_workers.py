"""The session's thread: one call at a time, the newest of its kind, and it ends when asked to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue

import pytest
from textual.message import Message
from textual.message_pump import MessagePump

from oncall.console.evidence_queries import GetRankCard, GetRates
from oncall.console.queries import GetSnapshot, ListJobs
from oncall.console.session import Query
from oncall.core.errors import UsageError
from oncall.tui.shell.messages import Answered, Busy, Question, Refused, SessionThread

from .fake_session import FakeSession

NOBODY: MessagePump = None  # type: ignore[assignment]
PATIENCE_S = 30


class Asker:
    """A thread on a fake session, and what it posted."""

    def __init__(self, session: FakeSession) -> None:
        self.session = session
        self.posted: Queue[Message] = Queue()
        opening = Question("open", lambda each: each, NOBODY, "opening")
        self.thread = SessionThread(lambda: session, opening, self.posted.put)
        self.thread.start()
        assert isinstance(self.answer(), Answered)

    def answer(self) -> Message:
        """The next message that is an answer."""
        while isinstance(message := self.posted.get(timeout=PATIENCE_S), Busy):
            pass
        return message

    def ask_snapshot(self, at_ns: int, group: str = "detail") -> None:
        self.thread.ask(Question(group, GetSnapshot(at_ns), NOBODY, "reading"))

    def block(self, query: Query[object], group: str = "blocking") -> threading.Event:
        """Ask a query that takes until the event is set; returns when it has begun."""
        begun, go_on = threading.Event(), threading.Event()

        def wait(_: object) -> str:
            begun.set()
            assert go_on.wait(PATIENCE_S)
            return "waited"

        self.session.answers[type(query)] = wait
        self.thread.ask(Question(group, query, NOBODY))
        assert begun.wait(PATIENCE_S)
        return go_on


@pytest.fixture
def asker() -> Iterator[Asker]:
    asker = Asker(FakeSession())
    yield asker
    assert asker.thread.stop()
    assert asker.session.closed


def test_of_what_waits_in_a_group_only_the_newest_is_asked(asker: Asker) -> None:
    go_on = asker.block(ListJobs())
    for at_ns in (1, 2, 3):
        asker.ask_snapshot(at_ns)
    asker.ask_snapshot(9, group="other")
    go_on.set()
    answers = [asker.answer() for _ in range(3)]
    assert [one.question.group for one in answers if isinstance(one, Answered)] == [
        "blocking",
        "detail",
        "other",
    ]
    assert [query.at_ns for query in asker.session.asked_for(GetSnapshot)] == [3, 9]


def test_a_detail_does_not_wait_for_a_gather(asker: Asker) -> None:
    go_on = asker.block(ListJobs(), "snapshot")
    asker.thread.ask(Question("card", GetRankCard(5), NOBODY))
    answer = asker.answer()
    assert isinstance(answer, Answered) and answer.question.group == "card"
    assert asker.thread.asks("snapshot")
    go_on.set()
    answer = asker.answer()
    assert isinstance(answer, Answered) and answer.question.group == "snapshot"


def test_a_newer_detail_does_not_interrupt_the_gather(asker: Asker) -> None:
    go_on = asker.block(ListJobs(), "snapshot")
    older = asker.block(GetRates(), "card")
    asker.thread.ask(Question("card", GetRankCard(5), NOBODY))
    older.set()
    answer = asker.answer()
    assert isinstance(answer, Answered) and answer.question.group == "card"
    go_on.set()
    answer = asker.answer()
    assert isinstance(answer, Answered) and answer.value == "waited"


def test_a_newer_question_interrupts_the_older_and_only_its_answer_comes(asker: Asker) -> None:
    asker.session.gate.clear()
    asker.ask_snapshot(1)
    while GetSnapshot(1) not in asker.session.asked:
        pass
    asker.ask_snapshot(2)
    answer = asker.answer()
    assert "snapshots" in asker.session.cancelled
    assert isinstance(answer, Answered)
    assert answer.value.moment.at_ns == 2
    assert asker.posted.empty() or isinstance(asker.posted.get(), Busy)


def test_errors_are_answers_too(asker: Asker) -> None:
    asker.session.fails[GetSnapshot] = UsageError("no")
    asker.ask_snapshot(1)
    refused = asker.answer()
    assert isinstance(refused, Refused)
    assert (str(refused.error), refused.bug) == ("no", False)
    asker.thread.ask(Question("wrong", lambda session: session.nothing, NOBODY))  # type: ignore[attr-defined]
    refused = asker.answer()
    assert isinstance(refused, Refused)
    assert refused.bug
    full = Question("export", lambda _: Path("/dev/full").write_text("x"), NOBODY)
    asker.thread.ask(full)
    refused = asker.answer()
    assert isinstance(refused, Refused)
    assert (str(refused.error), refused.bug) == ("No space left on device", False)
    del asker.session.fails[GetSnapshot]
    asker.ask_snapshot(2)
    assert isinstance(asker.answer(), Answered)


def test_stopping_interrupts_and_closes() -> None:
    asker = Asker(FakeSession())
    asker.session.gate.clear()
    asker.ask_snapshot(1)
    while GetSnapshot(1) not in asker.session.asked:
        pass
    assert asker.thread.stop()
    assert asker.session.closed


def test_what_cannot_be_opened_is_refused_and_the_thread_ends() -> None:
    posted: Queue[Message] = Queue()

    def opener() -> FakeSession:
        raise UsageError("no such file")

    thread = SessionThread(opener, Question("open", lambda each: each, NOBODY), posted.put)
    thread.start()
    messages = [posted.get(timeout=PATIENCE_S) for _ in range(3)]
    assert [type(one) for one in messages] == [Busy, Refused, Busy]
    assert thread.stop()
