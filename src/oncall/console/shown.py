"""What questions are about: the snapshot on the screen, and the evidence behind it."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from oncall.evidence.incident import Incident
from oncall.rules.language.rulebook import Rulebook
from oncall.views.snapshot import Snapshot


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
