"""Which nodes can be probed, without a terminal."""

from __future__ import annotations

from dataclasses import replace

from oncall.core.diagnosis import Blame
from oncall.tui.shell.node_work import blamed_nodes, node_of, why_not_probed
from oncall.views.snapshot import HostAnswer

from ..snapshots import hang, hang_snapshot


def test_the_nodes_of_a_finding_are_named_once_also_by_their_ranks() -> None:
    blame = (
        Blame("rank", {"rank": 5, "node": "gpu017"}),
        Blame("rank", {"rank": 12}),
        Blame("node", {"node": "gpu017"}),
        Blame("rank", {"rank": 99}),
        Blame("comm", {"comm": "0x1"}),
    )
    assert blamed_nodes(hang_snapshot(), replace(hang(), blame=blame)) == ("gpu017", "gpu018")
    assert blamed_nodes(hang_snapshot(), None) == ()
    assert node_of(hang_snapshot(), 99) == ""


def test_a_recording_and_nodes_that_refuse_cannot_be_probed() -> None:
    hosts = (
        HostAnswer("gpu017", "ok", no_probe="your key there is read-only"),
        HostAnswer("gpu018", "timeout", "no answer within 20 s"),
    )
    snapshot = replace(hang_snapshot(), hosts=hosts)
    assert "recording" in (why_not_probed(snapshot, False, ("gpu017",)) or "")
    assert why_not_probed(snapshot, True, ("gpu017",)) == "gpu017: your key there is read-only"
    # One that can is enough, and of who does not answer nobody knows.
    assert why_not_probed(snapshot, True, ("gpu017", "gpu018")) is None
