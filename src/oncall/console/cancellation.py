"""Stops the work of another thread.

The worker enters `with cancellation.task() as task` and names with `task.uses(incident)` what to
interrupt; the block raises Interrupted at its end if it was cancelled. Any other thread calls
`cancellation.cancel()`.

DuckDB forgets an interrupt that arrives between two queries, and rules take an interrupted fact for
a failed one. So the interrupt is repeated until the task ends, and only then reported.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from oncall.core.errors import Interrupted

if TYPE_CHECKING:
    from oncall.evidence.incident import Incident

_AGAIN_S = 0.05

# What is done at the same time: one task in each lane.
Lane = Literal["snapshots", "judgements", "questions", "probes"]
LANES: tuple[Lane, ...] = get_args(Lane)


class Interruptible(Protocol):
    """An incident, or a connection to a database."""

    def interrupt(self) -> None: ...


class Task:
    """A piece of work, and how to stop it."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._stops: list[Callable[[], object]] = []

    def uses(self, computing: Interruptible) -> None:
        """Interrupt this incident if the task is stopped. Raises Interrupted if it has been stopped
        already."""
        self.on_stop(computing.interrupt)

    @contextmanager
    def computing(self, incident: Incident) -> Iterator[None]:
        """As `uses`; where the block fails the incident is closed, and nothing interrupts it any
        more."""
        with incident.handed_on():
            try:
                self.uses(incident)
                yield
            except BaseException:
                self.end()
                raise

    def on_stop(self, stop: Callable[[], object]) -> None:
        """`stop` is called, perhaps more than once, from another thread, but never after the
        task's end. Raises Interrupted."""
        self.check()
        with self._lock:
            self._stops = [stop]

    def check(self) -> None:
        """Raises Interrupted once the task was stopped."""
        if self._stopped.is_set():
            raise Interrupted

    def stop(self) -> None:
        """Stop the task; returns at once."""
        if not self._stopped.is_set():
            self._stopped.set()
            threading.Thread(target=self._insist, name="cancel", daemon=True).start()

    def end(self) -> None:
        """Nothing is stopped from here on."""
        with self._lock:
            self._over.set()
            self._stops = []

    def _insist(self) -> None:
        while not self._over.is_set():
            with self._lock:
                for stop in self._stops:
                    stop()
            self._over.wait(_AGAIN_S)


class Cancellation:
    """Holds the current task, if any."""

    def __init__(self) -> None:
        self._task: Task | None = None

    @contextmanager
    def task(self) -> Iterator[Task]:
        """A task that `cancel` stops. Raises Interrupted at its end if it was stopped."""
        task = self._task = Task()
        try:
            yield task
        except Exception as error:
            task.end()
            if not isinstance(error, Interrupted):
                self._raise_if_stopped(task, error)
            raise
        finally:
            task.end()
            self._task = None
        task.check()

    def cancel(self) -> None:
        """Stop the current task; does nothing without one."""
        task = self._task
        if task is not None:
            task.stop()

    @staticmethod
    def _raise_if_stopped(task: Task, cause: Exception) -> None:
        try:
            task.check()
        except Interrupted as interrupted:
            raise interrupted from cause
