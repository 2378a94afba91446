"""What queue pairs sent, remembered: within its memory and its minute, and reported as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oncall.core.units import NS_PER_S
from oncall.evidence import Incident
from oncall.node.store.batch import Batch
from oncall.node.traffic.epochs import EPOCH_NS, Epochs
from oncall.node.traffic.recent_traffic import MOST_RAW, REST_NS, Flow, RecentTraffic

NOW_NS = 1_795_000_000 * NS_PER_S
FIRST = NOW_NS // EPOCH_NS
FLOWS = [
    Flow("dpa", "n", "mlx5_0", 7),
    Flow("wr", "n", "mlx5_0", 7, "j", 3),
    Flow("proxy", "n", None, None, "j", 3, 2**64 - 1, 4, 1),
]


def epochs(*rows: tuple[int, int, int]) -> Epochs:
    return Epochs(*np.array(rows, np.int64).reshape(-1, 3).T)


def batch_rows(batch: Batch, columns: str = "start_ns, bytes, undercount") -> list[tuple[Any, ...]]:
    with Incident.empty() as incident:
        incident.append("epochs", batch.columns)
        return incident.con.execute(f"SELECT {columns} FROM epochs ORDER BY ALL").fetchall()


def test_too_much_and_too_old_is_forgotten_oldest_first() -> None:
    recent = RecentTraffic(most_bytes=12 * 100)
    for at in range(200):
        recent.add(FLOWS[:1], epochs((0, FIRST + at, 1)), NOW_NS + at * EPOCH_NS)
    assert (recent.forgotten, recent.bytes) == (100, 1200)
    assert batch_rows(recent.between(0, 2**62))[0][0] == (FIRST + 100) * EPOCH_NS
    assert recent.whole_since_ns == (FIRST + 100) * EPOCH_NS
    recent.add([], epochs(), NOW_NS + 61 * NS_PER_S)
    assert (recent.forgotten, recent.bytes) == (100, 0)


def test_flows_that_are_gone_are_forgotten_and_others_keep_their_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oncall.node.traffic.recent_traffic._MOST_FLOWS", 8)
    recent = RecentTraffic(most_bytes=12 * 20)
    for qpn in range(100):
        recent.add([Flow("dpa", "n", "mlx5_0", qpn)], epochs((0, FIRST + qpn, qpn + 1)), NOW_NS)
    found = batch_rows(recent.between(0, 2**62), "qpn, bytes")
    assert found == [(qpn, qpn + 1) for qpn in range(80, 100)]
    assert len(recent._flows) <= 30


def test_raw_epochs_are_wanted_around_a_trigger_and_once_a_minute() -> None:
    recent = RecentTraffic(most_bytes=2**24)
    second = NS_PER_S // EPOCH_NS
    for at in range(-5, 5):
        recent.add(FLOWS[:1], epochs((0, FIRST + at * second, 1)), NOW_NS)
    recent.trigger(NOW_NS, NOW_NS)
    assert recent.wanted(NOW_NS) == []
    (batch,) = recent.wanted(NOW_NS + NS_PER_S // 2)
    assert [round((row[0] - NOW_NS) / NS_PER_S) for row in batch_rows(batch)] == [-2, -1, 0]
    recent.trigger(NOW_NS + NS_PER_S, NOW_NS)
    assert recent.wanted(NOW_NS + 10 * NS_PER_S) == []
    recent.trigger(NOW_NS + REST_NS + 1, NOW_NS + REST_NS)
    assert recent.wanted(NOW_NS + 2 * REST_NS) == []  # there is nothing any more


def test_of_too_many_wanted_the_newest_are_reported_in_parts() -> None:
    recent = RecentTraffic(most_bytes=2**24)
    for piece in range(3):
        at = FIRST - 2**16 + np.arange(2**16) * 3 // 4 + piece
        recent.add(FLOWS[:1] * 2, Epochs(np.full(2**16, 1), at, at), NOW_NS)
    more = Epochs(np.zeros(2**16, np.int64), FIRST - np.arange(2**16) % 9, np.full(2**16, 5))
    recent.add(FLOWS[:1], more, NOW_NS)
    recent.trigger(NOW_NS, NOW_NS)
    parts = recent.wanted(NOW_NS + NS_PER_S)
    assert sum(part.rows for part in parts) == MOST_RAW and max(p.rows for p in parts) == 5_000
    assert sum((part.columns["bytes"] == 5).sum() for part in parts) == 2**16
