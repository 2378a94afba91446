"""What shipped rulebooks advise can be copied as it is: node and process are filled in."""

from __future__ import annotations

import pytest

from oncall.core.units import NS_PER_S
from oncall.evidence.incident import Incident
from oncall.rules.engine.engine import run
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.diagnose import diagnose

RULEBOOKS = load_rulebooks([shipped_folder()])


def hang(node: str | None, pid: int | None) -> Incident:
    """Rank 3 never enters what the others wait in."""
    incident = Incident.empty()
    incident.append("comms", {"job": "j", "comm": 1, "rank": [0, 1, 2, 3], "size": 4})
    incident.append("ranks", {"job": "j", "rank": [3], "node": [node], "pid": [pid]})
    call = {"job": "j", "comm": 1, "kind": "coll", "op": "AllReduce", "bytes": 2**26}
    over = {"seq": 7, "enqueued_ns": 9 * NS_PER_S, "ended_ns": 10 * NS_PER_S, "done": True}
    incident.append("ops", call | over | {"rank": [0, 1, 2, 3]})
    waits = {"seq": 8, "enqueued_ns": 10 * NS_PER_S, "observed_ns": 400 * NS_PER_S}
    incident.append("ops", call | waits | {"rank": [0, 1, 2]})
    return incident


@pytest.mark.parametrize(
    ("node", "pid", "command"),
    [
        ("gpu017", 4105, "`ssh gpu017 py-spy dump --pid 4105`"),
        ("gpu017", None, "`ssh gpu017 py-spy dump --pid PID`"),
        (None, None, "`py-spy dump --pid PID`"),
        ("gpu017; rm -rf ~", 4105, "`py-spy dump --pid 4105`"),
        ("-oProxyCommand=evil", 4105, "`py-spy dump --pid 4105`"),
    ],
)
def test_a_command_names_node_and_process_where_they_are_known(
    node: str | None, pid: int | None, command: str
) -> None:
    with hang(node, pid) as incident:
        (finding,) = run(incident, RULEBOOKS).findings
    assert command in finding.next[0]


def test_a_slow_communicator_goes_by_its_name() -> None:
    with Incident.empty() as incident:
        incident.append(
            "comms", {"job": "j", "comm": 1, "rank": [0, 1, 2, 3], "size": 4, "name": "dp_1"}
        )
        for seq in range(1, 41):
            at_ns = seq * NS_PER_S
            took_ns = NS_PER_S // (1000 if seq <= 20 else 10)
            call = {"job": "j", "comm": 1, "kind": "coll", "op": "AllReduce", "bytes": 2**26}
            times = {"enqueued_ns": at_ns, "started_ns": at_ns, "ended_ns": at_ns + took_ns}
            row = call | times | {"seq": seq, "rank": [0, 1, 2, 3], "done": True}
            incident.append("ops", row)
        finding, *_ = diagnose(incident, RULEBOOKS).findings
    assert finding.verdict == "S2"
    assert finding.case["suspect"] == "communicator dp_1"
    assert any("dp_1" in step.say for step in finding.story)
