"""Flows: one source each, whoever else counted the same bytes; queue pairs named by their ranks."""

from __future__ import annotations

from typing import Any

import pytest

from oncall.evidence import Incident

EPOCH_NS = 32_000


def pair(incident: Incident, qpn: int, rank: int, nic: str = "mlx5_0") -> None:
    incident.append(
        "qps",
        {"job": "j", "node": "n", "nic": nic, "qpn": [qpn], "rank": rank, "peer_gid": "::1",
         "peer_qpn": 9, "created_ns": 0},
    )  # fmt: skip


def counted(incident: Incident, source: str, each_bytes: int, **whose: Any) -> None:
    """Ten epochs as `source` counts them."""
    start_ns = [number * EPOCH_NS for number in range(10)]
    columns = {"node": "n", "start_ns": start_ns, "epoch_ns": EPOCH_NS, "bytes": each_bytes}
    incident.append("epochs", {**columns, "source": source, **whose})


def flows(incident: Incident) -> list[tuple[Any, ...]]:
    incident.require(["flow_ends", "flow_epochs"])
    ((total,),) = incident.con.execute("SELECT sum(bytes) FROM flow_epochs").fetchall()
    found = incident.con.execute(
        "SELECT job, rank, source, bytes FROM flow_ends ORDER BY rank, nic, qpn"
    ).fetchall()
    assert total == sum(row[-1] for row in found)
    return found


WR = {"job": "j", "rank": 3, "nic": "mlx5_0", "qpn": 7}
DPA = {"nic": "mlx5_0", "qpn": 7}  # a NIC knows neither job nor rank
PROXY = {"job": "j", "rank": 3, "comm": 1, "peer": 4, "channel": 0}


@pytest.mark.parametrize(
    ("sources", "counts"),
    [
        ({"dpa": DPA, "wr": WR}, "dpa"),
        ({"wr": WR, "proxy": PROXY}, "wr"),
        ({"dpa": DPA, "proxy": PROXY}, "dpa"),
        ({"dpa": DPA, "wr": WR, "proxy": PROXY}, "dpa"),
        ({"proxy": PROXY}, "proxy"),
    ],
)
def test_what_several_sources_count_is_counted_once(
    sources: dict[str, dict[str, Any]], counts: str
) -> None:
    each = {"dpa": 1015, "wr": 1000, "proxy": 999}
    with Incident.empty() as incident:
        pair(incident, qpn=7, rank=3)
        for source, whose in sources.items():
            counted(incident, source, each[source], **whose)
        assert flows(incident) == [("j", 3, counts, 10 * each[counts])]


def test_a_nic_without_a_poller_is_counted_by_its_posts() -> None:
    with Incident.empty() as incident:
        pair(incident, qpn=7, rank=3)
        pair(incident, qpn=7, rank=3, nic="mlx5_1")
        counted(incident, "dpa", 1015, **DPA)
        counted(incident, "wr", 1000, **WR)
        counted(incident, "wr", 1000, **WR | {"nic": "mlx5_1"})
        assert flows(incident) == [("j", 3, "dpa", 10_150), ("j", 3, "wr", 10_000)]


def test_where_no_queue_pair_is_reported_a_flow_has_no_rank_and_counts_once() -> None:
    with Incident.empty() as incident:
        counted(incident, "dpa", 1015, **DPA)
        counted(incident, "wr", 1000, **WR)
        assert flows(incident) == [(None, None, "dpa", 10_150)]
