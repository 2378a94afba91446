"""The thread that owns the session: one question at a time, the newest of its kind first come.

Questions and answers are frozen; nothing else passes. The thread is a daemon, so that a query that
does not let itself be interrupted cannot keep the process alive.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from textual.message import Message

from oncall.errors import OncallError
from oncall.tui.messages import Answered, Busy, Question, Refused

if TYPE_CHECKING:
    from oncall.console.session import Session

_PATIENCE_S = 1.5  # for a call that was told to stop
_BETWEEN_S = 0.1


class SessionThread:
    """Opens a session, asks it what it is told to, and closes it.

    `post` takes messages for the application, from this thread. The first answer is the one to
    `opening`: the session itself.
    """

    def __init__(
        self, opener: Callable[[], Session], opening: Question, post: Callable[[Message], object]
    ) -> None:
        self._opener = opener
        self._opening = opening
        self._post = post
        self._pending: dict[str, Question] = {}  # by group, the oldest first
        self._running: Question | None = opening
        self._superseded = False
        self._closing = False
        self._session: Session | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="session", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(self, question: Question) -> None:
        """Ask soon. What waits or runs in the same group is not worth an answer any more."""
        with self._changed:
            self._pending[question.group] = question
            if self._running is not None and self._running.group == question.group:
                self._interrupt()
            self._changed.notify()

    def asks(self, group: str) -> bool:
        """Whether a question of the group waits or runs."""
        with self._changed:
            running = self._running is not None and self._running.group == group
            return running or group in self._pending

    @property
    def busy(self) -> bool:
        """Whether anything waits or runs, the opening included."""
        with self._changed:
            return bool(self._pending) or self._running is not None

    def interrupt(self) -> None:
        """Give up what runs and what waits."""
        with self._changed:
            self._pending.clear()
            if self._running is not None:
                self._interrupt()

    def stop(self) -> bool:
        """End, with the session closed; returns whether it came to that in time."""
        patient_until_s = time.monotonic() + _PATIENCE_S
        while True:
            with self._changed:
                self._closing = True
                self._pending.clear()
                # Again and again: a call that is about to begin does not hear the first.
                if self._running is not None:
                    self._interrupt()
                self._changed.notify()
            if self._thread.ident is not None:
                self._thread.join(_BETWEEN_S)
            if not self._thread.is_alive() or time.monotonic() > patient_until_s:
                return not self._thread.is_alive()

    def _interrupt(self) -> None:
        self._superseded = True
        if self._session is not None:
            with suppress(Exception):  # it may be about to end by itself
                self._session.cancel()

    # ------------------------------------------------------- within the thread

    def _run(self) -> None:
        try:
            if self._answer(self._opening, self._open):
                while (question := self._next()) is not None:
                    session = self._session
                    assert session is not None
                    self._answer(question, lambda: question.ask(session))  # noqa: B023
        finally:
            if self._session is not None:
                with suppress(Exception):  # nobody is left to be told
                    self._session.close()

    def _open(self) -> Session:
        self._session = self._opener()
        return self._session

    def _next(self) -> Question | None:
        with self._changed:
            while not self._pending and not self._closing:
                self._changed.wait()
            if self._closing:
                return None
            self._running = self._pending.pop(next(iter(self._pending)))
            self._superseded = False
            return self._running

    def _answer(self, question: Question, call: Callable[[], object]) -> bool:
        """Call, and post what came of it; returns whether it went well."""
        self._tell(Busy(question.label))
        message: Message
        try:
            message = Answered(question, call())
        except OncallError as error:
            message = Refused(question, error)
        except Exception as error:
            message = Refused(question, error, bug=True)
        with self._changed:
            self._running = None
            unwanted = self._superseded
        if not unwanted:
            self._tell(message)
        self._tell(Busy(""))
        return isinstance(message, Answered)

    def _tell(self, message: Message) -> None:
        if not self._closing:
            with suppress(RuntimeError):  # the application's loop has ended
                self._post(message)
