"""Which ranks have the same place in a job: what they call, and whom they exchange data with.

Stages in the middle of a pipeline call the same, and wait differently long by their distance from
its ends. So a place is what a rank calls, what its partners call, what the partners' partners call, and
so on (colour refinement, Weisfeiler and Leman 1968). Ranks of a ring all
have the same place.
"""

from __future__ import annotations

import numpy as np

from oncall.analysis.lost_time.iterations import Iterations
from oncall.analysis.lost_time.programs import ABSENT, NONE, Hashes, Ints, Programs, mixed


def places_of(programs: Programs, iterations: Iterations) -> Ints:
    """The number of each rank's place (r,)."""
    place = iterations.mostly_called
    parts = programs.parts
    known = np.flatnonzero(parts.peer != NONE)
    rank, sends = programs.rank[parts.node[known]], parts.sends[known].astype(np.int64)
    pair = np.unique(np.stack([rank, parts.peer[known], sends]), axis=1)
    rank, peer, sent = pair[0], pair[1], pair[2].astype(np.uint64)
    number, places = _numbered(place)
    while True:
        partner = np.where(peer == ABSENT, np.uint64(1), place[np.maximum(peer, 0)])
        beside = np.zeros(len(place), dtype=np.uint64)
        np.add.at(beside, rank, mixed(partner ^ sent))
        place = mixed(place ^ mixed(beside))
        number, finer = _numbered(place)
        if finer == places:
            return number
        places = finer


def _numbered(place: Hashes) -> tuple[Ints, int]:
    values, number = np.unique(place, return_inverse=True)
    return number, len(values)
