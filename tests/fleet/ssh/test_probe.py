"""Probes through a real sshd: who may be probed, and who may not."""

from __future__ import annotations

from asking import Fleet
from processes import left_with

from oncall.fleet.probe import Probed, ProbeOrder, probe_fleet
from oncall.fleet.ssh.transport import SshTransport

HOSTS = ("gpu001", "locked", "reading", "quick", "old", "dead")


def test_nodes_are_probed_by_their_keys_and_the_others_are_named(fleet: Fleet) -> None:
    async def work(transport: SshTransport) -> Probed:
        return await probe_fleet(transport, HOSTS, ProbeOrder(count=2), patience_s=60)

    probed = fleet.run(work)
    with probed.incident as incident:
        pairs = incident.con.execute("SELECT DISTINCT node, target_node FROM pings ORDER BY ALL")
        assert pairs.fetchall() == [("gpu001", "locked"), ("locked", "gpu001")]
    kinds = {host: outcome.kind for host, outcome in probed.outcomes.items()}
    assert kinds == {
        "gpu001": "ok",
        "locked": "ok",
        "reading": "error",
        "quick": "version",
        "old": "version",
        "dead": "refused",
    }
    assert "read-only" in probed.outcomes["reading"].message
    assert "does not support probes" in probed.outcomes["quick"].message
    # What listened on a node was the process that answered us.
    assert left_with(str(fleet.loopback.nodes["gpu001"].data)) == []
