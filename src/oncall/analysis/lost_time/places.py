"""Which ranks have the same place in a job: what they call, and whom they exchange data with.

Stages in the middle of a pipeline call the same, and wait differently long by their distance from
its ends. So ranks are told apart by their own calls, by those of their partners, by those of the
partners' partners, and so on (colour refinement, Weisfeiler and Leman 1968). Ranks of a ring all
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
    told = np.flatnonzero(parts.peer != NONE)
    rank = programs.rank[parts.node[told]]
    pair = np.unique(np.stack([rank, parts.peer[told], parts.sends[told].astype(np.int64)]), axis=1)
    rank, peer, sends = pair[0], pair[1], pair[2].astype(np.uint64)
    number, places = _numbered(place)
    while True:
        partner = np.where(peer == ABSENT, np.uint64(1), place[np.maximum(peer, 0)])
        beside = np.zeros(len(place), dtype=np.uint64)
        np.add.at(beside, rank, mixed(partner ^ sends))
        place = mixed(place ^ mixed(beside))
        number, finer = _numbered(place)
        if finer == places:
            return number
        places = finer


def _numbered(place: Hashes) -> tuple[Ints, int]:
    values, number = np.unique(place, return_inverse=True)
    return number, len(values)
