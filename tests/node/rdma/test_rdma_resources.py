"""Queue pairs and whose they are, as the kernel tells them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from ring_writer import RingWriter

from oncall.core.errors import BadInput
from oncall.core.units import NS_PER_S
from oncall.node.common.source import read_clock
from oncall.node.rdma.rdma_netlink import NoRdma, QueuePair
from oncall.node.rdma.rdma_resources import RdmaResourceSource
from oncall.node.store.batch import Batch

NOBODY = 2**22 + 1  # no process has such a number
OURS = QueuePair("mlx5_0", 4711, 815, "rc", "rts", os.getpid())


class Kernel:
    """What it answers when asked."""

    def __init__(self, *pairs: QueuePair) -> None:
        self.pairs: Sequence[QueuePair] = pairs
        self.error: Exception | None = None

    def __call__(self) -> Sequence[QueuePair]:
        if self.error:
            raise self.error
        return self.pairs


@pytest.fixture
def kernel() -> Kernel:
    return Kernel(OURS)


@pytest.fixture
def source(rings: Path, kernel: Kernel) -> RdmaResourceSource:
    return RdmaResourceSource(Path("/"), "gpu017", 10 * NS_PER_S, rings, kernel)


def rows(batches: Sequence[Batch]) -> list[tuple[object, ...]]:
    return [row for batch in batches for row in zip(*batch.columns.values(), strict=True)]


def test_a_queue_pair_is_of_the_rank_whose_process_holds_it(
    rings: Path, source: RdmaResourceSource, kernel: Kernel
) -> None:
    RingWriter(rings, 3)  # of this very process
    kernel.pairs = [OURS, replace(OURS, number=9, type="ud", peer_number=0, pid=NOBODY)]
    now = read_clock()
    assert rows(source.collect(now).batches) == [
        (None, "gpu017", "mlx5_0", 9, None, None, NOBODY, "rts", now.realtime_ns),
        ("llama", "gpu017", "mlx5_0", 4711, 3, 815, os.getpid(), "rts", now.realtime_ns),
    ]


def test_it_is_reported_when_new_and_when_its_state_changes(
    source: RdmaResourceSource, kernel: Kernel
) -> None:
    assert len(rows(source.collect(read_clock()).batches)) == 1
    assert rows(source.collect(read_clock()).batches) == []
    assert len(rows(source.current_state(read_clock()))) == 1
    kernel.pairs = [replace(OURS, state="err")]
    ((*_, state, _),) = rows(source.collect(read_clock()).batches)
    assert state == "err"


def test_those_of_the_kernel_are_left_out(source: RdmaResourceSource, kernel: Kernel) -> None:
    kernel.pairs = [replace(OURS, pid=None)]
    assert source.collect(read_clock()).batches == []


def test_a_kernel_without_rdma_is_noted(source: RdmaResourceSource, kernel: Kernel) -> None:
    source.collect(read_clock())
    kernel.error = NoRdma("this kernel has no RDMA")
    collected = source.collect(read_clock())
    assert collected.notes == ("no queue pairs: this kernel has no RDMA",)
    assert collected.problems == () and source.current_state(read_clock()) == []


@pytest.mark.parametrize("error", [BadInput("netlink", "damaged: x"), OSError(1, "not permitted")])
def test_an_odd_answer_is_said_and_asked_again(
    source: RdmaResourceSource, kernel: Kernel, error: Exception
) -> None:
    kernel.error = error
    (problem,) = source.collect(read_clock()).problems
    assert problem.startswith("queue pairs could not be listed: ")
    kernel.error = None
    assert len(rows(source.collect(read_clock()).batches)) == 1
