"""What is posted between the session's thread, the application and its screens: all frozen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textual.message import Message
from textual.message_pump import MessagePump

from oncall.console.session import Query

if TYPE_CHECKING:
    from oncall.console.cancellation import Lane
    from oncall.console.session import Session
    from oncall.tui.shell.goto import Target
    from oncall.tui.shell.state import State


PROBE, RUN, JUDGEMENT = "probe", "run", "judgement"  # groups of questions


@dataclass(frozen=True)
class Question:
    """Something to ask the session. A newer question of the same `group` takes its place.

    `query` is one query, in its lane, or a function in the lane of questions that asks several and
    does something with the answers. `to` gets `Answered` or `Refused`. `label` is shown meanwhile.
    """

    group: str
    query: Query[Any] | Callable[[Session], Any]
    to: MessagePump
    label: str = ""

    @property
    def lane(self) -> Lane:
        return self.query.lane if isinstance(self.query, Query) else "questions"

    def ask(self, session: Session) -> Any:
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

    def __init__(self, question: Question, value: Any) -> None:
        super().__init__()
        self.question = question
        self.value = value


class Refused(Message, bubble=False):
    """A question that could not be answered. `bug`: the error is an internal one."""

    def __init__(self, question: Question, error: Exception, bug: bool = False) -> None:
        super().__init__()
        self.question = question
        self.error = error
        self.bug = bug


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
