"""An incident that several hold: the last to let go closes it."""

from __future__ import annotations

import threading

from oncall.evidence.incident import Incident


class Shared:
    """Held once by whoever makes it."""

    def __init__(self, incident: Incident) -> None:
        self.incident = incident
        self._holders = 1
        self._lock = threading.Lock()

    def take(self) -> None:
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
