"""perftest on real queue pairs under the verbs shim: each request and byte it had to send."""

from __future__ import annotations

import pytest

from oncall.node.store.catalog import sealed_shards
from oncall.node.store.reader import open_shards

from .conftest import Guest

# Building the machine and running it is counted with the first test.
pytestmark = pytest.mark.timeout(900)

# case: queue pairs, requests on each, bytes of each, what they are counted as
SENT = {
    "writes": (1, 1000, 4096, "writes"),
    "sends": (1, 777, 8192, "sends"),
    "four_pairs": (4, 200, 16384, "writes"),
    "lists": (1, 500, 4096, "writes"),
}
PEER_OF = {
    0: "0000:0000:0000:0000:0000:ffff:0a4d:0002",
    1: "0000:0000:0000:0000:0000:ffff:0a4d:0001",
}


@pytest.mark.parametrize("case", SENT)
def test_the_shim_counts_what_perftest_sends(guest: Guest, case: str) -> None:
    reported = guest.results["verbs"][case]
    count, requests, size, kind = SENT[case]
    assert reported["failed"] == 0
    senders = [pair for pair in reported["pairs"] if pair["rank"] == 0]
    receivers = [pair for pair in reported["pairs"] if pair["rank"] == 1]
    assert len(senders) == len(receivers) == count
    for pair in senders:
        assert (pair["posted"], pair[kind]) == (requests, requests)
        assert pair["posted_bytes"] == pair["completed_bytes"] == requests * size
        assert (pair["completed"], pair["errors"], pair["dropped"]) == (requests, 0, 0)
    assert {pair["qpn"] for pair in senders} == {pair["peer_qpn"] for pair in receivers}
    assert {pair["received"] for pair in receivers} == {requests if kind == "sends" else 0}


@pytest.mark.parametrize("case", SENT)
def test_epochs_hold_every_byte_and_follow_the_interface(guest: Guest, case: str) -> None:
    reported = guest.results["verbs"][case]
    count, requests, size, _ = SENT[case]
    assert reported["epoch_bytes"] == count * requests * size
    # The interface is read by a thread of the same two emulated cores, so this is coarse.
    assert reported["samples"] == 0 or reported["mean_error"] < 0.35


def test_queue_pairs_and_windows_are_in_a_shard(guest: Guest) -> None:
    with open_shards(sealed_shards(guest.control / "verbs")) as shards:
        pairs = shards.con.execute(
            "SELECT DISTINCT rank, nic, peer_gid, job FROM qps ORDER BY rank"
        ).fetchall()
        [(completed, largest)] = shards.con.execute(
            "SELECT sum(completed), max(bytes) FROM wr_windows WHERE oldest_ns IS NULL"
        ).fetchall()
    assert pairs == [(rank, f"rxe{rank}", PEER_OF[rank], "perftest") for rank in (0, 1)]
    assert completed >= 50 and largest >= 50 * 4096


def test_an_empty_probe_tells_whether_the_network_carries(guest: Guest) -> None:
    assert guest.results["empty_probes"] == ["answered", "lost"]
