"""What is posted between the session's threads, the application and its screens, all frozen; and
these threads: one each for snapshots, for rulebooks that take long, for probes, and for all other
questions, so that who asks about what is under the cursor does not wait for a gather.

Each asks one question at a time, the newest of its kind first come. The threads are daemons, so
that a query that does not let itself be interrupted cannot keep the process alive.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from textual.message import Message
from textual.message_pump import MessagePump

from oncall.console.session import Query
from oncall.core.defects import described
from oncall.core.errors import OncallError, of_system

if TYPE_CHECKING:
    from oncall.console.cancellation import Lane
    from oncall.console.session import Session
    from oncall.tui.shell.goto import Target
    from oncall.tui.shell.state import State

# Groups of questions.
PROBE, RUN, JUDGEMENT, GLANCE, PULSE = "probe", "run", "judgement", "glance", "pulse"


Answer = TypeVar("Answer")


def _ignore(_: object) -> None:
    """Nobody waits for it."""


@dataclass(frozen=True)
class Question(Generic[Answer]):
    """Something to ask the session. A newer question of the same `group` takes its place.

    `query` is one query, in its lane, or a function in the lane of questions that asks several and
    does something with the answers. `to`, in its turn, does `take` with the answer, or `refused`
    with the error. `label` is shown meanwhile.
    """

    group: str
    query: Query[Answer] | Callable[[Session], Answer]
    to: MessagePump
    label: str = ""
    take: Callable[[Answer], object] = _ignore
    refused: Callable[[Refused], object] = _ignore

    @property
    def lane(self) -> Lane:
        return self.query.lane if isinstance(self.query, Query) else "questions"

    def ask(self, session: Session) -> Answer:
        """The answer; blocks. Raises what the session raises."""
        return session.ask(self.query) if isinstance(self.query, Query) else self.query(session)


@dataclass(frozen=True)
class Copy:
    """Something that `y` can copy. `text` is asked of the session if it is a query."""

    key: str
    title: str
    text: str | Query[str]


class Answered(Message, bubble=False):
    """A question's answer."""

    def __init__(self, question: Question[Any], value: Any) -> None:
        super().__init__()
        self.question = question
        self.value = value


class Refused(Message, bubble=False):
    """A question that could not be answered. `bug`: the error is an internal one."""

    def __init__(self, question: Question[Any], error: Exception, bug: bool = False) -> None:
        super().__init__()
        self.question = question
        self.error = error
        self.bug = bug

    @property
    def text(self) -> str:
        return described(self.error) if self.bug else str(self.error)


class Busy(Message):
    """What one of the session's threads does now, and which; empty: nothing."""

    def __init__(self, label: str, lane: Lane = "snapshots") -> None:
        super().__init__()
        self.label = label
        self.lane = lane

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, Busy)


class StateChanged(Message):
    """There is something new to show; of several only the last is worth it."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self.state = state

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, StateChanged)


class GoTo(Message):
    """Put the cursor on something."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target


_PATIENCE_S = 1.5  # for a call that was asked to stop
_BETWEEN_S = 0.1


class _Lane:
    """What one thread asks now, and what it still has to ask."""

    def __init__(self, name: Lane, run: Callable[[_Lane], None]) -> None:
        self.name: Lane = name
        self.pending: dict[str, Question[Any]] = {}  # by group, the oldest first
        self.running: Question[Any] | None = None
        self.superseded = False
        self.thread = threading.Thread(target=run, args=(self,), name=name, daemon=True)

    @property
    def busy(self) -> bool:
        return bool(self.pending) or self.running is not None


