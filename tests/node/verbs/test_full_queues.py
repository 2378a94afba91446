"""Queue pairs that stay full: a NIC at its link's rate is health, one far below is not."""

from __future__ import annotations

import numpy as np
import pytest

from oncall.core.units import NS_PER_S
from oncall.node.verbs.full_queues import FullQueues, LinkRate, Queues

GIGABYTE = 10**9
STEP_NS = NS_PER_S // 4
PORT = (("mlx5_0", 1),)


def rate_reported(nic: str, port: int) -> int:
    assert (nic, port) == PORT[0]
    return 50 * GIGABYTE


def rate_unknown(nic: str, port: int) -> None:
    assert (nic, port) == PORT[0]


def seen(
    link_rate: LinkRate, rates: list[float], outstanding: int = 64, low: bool = False
) -> list[bool]:
    """What each look at two queue pairs of one NIC finds of the first, which complete as many
    bytes a second together in each quarter of a second."""
    full = FullQueues(window=50, timeout_ns=NS_PER_S // 2, link_rate=link_rate)
    found, sent = [], 0.0
    for number, rate in enumerate([0.0, *rates]):
        sent += rate * STEP_NS / NS_PER_S
        queues = Queues(
            number=np.array([1, 2]),
            outstanding=np.array([outstanding, 0]),
            completed_bytes=np.array([sent / 4, sent * 3 / 4], np.int64),
            low=np.array([low, True]),
            port=np.zeros(2, np.int64),
            ports=PORT,
        )
        found.append(bool(full.look(queues, (number + 1) * STEP_NS)[0]))
    return found[1:]


@pytest.mark.parametrize("link_rate", [rate_reported, rate_unknown])
def test_a_saturated_nic_is_healthy_however_full_its_queues(link_rate: LinkRate) -> None:
    assert not any(seen(link_rate, [45.0 * GIGABYTE] * 40))


@pytest.mark.parametrize("link_rate", [rate_reported, rate_unknown])
def test_full_queues_of_a_nic_that_completes_little_are_found_after_the_timeout(
    link_rate: LinkRate,
) -> None:
    found = seen(link_rate, [45.0 * GIGABYTE] * 40 + [5.0 * GIGABYTE] * 8)
    assert found == [False] * 42 + [True] * 6


def test_without_a_rate_ever_seen_nothing_completed_is_found() -> None:
    assert seen(rate_unknown, [0.0] * 8)[-1]


def test_queues_that_empty_now_and_then_or_hold_little_are_not_full() -> None:
    assert not any(seen(rate_reported, [GIGABYTE] * 20, low=True))
    assert not any(seen(rate_reported, [GIGABYTE] * 20, outstanding=49))
