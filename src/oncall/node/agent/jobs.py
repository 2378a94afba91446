"""The jobs whose operations a collector has seen: known to any thread at once, without a question
to the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from oncall.evidence.columns import ColumnData, Words
from oncall.node.store.batch import Batch

_INSTANTS = ("enqueued_ns", "started_ns", "ended_ns", "observed_ns")
_MOST = 100  # jobs, the last seen: an endpoint reads older ones from the shards


class Jobs:
    """Jobs by name, as `answer.jobs_seen` has them; `see` is for one thread alone."""

    def __init__(self) -> None:
        self.seen: Mapping[str, Mapping[str, Any]] = {}

    def see(self, batches: Sequence[Batch]) -> None:
        """Rows on their way into the store."""
        for batch in batches:
            if batch.table == "ops" and batch.rows:
                self._see(batch)

    def _see(self, batch: Batch) -> None:
        job, ranks = batch.columns["job"], batch.columns["rank"]
        seen = {name: dict(was) for name, was in self.seen.items()}
        last_ns = max((_newest(batch.columns.get(name)) for name in _INSTANTS), default=0)
        for number, name in enumerate(job.vocabulary if isinstance(job, Words) else [job]):
            here = ranks[job.codes == number] if isinstance(job, Words) else ranks
            was = seen.setdefault(name, {"last_ns": last_ns, "ranks": []})
            was["last_ns"] = max(was["last_ns"], last_ns)
            was["ranks"] = sorted({*was["ranks"], *np.unique(here).tolist()})
        newest = sorted(seen.items(), key=lambda one: one[1]["last_ns"])[-_MOST:]
        self.seen = dict(newest)


def _newest(instants: ColumnData) -> int:
    """The newest of a column's instants; 0 if it has none."""
    if instants is None:
        return 0
    newest = np.ma.max(instants)
    return 0 if newest is np.ma.masked else int(newest)
