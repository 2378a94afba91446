"""Real RDMA between two soft RoCE devices: pings, counters in a shard, probes on demand."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest

from oncall.node.store.catalog import sealed_shards
from oncall.node.store.reader import open_shards

from .conftest import Guest

KINDS = ("network", "end_to_end")
DELAY_NS = 50_000_000  # of the switch, as guest.py sets it

# Building the machine and running it is counted with the first test.
pytestmark = pytest.mark.timeout(900)


def rtts(pings: list[dict[str, Any]]) -> list[int]:
    return [ping["rtt_ns"] for ping in pings if not ping["lost"]]


@pytest.mark.parametrize("kind", KINDS)
def test_pings_go_from_nic_to_nic_and_are_measured(guest: Guest, kind: str) -> None:
    pings = guest.results["plain"][kind]
    assert {(ping["nic"], ping["target_nic"]) for ping in pings} == {("rxe0", "rxe1")}
    assert len(rtts(pings)) > len(pings) / 2
    assert all(ping["target_ns"] > 0 for ping in pings if not ping["lost"])


def test_the_kernel_stamps_udp_and_the_program_rdma(guest: Guest) -> None:
    plain = guest.results["plain"]
    assert "kernel" in {ping["clock"] for ping in plain["network"]}
    assert {ping["clock"] for ping in plain["end_to_end"]} <= {"program", None}


def test_end_to_end_takes_in_the_hosts_too(guest: Guest) -> None:
    plain = guest.results["plain"]
    assert median(rtts(plain["end_to_end"])) > median(rtts(plain["network"]))


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_switch_delays_both_kinds_see(guest: Guest, kind: str) -> None:
    assert min(rtts(guest.results["delayed"][kind])) >= DELAY_NS
    assert min(rtts(guest.results["plain"][kind])) < DELAY_NS


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_switch_drops_is_lost(guest: Guest, kind: str) -> None:
    pings = guest.results["lossy"][kind]
    lost = [ping for ping in pings if ping["lost"]]
    assert 0 < len(lost) < len(pings)
    assert all(ping["rtt_ns"] is None and ping["clock"] is None for ping in lost)


def test_traffic_moves_the_counters_in_a_shard(guest: Guest) -> None:
    traffic = guest.results["traffic"]
    assert traffic["failed"] == 0
    with open_shards(sealed_shards(guest.data)) as shards:
        moved = dict(
            shards.con.execute(
                "SELECT nic, {'sent': max(tx_bytes) - min(tx_bytes), "
                "'received': max(rx_bytes) - min(rx_bytes)} FROM nics GROUP BY nic"
            ).fetchall()
        )
        up = shards.con.execute("SELECT DISTINCT link_up FROM nics").fetchall()
    payload = traffic["messages"] * traffic["size"]
    assert moved["rxe0"]["sent"] > payload
    assert moved["rxe1"]["received"] > payload
    assert up == [(True,)]


def test_the_collectors_pings_are_in_the_shard_of_both_kinds(guest: Guest) -> None:
    with open_shards(sealed_shards(guest.data)) as shards:
        found = shards.con.execute(
            "SELECT DISTINCT kind, target_nic FROM pings WHERE NOT lost ORDER BY ALL"
        ).fetchall()
    assert found == [("end_to_end", "rxe1"), ("network", "rxe1")]


def test_a_probe_on_demand_finds_rdma_by_itself(guest: Guest) -> None:
    probe = guest.results["probe"]
    assert set(probe["outcomes"]) == {"ok"} and probe["without_rdma"] == []
    answered = {tuple(ping[:5]) for ping in probe["pings"] if not ping[6]}
    # Between a NIC and itself there is no wire here.
    assert answered >= {
        (one, nic, other, target, kind)
        for one, other in (("one", "two"), ("two", "one"))
        for nic, target in (("rxe0", "rxe1"), ("rxe1", "rxe0"))
        for kind in KINDS
    }
