"""What a digest carries of queue pairs and traffic: of the job, and of nobody; few enough rows."""

from __future__ import annotations

import numpy as np
import pytest

from oncall.evidence.incident import Incident, Words
from oncall.node.store import traffic
from oncall.node.store.answer import answer
from oncall.node.store.wire import Part, Request

S = 10**9


@pytest.fixture
def incident() -> Incident:
    incident = Incident.empty()
    for job in ("j", "other", None):  # the last: counted by a NIC, which knows no jobs
        incident.append("qps", {"job": job, "node": "n", "nic": "mlx5_0", "qpn": [7, 8]})
        incident.append(
            "epochs",
            {"job": job, "node": "n", "start_ns": S + np.arange(100), "bytes": 5, "source": "wr"},
        )
    return incident


def rows(incident: Incident, **asked: int) -> dict[str, int]:
    parts = answer(incident.con, Request("digest", job="j", **asked))
    return {part.table: part.rows for part in parts if isinstance(part, Part)}


def test_too_many_are_cut_to_the_newest(
    incident: Incident, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "EPOCHS", 30)
    assert rows(incident)["epochs"] == 30
    [(oldest,)] = incident.con.execute("SELECT min(start_ns) FROM temp.digest_part").fetchall()
    assert oldest == S + 85


# ------------------------------------------------------- ten minutes of a busy node

RANKS, PAIRS, SECONDS = 8, 16, 600


@pytest.fixture(scope="module")
def busy() -> Incident:
    """Eight ranks with 16 queue pairs each: ten minutes of ten operations a second to two peers,
    those of one rank also recorded in flight; a window of each pair a second, and the raw epochs
    of a trigger."""
    random = np.random.default_rng(1)
    incident = Incident.empty()
    rounds = 10 * SECONDS
    seq = np.tile(np.repeat(np.arange(rounds), 2), RANKS)
    rank = np.repeat(np.arange(RANKS), 2 * rounds)
    took = random.integers(600, 900, len(seq)) * 32_000
    took[seq == 1_234] = 10**9  # in one round everybody was slow
    started = S + seq * S // 10 + random.integers(0, 1_000, len(seq)) * 32_000
    open_ = seq == rounds - 1
    incident.append(
        "op_traffic",
        {
            "job": "j", "comm": rank % 4, "seq": seq, "rank": rank, "node": "n", "epoch_ns": 32_000,
            "peer": rank + 8 * (1 + np.arange(len(seq)) % 2), "started_ns": started,
            "kind": Words(np.zeros(len(seq), np.int32), ["coll"]), "source": "dpa",
            "active_ns": took,
            "op": Words(np.zeros(len(seq), np.int32), ["AllReduce"]), "rank_active_ns": took,
            "ended_ns": np.ma.MaskedArray(started + took, mask=open_), "expected_bytes": 10**8,
            "bytes": 10**8 + random.integers(0, 10**6, len(seq)), "undercount": False,
        },
    )  # fmt: skip
    under_way = {"kind": "coll", "source": "dpa", "op": "AllReduce", "ended_ns": None}
    incident.append(
        "op_traffic",
        {"job": "j", "comm": 0, "seq": np.arange(rounds - 1), "rank": 0, "node": "n", "peer": 8,
         "started_ns": S + np.arange(rounds - 1) * S // 10, "bytes": 10, **under_way},
    )  # fmt: skip
    pair = np.tile(np.arange(RANKS * PAIRS), SECONDS)
    end = S + np.repeat(np.arange(SECONDS), RANKS * PAIRS) * S + random.integers(0, S, len(pair))
    stuck = (pair == 5) & (end > 590 * S)
    incident.append(
        "wr_windows",
        {
            "job": "j", "node": "n", "nic": "mlx5_0", "qpn": pair, "rank": pair % RANKS,
            "start_ns": end - S, "end_ns": end, "bytes": random.integers(0, 10**8, len(pair)),
            "posted": 50, "completed": 50, "outstanding": random.integers(0, 8, len(pair)),
            "oldest_ns": np.ma.MaskedArray(np.full(len(pair), S), mask=~stuck),
        },
    )  # fmt: skip
    at = np.sort(random.integers(0, 80_000, 200_000)) * 32_000
    incident.append(
        "epochs",
        {"node": "n", "nic": "mlx5_0", "qpn": at // 32_000 % 128, "start_ns": 599 * S + at,
         "epoch_ns": 32_000, "bytes": random.integers(1, 10**6, len(at)), "source": "dpa"},
    )  # fmt: skip
    return incident


def test_ten_minutes_of_a_busy_node_are_half_a_megabyte(busy: Incident) -> None:
    parts = [
        part for part in answer(busy.con, Request("digest", job="j")) if isinstance(part, Part)
    ]
    assert {part.table for part in parts} == {"op_traffic", "wr_windows", "epochs"}
    assert sum(len(part.parquet) for part in parts) < 500_000


def test_what_tells_most_of_them_is_there(busy: Incident) -> None:
    def of(table: str, query: str) -> list[tuple[object, ...]]:
        list(answer(busy.con, Request("digest", job="j", tables=(table,))))
        return busy.con.execute(query.format(table="temp.digest_part")).fetchall()

    assert of("op_traffic", "SELECT count(*) FROM {table} WHERE ended_ns IS NULL") == [(16,)]
    slow = of("op_traffic", "SELECT count(DISTINCT rank) FROM {table} WHERE active_ns = 1e9")
    assert slow == [(RANKS,)]
    rounds = "SELECT count(*) FROM (SELECT seq FROM {table} GROUP BY seq HAVING count(*) = 16)"
    [(whole,)] = of("op_traffic", rounds)
    assert 300 <= whole <= 1_000  # each with all its ranks and peers, as on other nodes
    assert of("wr_windows", "SELECT count(*) >= 9 FROM {table} WHERE oldest_ns NOTNULL") == [
        (True,)
    ]
    pairs = of("wr_windows", "SELECT count(DISTINCT qpn), count(*) <= 2000 FROM {table}")
    assert pairs == [(RANKS * PAIRS, True)]
