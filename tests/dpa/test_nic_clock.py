"""A NIC's time as Unix time, and whose its functions are."""

from __future__ import annotations

import numpy as np
import pytest

from oncall.node.dpa.dpa import NicClock, NicFunctions
from oncall.node.rdma.rdma_netlink import NoRdma, QueuePair

SECOND_NS = 10**9
OFFSET_NS = 1_234_567_890_123_456_789


def test_the_answer_that_was_quickest_tells_best() -> None:
    clock = NicClock()
    for second, late_ns in enumerate((900_000, 20_000, 700_000)):
        now_ns = second * SECOND_NS
        clock.answered(now_ns, now_ns + OFFSET_NS + late_ns)
    assert clock.offset_ns == OFFSET_NS + 20_000


def test_the_grid_of_epochs_stays_until_it_is_wrong() -> None:
    clock = NicClock()
    clock.answered(0, OFFSET_NS + 15_000)
    clock.answered(SECOND_NS, SECOND_NS + OFFSET_NS)
    assert clock.offset_ns == OFFSET_NS + 15_000
    clock.answered(2 * SECOND_NS, 2 * SECOND_NS + OFFSET_NS - 2_000)
    assert clock.offset_ns == OFFSET_NS - 2_000


def test_clocks_that_part_are_followed() -> None:
    clock = NicClock()
    for second in range(100):
        now_ns = second * SECOND_NS
        drift_ns = 10_000 * second
        clock.answered(now_ns, now_ns + OFFSET_NS + drift_ns)
        assert abs(clock.offset_ns - OFFSET_NS - drift_ns) <= 8 * 10_000 + 16_000


def test_without_an_answer_there_is_no_time() -> None:
    with pytest.raises(ValueError, match="has not reported its time"):
        _ = NicClock().offset_ns


def names(functions: NicFunctions, flows: list[tuple[int, int]]) -> list[str | None]:
    vhca, qpn = np.array(flows).T
    words = functions.names(vhca, qpn)
    return [words.vocabulary[code] if code >= 0 else None for code in words.codes]


def listed(device: str, *numbers: int) -> list[QueuePair]:
    return [QueuePair(device, number, 1, "rc", "rts", 1) for number in numbers]


def test_a_single_function_is_the_device_that_was_asked() -> None:
    functions = NicFunctions("mlx5_0", ask=list)
    assert names(functions, [(5, 7), (5, 8)]) == ["mlx5_0", "mlx5_0"]
    assert functions.problems == ()


def test_of_several_each_is_where_the_kernel_lists_its_queue_pairs() -> None:
    kernel = [*listed("mlx5_0", 7, 8), *listed("mlx5_1", 8, 9)]
    functions = NicFunctions("mlx5_0", ask=lambda: kernel)
    flows = [(5, 7), (5, 8), (6, 8), (6, 9)]
    assert names(functions, flows) == ["mlx5_0", "mlx5_0", "mlx5_1", "mlx5_1"]


def test_what_cannot_be_reported_is_null_and_said_until_it_can() -> None:
    kernel: list[QueuePair] = []
    functions = NicFunctions("mlx5_0", ask=lambda: kernel)
    assert names(functions, [(5, 7), (6, 7)]) == [None, None]
    (problem,) = functions.problems
    assert problem == "mlx5_0: the RDMA device of its function 5, 6 is unknown"
    kernel += [*listed("mlx5_0", 7), *listed("mlx5_1", 7, 9)]
    assert names(functions, [(5, 7), (6, 7), (6, 9)]) == [None, "mlx5_1", "mlx5_1"]


def test_a_kernel_without_rdma_names_none() -> None:
    def ask() -> list[QueuePair]:
        raise NoRdma("this kernel has no RDMA")

    functions = NicFunctions("mlx5_0", ask)
    assert names(functions, [(5, 7), (6, 7)]) == [None, None]
