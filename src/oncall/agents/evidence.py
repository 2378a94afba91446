"""The evidence that an agent may ask about: files under some folders, and the nodes if allowed.

Read-only: nothing is written, no node is probed, no stack is taken, and NCCL RAS of a live job,
which a query can crash, is not reached at all.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from oncall.console.opening import open_fleet, open_recording
from oncall.console.queries import GatherSnapshot, GetSnapshot, ListJobs
from oncall.console.rulebook_store import RulebookStore
from oncall.console.session import EvidenceQuery, Session
from oncall.console.source import Shown
from oncall.core.errors import MissingEvidence, OncallError, UsageError
from oncall.core.symptom import Symptom, with_symptom
from oncall.importers.files import walk
from oncall.use_case.front import BlockedCall, blocked_calls
from oncall.views.snapshot import JobLine, Snapshot
from oncall.views.stacks import FoldedStacks, folded

NODES = "nodes"
_MOST_OPEN = 4  # sessions: each holds a copy of its evidence in memory


@dataclass(frozen=True)
class Allowed:
    """What may be read: recordings under `roots`; the nodes of `hosts` or `inventory` if `live`;
    the rulebooks of `rules` and `site`, with `overrides`."""

    roots: tuple[Path, ...]
    live: bool = False
    hosts: str | None = None
    inventory: Path | None = None
    rules: tuple[Path, ...] = ()
    site: Path | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class GetFront(EvidenceQuery[tuple[BlockedCall, ...]]):
    """Who waits for whom."""

    def read(self, shown: Shown) -> tuple[BlockedCall, ...]:
        try:
            return blocked_calls(shown.incident)
        except MissingEvidence:
            raise UsageError("this evidence does not show in which calls ranks wait") from None


@dataclass(frozen=True)
class GetStacks(EvidenceQuery[FoldedStacks]):
    """The stacks in the evidence, folded."""

    def read(self, shown: Shown) -> FoldedStacks:
        try:
            return folded(shown.incident)
        except MissingEvidence:
            raise UsageError(
                "this evidence holds no stacks; a person can take them with `oncall stacks`"
            ) from None


@dataclass(frozen=True)
class _Key:
    evidence: str
    job: str | None


class OpenEvidence:
    """Sessions on what an agent asked about last. One request at a time."""

    def __init__(self, allowed: Allowed) -> None:
        self.rulebooks = RulebookStore(allowed.rules, allowed.overrides, allowed.site)
        self.lock = threading.Lock()
        self._allowed = allowed
        self._open: OrderedDict[_Key, tuple[Session, Snapshot]] = OrderedDict()

    def jobs(self, evidence: str) -> Sequence[JobLine]:
        """The jobs of a recording, or of the nodes. Raises OncallError."""
        session = self._opener(evidence, None, Symptom.UNKNOWN)()
        try:
            return session.ask(ListJobs())
        finally:
            session.close()

    def diagnosed(self, evidence: str, job: str | None, symptom: Symptom) -> Snapshot:
        """Read the evidence anew and diagnose it. Raises OncallError."""
        self._close(_Key(evidence, job))
        return self._session(evidence, job, symptom)[1]

    def session(self, evidence: str, job: str | None) -> tuple[Session, Snapshot]:
        """The session whose diagnosis the agent saw last, else a new one. Raises OncallError."""
        return self._session(evidence, job, Symptom.UNKNOWN)

    def close(self) -> None:
        """Close all evidence."""
        for key in list(self._open):
            self._close(key)

    def _session(
        self, evidence: str, job: str | None, symptom: Symptom
    ) -> tuple[Session, Snapshot]:
        key = _Key(evidence, job)
        if key not in self._open:
            session = self._opener(evidence, job, symptom)()
            try:
                query = GatherSnapshot() if session.live else GetSnapshot()
                self._open[key] = session, session.ask(query)
            except BaseException:
                session.close()
                raise
        self._open.move_to_end(key)
        while len(self._open) > _MOST_OPEN:
            self._close(next(iter(self._open)))
        return self._open[key]

    def _opener(self, evidence: str, job: str | None, symptom: Symptom) -> Callable[[], Session]:
        allowed = self._allowed
        evidence = evidence or (NODES if allowed.live else ".")
        overrides = with_symptom(allowed.overrides, symptom)
        if evidence != NODES:
            path = self._path(evidence)
            return lambda: open_recording([path], job, allowed.rules, overrides, allowed.site)
        if not allowed.live:
            raise UsageError(
                "no nodes may be queried: start `oncall mcp` with --hosts or --slurm-job"
            )
        return lambda: open_fleet(
            allowed.hosts, allowed.inventory, job, allowed.rules, overrides, allowed.site
        )

    def _path(self, evidence: str) -> Path:
        """A file or folder under one of the roots, with all that is in it. Raises UsageError."""
        for root in self._allowed.roots:
            with suppress(OSError, ValueError):
                path = (root / evidence).resolve()
                if path.exists() and path.is_relative_to(root):
                    self._check_links(path)
                    return path
        roots = ", ".join(map(str, self._allowed.roots)) or "none"
        raise UsageError(f"{evidence}: no such evidence; paths lie under: {roots}")

    def _check_links(self, folder: Path) -> None:
        """Raises UsageError if a link in it leads out of the roots; readers follow links."""
        for path in walk(folder) if folder.is_dir() else ():
            if path.is_symlink() and not any(
                map(path.resolve().is_relative_to, self._allowed.roots)
            ):
                raise UsageError(
                    f"{path.relative_to(folder)} is a link that leads out of what may be read; "
                    "remove it, or name what lies beside it"
                )

    def _close(self, key: _Key) -> None:
        found = self._open.pop(key, None)
        if found is not None:
            with suppress(OncallError):
                found[0].close()
