"""The lab's algorithms, written by chunks, against the analysis' own, written by steps.

Neither was written from the other: where one is wrong, they disagree.
"""

from __future__ import annotations

import numpy as np
import pytest

from oncall.node.triggers.decomposition import ALGORITHMS as ANALYSED
from oncall.node.triggers.decomposition import decompose
from oncall_lab.network.collective import ALGORITHMS, NONE, messages_of
from oncall_lab.training.algorithm import ALGORITHMS as SHAPES
from oncall_lab.training.algorithm import binary_tree, shape_of

MEMBERS = {"RING": (2, 3, 5, 8, 12), "HALVING_DOUBLING": (2, 4, 8, 16)}
NCCLS_OWN = [kind for kind in sorted(ANALYSED) if kind[0] in SHAPES]
CASES = [(*kind, members) for kind in sorted(ALGORITHMS) for members in MEMBERS[kind[0]]]


@pytest.mark.parametrize(("algorithm", "op", "members"), CASES)
def test_totals_agree(algorithm: str, op: str, members: int) -> None:
    largest = 1 << 20
    played = messages_of(algorithm, op, members, largest)
    known = decompose(algorithm, op, members)
    # A ring passes on one share a step, halving and doubling begins with half of the buffer.
    whole = largest * (members if algorithm == "RING" else 2)
    sent = np.bincount(played.src, played.bytes, members)
    assert sent == pytest.approx(np.bincount(known.src, known.share, members) * whole)
    came = np.bincount(played.dst, played.bytes, members)
    assert came == pytest.approx(np.bincount(known.dst, known.share, members) * whole)


@pytest.mark.parametrize(("algorithm", "op", "members"), CASES)
def test_messages_and_what_they_need_agree(algorithm: str, op: str, members: int) -> None:
    played = messages_of(algorithm, op, members, 1 << 20)
    known = decompose(algorithm, op, members)

    def names(src: np.ndarray, dst: np.ndarray, step: np.ndarray) -> list[tuple[int, ...]]:
        return list(zip(src.tolist(), dst.tolist(), step.tolist(), strict=True))

    ours = names(played.src, played.dst, played.step)
    theirs = names(known.src, known.dst, known.step)
    brought = [ours[n] if n != NONE else None for n in played.needs[:, 0].tolist()]
    needed = [[theirs[n] for n in needs if n != NONE] for needs in known.needs.tolist()]
    assert {name: [need] if need else [] for name, need in zip(ours, brought, strict=True)} == dict(
        zip(theirs, needed, strict=True)
    )


@pytest.mark.parametrize("members", [2, 3, 5, 8, 12])
@pytest.mark.parametrize(("algorithm", "op"), NCCLS_OWN)
def test_ranks_count_as_many_primitives_as_messages(algorithm: str, op: str, members: int) -> None:
    known = decompose(algorithm, op, members)
    sends, receives = shape_of(op, 1, members, algorithm == "TREE", 1).counts()
    if algorithm == "RING":
        assert np.bincount(known.src, minlength=members).tolist() == sends.tolist()
        assert np.bincount(known.dst, minlength=members).tolist() == receives.tolist()
    # NCCL's tree has other parents than the analysis' heap; both have an edge less than ranks.
    assert len(known) == sends.sum() == receives.sum()
    assert (binary_tree(members).parent < 0).sum() == 1
