"""What NICs at the ends of late steps counted: whole readings, each once, and nothing invented."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.sql import found

from oncall.evidence.incident import Incident

MS = 1_000_000


@pytest.fixture
def incident() -> Iterator[Incident]:
    """Rank 0 of host a sends to rank 1 of b, four steps of 5 ms; the second and fourth take 15."""
    with Incident.empty() as incident:
        incident.append("ranks", {"job": "j", "rank": [0, 1], "node": ["a", "b"]})
        took = np.array([5, 15, 5, 15]) * MS
        ended = np.cumsum(took)
        steps = {"src": 0, "dst": 1, "step": [1, 2, 3, 4], "bytes": 1000, "expected_ns": 5 * MS}
        times = {"started_ns": ended - took, "ended_ns": ended}
        named = {"job": "j", "comm": np.full(4, 7, np.uint64), "seq": 0, "flow": 1}
        incident.append("flow_steps", named | steps | times)
        yield incident


def read(incident: Incident, node: str, at_ms: list[int], nic: str = "n0", **counters: Any) -> None:
    base = {"node": node, "nic": nic, "port": 1, "at_ns": np.array(at_ms) * MS}
    idle = {"tx_bytes": np.arange(len(at_ms)), "rx_bytes": np.arange(len(at_ms))}
    incident.append("nics", base | idle | counters)


def ends(incident: Incident, columns: str) -> list[tuple[Any, ...]]:
    return found(incident, "late_ends", columns)


def test_a_reading_that_meets_both_late_steps_counts_once(incident: Incident) -> None:
    read(incident, "a", [0, 90], pfc_rx_pause=[0, 40], pfc_rx_pause_ns=[0, 12 * MS])
    found = ends(incident, "side, node, step, excess_ns, rx_pauses, rx_paused_ns, seen_ns")
    assert found == [("sender", "a", 2, 20 * MS, 40, 12 * MS, 90 * MS)]


@pytest.mark.parametrize(
    ("at_ms", "frames", "seen_ms"),
    [
        pytest.param([4, 19, 26, 39], 520, 35, id="each meets a late step"),
        pytest.param([5, 20, 25, 40], 30, 30, id="one lies between them"),
    ],
)
def test_only_readings_that_meet_late_steps_count(
    incident: Incident, at_ms: list[int], frames: int, seen_ms: int
) -> None:
    read(incident, "a", at_ms, pfc_rx_pause=[0, 10, 500, 520])
    assert ends(incident, "rx_pauses, seen_ns") == [(frames, seen_ms * MS)]


def test_what_is_not_counted_is_not_known(incident: Incident) -> None:
    read(incident, "a", [0, 50], pfc_rx_pause=[1, 2])
    found = ends(incident, "rx_pauses, rx_paused_ns, tx_pauses, notified, repeats, tx_full")
    assert found == [(1, None, None, None, None, None)]


def test_how_full_a_link_was_is_read_within_a_step(incident: Incident) -> None:
    counted = {"tx_bytes": [0, 10_000, 110_000, 110_000], "rx_bytes": [0, 1, 2, 3]}
    read(incident, "a", [4, 8, 18, 30], **counted, rate_bytes_per_s=10_000_000)
    ((full, own, others),) = ends(incident, "tx_full, own_bytes_per_s, tx_others")
    assert full == pytest.approx(1.0)  # 100,000 bytes in 10 ms
    assert own == pytest.approx(2000 / 0.030)
    assert others == pytest.approx(98_000 / 0.030 / 10_000_000)  # these 10 ms of 30 are known


def test_a_link_whose_rate_is_reported_as_nothing_is_not_full(incident: Incident) -> None:
    counted = {"tx_bytes": [0, 10_000, 110_000, 110_000], "rx_bytes": [0, 1, 2, 3]}
    read(incident, "a", [4, 8, 18, 30], **counted, rate_bytes_per_s=0)
    assert ends(incident, "tx_full, tx_others, link_bytes_per_s") == [(None, None, None)]


def test_hosts_that_paused_meanwhile_are_distinguished_from_the_receiver(
    incident: Incident,
) -> None:
    for node in ("a", "b", "c", "d"):
        frames = [0, 0] if node == "d" else [0, 7]
        read(incident, node, [0, 50], pfc_tx_pause=frames, pfc_rx_pause=[0, 0])
    found = ends(incident, "side, node, tx_pauses")
    assert found == [
        *(("elsewhere", "a", 7), ("elsewhere", "c", 7)),
        *(("receiver", "b", 7), ("sender", "a", 7)),
    ]


def test_of_several_nics_the_ranks_own_one_is_read(incident: Incident) -> None:
    incident.con.execute("UPDATE ranks SET nic = 'n1' WHERE rank = 0")
    read(incident, "a", [0, 50], pfc_rx_pause=[0, 1])
    read(incident, "a", [0, 50], nic="n1", pfc_rx_pause=[0, 2])
    incident.append("links", {"a": ["a/n1"], "a_port": [1], "b": ["leaf"], "b_port": [9]})
    assert ends(incident, "nic, tor_port, rx_pauses") == [("n1", "leafP9", 2)]
