"""The lab's algorithms: what is sent is the least there is, and nothing leaves before it came."""

from __future__ import annotations

import numpy as np
import pytest

from oncall_lab.network.collective import ALGORITHMS, NONE, messages_of
from oncall_lab.training.algorithm import shape_of

MEMBERS = {"RING": (2, 3, 5, 8, 12), "HALVING_DOUBLING": (2, 4, 8, 16)}
CASES = [(*kind, members) for kind in sorted(ALGORITHMS) for members in MEMBERS[kind[0]]]


@pytest.mark.parametrize(("algorithm", "op", "members"), CASES)
def test_members_send_the_least_there_is_and_only_what_has_come(
    algorithm: str, op: str, members: int
) -> None:
    largest = 1 << 20
    played = messages_of(algorithm, op, members, largest)
    # A ring passes on one share a step, halving and doubling begins with half of the buffer.
    whole = largest * (members if algorithm == "RING" else 2)
    turns = 2 if op == "AllReduce" else 1
    for ends in (played.src, played.dst):
        moved = np.bincount(ends, played.bytes, members)
        assert moved == pytest.approx(whole * turns * (members - 1) / members)
    came = played.needs[:, 0]
    needing = came != NONE
    assert (needing == (played.step > 1)).all()
    assert (played.dst[came[needing]] == played.src[needing]).all()
    assert (played.step[came[needing]] == played.step[needing] - 1).all()


@pytest.mark.parametrize(("op", "members"), [(op, n) for a, op, n in CASES if a == "RING"])
def test_ranks_count_as_many_primitives_as_messages(op: str, members: int) -> None:
    played = messages_of("RING", op, members, 1 << 20)
    sends, receives = shape_of(op, 1, members, False, 1).counts()
    assert np.bincount(played.src, minlength=members).tolist() == sends.tolist()
    assert np.bincount(played.dst, minlength=members).tolist() == receives.tolist()
