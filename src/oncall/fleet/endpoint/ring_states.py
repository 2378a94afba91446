"""The state of the rings on a node: which processes live, their jobs, and dropped records. Consumes
no records."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import islice
from pathlib import Path
from typing import Any

from oncall.core.errors import OncallError
from oncall.node.rings.ring import RingReader
from oncall.node.rings.unrecorded import in_words, unrecorded
from oncall.node.store.places import rings_dir

_MOST_PROBLEMS = 4
_MOST_LOOKED_AT = 4_096  # anybody may create files there


def ring_states(run: Path) -> dict[str, Any]:
    """Counts of rings `alive`, `ended` and `died`, records `dropped` by those alive, the recording
    ranks by job, processes that are not recorded and why, and unreadable rings."""
    states: Counter[str] = Counter(alive=0, ended=0, died=0, dropped=0)
    jobs: dict[str, list[int]] = defaultdict(list)
    problems: list[str] = []
    for path in sorted(islice(rings_dir(run).glob("*.ring"), _MOST_LOOKED_AT)):
        try:
            with RingReader.open(path, consume=False) as ring:
                state = "alive" if ring.alive else "ended" if ring.closed else "died"
                states[state] += 1
                if state == "alive":
                    states["dropped"] += ring.dropped
                    rank = ring.header.rank
                    jobs[ring.header.job] += [] if rank is None else [rank]
        except (OncallError, OSError) as error:
            problems.append(str(error))
    more = len(problems) - _MOST_PROBLEMS
    shown = problems[:_MOST_PROBLEMS] + ([f"and {more} more rings"] if more > 0 else [])
    return {
        **states,
        "jobs": {job: sorted(ranks) for job, ranks in jobs.items()},
        "unrecorded": list(in_words(unrecorded(rings_dir(run))))[:_MOST_PROBLEMS],
        "problems": shown,
    }
