"""What is posted between the session's thread, the application and its screens: all frozen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from textual.message import Message
from textual.message_pump import MessagePump

from oncall.console.session import Query
from oncall.core.defects import described

if TYPE_CHECKING:
    from oncall.console.cancellation import Lane
    from oncall.console.session import Session
    from oncall.tui.shell.goto import Target
    from oncall.tui.shell.state import State


PROBE, RUN, JUDGEMENT = "probe", "run", "judgement"  # groups of questions


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
