"""What a front end asks: queries about one job, of a recording or of running nodes.

`session.ask(GetRankCard(rank=3))` returns a RankCard: `queries.py`, `evidence_queries.py` and
`rulebook_queries.py` declare every query with the type of its answer. An answer may block (DuckDB,
files, SSH), so a front end asks in worker threads, one query at a time in each query's lane, so
that a question never waits for a gather.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from oncall.console.cancellation import Lane

if TYPE_CHECKING:
    # Named only: the console's first frame is painted before these are imported.
    from oncall.console.cancellation import Task
    from oncall.console.rulebook_store import RulebookStore
    from oncall.console.source import Shown, Source
    from oncall.views.snapshot import JobLine, Snapshot

Answer = TypeVar("Answer")
AnswerType = TypeVar("AnswerType", covariant=True)


@dataclass(frozen=True)
class Query(ABC, Generic[AnswerType]):
    """Something to ask a session. A subclass is frozen, names the type of its answer, and says how
    it is answered; `lane` is where it waits for its turn."""

    lane: ClassVar[Lane] = "questions"

    @abstractmethod
    def answer(self, session: Answering) -> AnswerType:
        """May block. Raises OncallError with a message to show, Interrupted if cancelled."""


@dataclass(frozen=True)
class EvidenceQuery(Query[AnswerType]):
    """A query about the evidence behind the snapshot returned last, whatever is shown by the time
    it is answered."""

    def answer(self, session: Answering) -> AnswerType:
        with session.question() as (shown, _):
            return self.read(shown)

    @abstractmethod
    def read(self, shown: Shown) -> AnswerType:
        """As `answer`, from what is shown."""


class Session(Protocol):
    """One open recording, or a running job."""

    title: str
    live: bool

    def ask(self, query: Query[Answer]) -> Answer:
        """Answer a query. Raises OncallError with a message to show, Interrupted."""

    def progress(self, lane: Lane = "snapshots") -> str:
        """How far a gather is, or a probe: `17 of 512 hosts answered`. From any thread; never
        blocks."""

    def cancel(self, lane: Lane | None = None) -> None:
        """Interrupt the query of a lane (None: of each), which raises Interrupted. From any
        thread."""

    def close(self) -> None:
        """Close everything: no child process, file or connection stays."""


class Answering(Session, Protocol):
    """A session, as the queries know it."""

    source: Source
    rulebooks: RulebookStore
    shown: Shown | None  # what was returned last, None before the first snapshot

    def task(self, lane: Lane) -> AbstractContextManager[Task]:
        """Something that `cancel` interrupts."""

    def question(self) -> AbstractContextManager[tuple[Shown, Task]]:
        """A task about what is shown, which stays open meanwhile. Raises UsageError before the
        first snapshot."""

    def choose(self, job: str) -> None:
        """All that follows is about this job."""

    def glance(self, job: str) -> JobLine:
        """What a diagnosis of a job says in a line; nothing that is shown changes."""

    def show(self, at_ns: int | None, *, first: bool = False) -> Snapshot:
        """Read and diagnose the evidence at an instant; questions are about that from now on.
        `first`: where that takes long, only why the job stopped, if it did."""

    def judge(self, at_ns: int | None) -> Snapshot:
        """Run all rulebooks on the evidence that was shown `first`, while that is shown."""