class SessionThread:
    """Opens a session, asks it the questions it receives, and closes it.

    `post` takes messages for the application, from these threads. The first answer is the one to
    `opening`: the session itself.
    """

    def __init__(
        self,
        opener: Callable[[], Session],
        opening: Question[Session],
        post: Callable[[Message], object],
    ) -> None:
        self._opener = opener
        self._opening = opening
        self._post = post
        self._closing = False
        self._session: Session | None = None
        self._changed = threading.Condition()
        self._snapshots = _Lane("snapshots", self._run_snapshots)
        others: tuple[Lane, ...] = ("judgements", "questions", "probes")
        self._others = tuple(_Lane(name, self._run_lane) for name in others)
        self._lanes = (self._snapshots, *self._others)
        self._snapshots.running = opening

    def start(self) -> None:
        self._snapshots.thread.start()

    def ask(self, question: Question[Any]) -> None:
        """Ask soon. What waits or runs in the same group is not worth an answer any more."""
        with self._changed:
            lane = next(one for one in self._lanes if one.name == question.lane)
            lane.pending[question.group] = question
            if lane.running is not None and lane.running.group == question.group:
                self._interrupt(lane)
            self._changed.notify_all()

    def drop(self, group: str) -> None:
        """Nobody wants an answer to what waits or runs in the group any more."""
        with self._changed:
            for lane in self._lanes:
                lane.pending.pop(group, None)
                if lane.running is not None and lane.running.group == group:
                    self._interrupt(lane)

    def asks(self, group: str) -> bool:
        """Whether a question of the group waits or runs."""
        with self._changed:
            return any(
                group in lane.pending or (lane.running is not None and lane.running.group == group)
                for lane in self._lanes
            )

    @property
    def busy(self) -> bool:
        """Whether anything waits or runs, the opening included."""
        with self._changed:
            return any(lane.busy for lane in self._lanes)

    def progress(self, lane: Lane = "snapshots") -> str:
        """How far what takes long is, in a few words."""
        return self._session.progress(lane) if self._session is not None else ""

    def stop(self) -> bool:
        """End, with the session closed; returns whether it came to that in time."""
        patient_until_s = time.monotonic() + _PATIENCE_S
        thread = self._snapshots.thread  # the last to end
        while True:
            with self._changed:
                self._closing = True
                # Again and again: a call that is about to begin does not hear the first.
                for lane in self._lanes:
                    lane.pending.clear()
                    if lane.running is not None:
                        self._interrupt(lane)
                self._changed.notify_all()
            if thread.ident is not None:
                thread.join(_BETWEEN_S)
            if not thread.is_alive() or time.monotonic() > patient_until_s:
                return not thread.is_alive()

    def _interrupt(self, lane: _Lane) -> None:
        lane.superseded = True
        if self._session is not None:
            with suppress(Exception):  # it may be about to end by itself
                self._session.cancel(lane.name)

    # ------------------------------------------------------ within the threads

    def _run_snapshots(self, lane: _Lane) -> None:
        """Open the session, ask for snapshots, and close it once nobody asks any more."""
        try:
            if self._answer(lane, self._opening, self._open):
                for other in self._others:
                    other.thread.start()
                self._run_lane(lane)
                for other in self._others:
                    other.thread.join(_PATIENCE_S)
        finally:
            if self._session is not None:
                with suppress(Exception):  # nobody is left to report to
                    self._session.close()

    def _run_lane(self, lane: _Lane) -> None:
        while (question := self._next(lane)) is not None:
            session = self._session
            assert session is not None
            self._answer(lane, question, lambda: question.ask(session))  # noqa: B023

    def _open(self) -> Session:
        self._session = self._opener()
        return self._session

    def _next(self, lane: _Lane) -> Question[Any] | None:
        with self._changed:
            while not lane.pending and not self._closing:
                self._changed.wait()
            if self._closing:
                return None
            lane.running = lane.pending.pop(next(iter(lane.pending)))
            lane.superseded = False
            return lane.running

    def _answer(self, lane: _Lane, question: Question[Any], call: Callable[[], object]) -> bool:
        """Call, and post the outcome; returns whether it succeeded."""
        self._tell_busy()
        message: Message
        try:
            message = Answered(question, call())
        except OncallError as error:
            message = Refused(question, error)
        except OSError as error:
            message = Refused(question, of_system(error))
        except Exception as error:
            message = Refused(question, error, bug=True)
        with self._changed:
            lane.running = None
            unwanted = lane.superseded
        if not unwanted:
            self._tell(message)
        self._tell_busy()
        return isinstance(message, Answered)

    def _tell_busy(self) -> None:
        """What is being done: of two things the one that takes longer as a rule."""
        with self._changed:
            doing = [
                (lane.running.label, lane.name)
                for lane in self._lanes
                if lane.running is not None and lane.running.label
            ]
            # Within the lock: of two threads the later must not report first.
            self._tell(Busy(*doing[0]) if doing else Busy(""))

    def _tell(self, message: Message) -> None:
        if not self._closing:
            with suppress(RuntimeError):  # the application's loop has ended
                self._post(message)
