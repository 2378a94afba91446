"""Since when a process is gone: since it last did anything, not since somebody looked."""

from __future__ import annotations

import pytest

from oncall.core.units import NS_PER_S
from oncall.evidence.incident import Incident
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.diagnose import diagnose

PROCESS = [book for book in load_rulebooks([shipped_folder()]) if book.name == "process"]
LOOKED_NS, ENDED_NS = 300 * NS_PER_S, 40 * NS_PER_S


@pytest.mark.parametrize(("recorded", "since_ns"), [(True, ENDED_NS), (False, LOOKED_NS)])
def test_a_stopped_process_is_stopped_since_its_last_act(recorded: bool, since_ns: int) -> None:
    with Incident.empty() as incident:
        state = ["running", "running", "stopped"]
        board = {"job": "j", "comm": 7, "source": "board", "at_ns": LOOKED_NS}
        incident.append("launches", board | {"rank": [0, 1, 2], "state": state})
        incident.append("comms", {"job": "j", "comm": 7, "size": 3, "rank": [0, 1, 2]})
        if recorded:
            call = {"job": "j", "comm": 7, "kind": "coll", "op": "AllReduce", "seq": 1}
            times = {"enqueued_ns": ENDED_NS - 5, "ended_ns": ENDED_NS}
            incident.append("ops", call | times | {"rank": [0, 1, 2]})
        [finding] = diagnose(incident, PROCESS, "j").findings
    assert (finding.verdict, finding.at_ns) == ("STOPPED", since_ns)
