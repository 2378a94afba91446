"""Probes from the console: which nodes ping which, and what is kept for the next snapshots."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall.fleet.merge import add_rows, measured_rows
from oncall.fleet.outcome import Outcome
from oncall.fleet.probe import Probed, why_not_probed
from oncall.render.text import probe as report
from oncall.views.probe import summarise

_MOST_SUSPECTS = 8
_PEERS = 8  # of the suspects: the baseline comes from nodes without suspicion
_MOST_KEPT = 32


def probed_hosts(
    nodes: Sequence[str], outcomes: Mapping[str, Outcome], chance: random.Random
) -> tuple[str, ...]:
    """The hosts of some suspected nodes, and others by chance; those that run the job first.

    `outcomes` by host. Raises UsageError where no node of these names was asked before.
    """
    by_node = {outcome.node: host for host, outcome in outcomes.items()}
    suspects = [by_node[node] for node in nodes if node in by_node][:_MOST_SUSPECTS]
    if not suspects:
        raise UsageError(f"cannot probe {', '.join(nodes)}: not among the queried hosts")
    others = [
        (outcome.kind != "ok", chance.random(), host)
        for host, outcome in outcomes.items()
        if host not in suspects
        and outcome.kind in ("ok", "no-data")
        and why_not_probed(outcome) is None
    ]
    return (*suspects, *(host for *_, host in sorted(others)[:_PEERS]))


class ProbesKept:
    """What was measured of late. Probed in one thread, added to snapshots in another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: deque[Mapping[str, Mapping[str, list[Any]]]] = deque(maxlen=_MOST_KEPT)

    def keep(self, probed: Probed) -> str:
        """Keep it, and tell it as `oncall probe` does. Its incident is closed."""
        with probed.incident as measured:
            rows, summary = measured_rows(measured), summarise(measured.con)
        with self._lock:
            self._kept.append(rows)
        return report.to_text(probed, summary)

    def add_to(self, incident: Incident, since_ns: int | None) -> None:
        """Put into an incident what was measured since then, Unix ns (None: all)."""
        with self._lock:
            kept = tuple(self._kept)
        for rows in kept:
            at_ns = rows["pings"]["at_ns"] if "pings" in rows else ()
            if since_ns is None or max(at_ns, default=0) > since_ns:
                add_rows(incident, rows)

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
