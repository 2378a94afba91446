"""Traffic that is not whole: what is missing is stated and left out, and slows nobody."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oncall.evidence import Incident
from oncall.rules.engine.engine import run
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall_lab.traffic import TrafficFault, TrafficScenario, simulate_traffic

SMALL: dict[str, Any] = {"tp": 2, "pp": 1, "iterations": 6, "dp_bytes": 64 * 2**20, "seed": 4}
SLOW_NIC = (TrafficFault("pcie_contention", 4, iteration=1, bandwidth=0.4),)  # on gpu003


@pytest.fixture
def traffic() -> Any:
    """Makes incidents, and closes them in the end."""
    made: list[Incident] = []

    def make(**fields: Any) -> Incident:
        made.append(simulate_traffic(TrafficScenario(**SMALL | fields))[0])
        return made[-1]

    yield make
    for incident in made:
        incident.close()


Make = Callable[..., Incident]


@cache
def rulebook() -> Any:
    return next(b for b in load_rulebooks([Path(shipped_folder(), "traffic.yaml")]))


def query_rows(incident: Incident, question: str) -> list[tuple[Any, ...]]:
    incident.provide(["rank_traffic", "flow_comms", "edge_shares", "queue_pairs"])
    return incident.con.execute(question).fetchall()


def blamed(incident: Incident) -> set[str]:
    """Hosts that the rulebook names."""
    outcome = run(incident, [rulebook()])
    assert not outcome.skipped
    return {blame.where["node"] for finding in outcome.findings for blame in finding.blame}


def test_the_slow_one_is_named_where_all_is_known(traffic: Make) -> None:
    assert blamed(traffic(faults=SLOW_NIC)) == {"gpu003"}


def test_queue_pairs_that_nobody_knows_are_nobody_s_traffic(traffic: Make) -> None:
    incident = traffic()
    incident.con.execute("DELETE FROM qps WHERE rank = 2")
    assert query_rows(incident, "SELECT DISTINCT how FROM flow_comms WHERE comm IS NULL") == [
        ("no rank",)
    ]
    assert query_rows(incident, "SELECT count(*) FROM rank_traffic WHERE rank = 2") == [(0,)]
    assert blamed(incident) == set()


def test_a_number_that_another_queue_pair_had_before_is_not_its_traffic(traffic: Make) -> None:
    """A job before this one used the numbers of a NIC, for other peers."""
    incident = traffic(faults=SLOW_NIC)
    before = len(query_rows(incident, "FROM rank_traffic"))
    incident = traffic(faults=SLOW_NIC)
    incident.con.execute(
        "INSERT INTO qps BY NAME SELECT * REPLACE ('old' AS job, rank + 1 AS rank, "
        "peer_qpn + 1000 AS peer_qpn, created_ns - 3600000000000 AS created_ns) FROM qps "
        "WHERE node = 'gpu003'"
    )
    incident.con.execute(
        "INSERT INTO epochs BY NAME SELECT * REPLACE (start_ns - 1800000000000 AS start_ns) "
        "FROM epochs WHERE node = 'gpu003'"
    )
    assert len(query_rows(incident, "FROM rank_traffic WHERE job <> 'old'")) == before
    assert blamed(incident) == {"gpu003"}


@pytest.mark.parametrize("lost", [0.002, 0.02])
def test_lost_epochs_slow_nobody(traffic: Make, lost: float) -> None:
    incident = traffic(lost_epochs=lost)
    assert query_rows(incident, "SELECT count(*) > 0 FROM rank_traffic WHERE undercount") == [
        (True,)
    ]
    assert blamed(incident) == set()


def test_an_undercount_of_one_host_is_no_slow_host(traffic: Make) -> None:
    """Every tenth epoch of one NIC was not counted, and it says so."""
    incident = traffic()
    of_one = "node = 'gpu002' AND nic = 'mlx5_0'"
    incident.con.execute(f"DELETE FROM epochs WHERE {of_one} AND start_ns // epoch_ns % 10 = 0")
    incident.con.execute(f"UPDATE epochs SET undercount = true WHERE {of_one}")
    assert blamed(incident) == set()


@pytest.mark.parametrize("missing", [(0,), (2,)])
def test_of_half_a_communicator_nobody_is_named_for_one_who_is_not_seen(
    traffic: Make, missing: tuple[int, ...]
) -> None:
    incident = traffic(faults=SLOW_NIC, missing_nodes=missing)
    assert blamed(incident) == (set() if 2 in missing else {"gpu003"})


def test_operations_of_zero_bytes_send_nothing(traffic: Make) -> None:
    incident = traffic()
    incident.con.execute("UPDATE ops SET bytes = 0, count = 0 WHERE op = 'AllGather'")
    assert query_rows(incident, "SELECT DISTINCT op FROM rank_traffic WHERE bytes > 1000000") == [
        ("ReduceScatter",)
    ]
    assert blamed(incident) == set()


@pytest.mark.parametrize("algorithm", ["COLLNET_DIRECT", "NVLS"])
def test_algorithms_whose_volumes_are_not_known_are_stated_and_not_judged(
    traffic: Make, algorithm: str
) -> None:
    incident = traffic(faults=SLOW_NIC, device_times=True)
    incident.con.execute("UPDATE ops SET algo = ? WHERE algo IS NOT NULL", [algorithm])
    assert query_rows(incident, "SELECT DISTINCT algo, how FROM edge_shares") == [
        (algorithm, f"volumes of {algorithm} are not known")
    ]
    assert query_rows(incident, "SELECT count(*) FROM rank_traffic WHERE bytes > 1000000") == [(0,)]
    assert blamed(incident) == set()


def test_small_operations_never_read_as_incomplete() -> None:
    """Of 1,504 bytes a rank sends as much less as NCCL rounds; of 4 bytes one sends all."""
    sent = {0: {1: 1488, 3: 10**6}, 1: {1: 1520, 2: 8, 3: 10**6}}  # of each rank, by operation
    with Incident.empty() as incident:
        incident.append("ranks", {"job": "j", "rank": [0, 1], "node": ["a", "b"]})
        incident.append("comms", {"job": "j", "comm": 7, "rank": [0, 1], "size": 2})
        for rank, volumes in sent.items():
            number = np.array(list(volumes))
            incident.append("epochs", {"job": "j", "comm": 7, "rank": rank, "peer": 1 - rank,
                "node": "ab"[rank], "source": "wr", "epoch_ns": 32_000,
                "start_ns": number * 32_000_000, "bytes": list(volumes.values())})  # fmt: skip
            called_ns = np.arange(1, 4) * 32_000_000
            incident.append("ops", {"job": "j", "comm": 7, "rank": rank, "seq": [1, 2, 3],
                "kind": "coll", "op": "AllReduce", "bytes": [1504, 4, 10**6], "algo": "RING",
                "enqueued_ns": called_ns})  # fmt: skip
        found = query_rows(
            incident, "SELECT seq, rank, bytes, complete, ended_ns IS NULL FROM traffic"
        )
    assert sorted(found) == [
        (1, 0, 1488, True, False),
        (1, 1, 1520, True, False),
        (3, 0, 10**6, True, False),
        (3, 1, 10**6 + 8, True, False),  # nobody knows whose the 8 bytes are
    ]
