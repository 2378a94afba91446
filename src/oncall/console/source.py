"""Where a session's evidence comes from: recordings, or nodes that are queried; and what questions
are about: the snapshot on the screen with the evidence behind it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from oncall.console.cancellation import Lane, Task
from oncall.core.errors import UsageError
from oncall.core.scheduler import Scheduler
from oncall.evidence.incident import Incident
from oncall.rules.language.rulebook import Rulebook
from oncall.views.snapshot import HostAnswer, HostTrouble, JobLine, Moment, Snapshot

if TYPE_CHECKING:
    from oncall.fleet.read_only import RemoteCommand


@dataclass(frozen=True)
class Evidence:
    """A job's evidence at an instant. Whoever asked for it closes the incident."""

    incident: Incident
    job: str
    moment: Moment
    hosts: tuple[HostAnswer, ...] = ()
    lost_gateways: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""
    scheduler: Scheduler | None = None  # that placed the job, if known


@dataclass(frozen=True)
class Finer:
    """What one node is asked for: all operations of communicators, or tables alone."""

    comms: tuple[int, ...] = ()
    tables: tuple[str, ...] = ()


class Source(ABC):
    """Methods may block; they raise OncallError. What only running nodes have is empty by default,
    as it is for a recording."""

    title: str
    live: bool = False

    @abstractmethod
    def jobs(self, task: Task) -> tuple[JobLine, ...]:
        """The jobs in this evidence."""

    @abstractmethod
    def choose(self, job: str) -> None:
        """What follows is about this job. Raises UsageError if it is not there."""

    @abstractmethod
    def at(self, at_ns: int | None, task: Task) -> Evidence:
        """The evidence at that instant, Unix ns; None: all of it."""

    @abstractmethod
    def look(self, job: str, task: Task) -> Evidence:
        """All evidence of a job that need not be the chosen one. Raises UsageError where only that
        one can be read."""

    def repeats(self, at_ns: int | None) -> bool:  # noqa: ARG002
        """Whether `again` gives the evidence of that instant, without asking anybody."""
        return True

    def again(self, at_ns: int | None, task: Task) -> Evidence:
        """The evidence that `at` gave last, once more; also while `at` reads other."""
        return self.at(at_ns, task)

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write the whole evidence to an incident file."""

    @abstractmethod
    def close(self) -> None:
        """Close files and connections, and free memory."""

    def troubles(self) -> tuple[HostTrouble, ...]:
        """What is wrong with hosts, by their last answers; queries nothing."""
        return ()

    def progress(self, lane: Lane) -> str:  # noqa: ARG002
        """How far a gather or a probe is; never blocks."""
        return ""

    def pulse(self) -> Mapping[str, int]:
        """By host, how much the chosen job's ranks have recorded so far; empty where nobody says.
        Raises UsageError."""
        return {}

    def refresh(self, task: Task) -> None:  # noqa: B027
        """Gather again."""

    def finer(self, node: str, wanted: Finer, at_ns: int, task: Task) -> Incident | None:  # noqa: ARG002
        """All that the node recorded, where a snapshot at that instant shows a part of it; else
        None. Whoever asked for it closes it."""
        return None

    def probe(self, nodes: tuple[str, ...], task: Task) -> str:  # noqa: ARG002
        """Probe nodes, keep the measurement for later snapshots, and return it as text. Raises
        UsageError."""
        raise UsageError("this is a recording, so there are no nodes to probe")

    def by_hand(self, node: str, command: str) -> tuple[str, ...]:  # noqa: ARG002
        """The words that run a command on a node in the user's own terminal. Raises UsageError."""
        raise UsageError("this is a recording, so there are no nodes to go to")

    def run(self, command: RemoteCommand, task: Task) -> str:  # noqa: ARG002
        """What a command that only reads prints on its host. Raises UsageError."""
        raise UsageError("this is a recording, so there are no nodes to run it on")


class Shown:
    """A snapshot, its evidence, and the rulebooks that judged it.

    Held once by whoever makes it; the last to drop it closes the evidence.
    """

    def __init__(
        self, snapshot: Snapshot, incident: Incident, rulebooks: Sequence[Rulebook]
    ) -> None:
        self.snapshot = snapshot
        self.incident = incident
        self.rulebooks = rulebooks
        self._holders = 1
        self._lock = threading.Lock()

    def hold(self) -> None:
        """Hold it, too. Only while somebody does."""
        with self._lock:
            assert self._holders, "it is already closed"
            self._holders += 1

    def drop(self) -> None:
        """Let go."""
        with self._lock:
            self._holders -= 1
            last = not self._holders
        if last:
            self.incident.close()
