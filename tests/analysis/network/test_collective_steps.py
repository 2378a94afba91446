"""Steps from our own collectors, where switches tell more."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.sql import found

from oncall.core.errors import MissingEvidence
from oncall.evidence.incident import Incident

MOST_FOLLOWED = 32  # late_steps.most_collectives


@pytest.fixture
def incident() -> Iterator[Incident]:
    """Eight all-reduces of two ranks on two hosts; the fifth takes twice as long."""
    with Incident.empty() as incident:
        incident.append("ranks", {"job": "j", "rank": [0, 1], "node": ["a", "b"]})
        took = np.where(np.arange(8) == 4, 2_000, 1_000)
        incident.append(
            "op_traffic",
            {
                "job": "j",
                "comm": np.full(8, 7, np.uint64),
                "seq": np.arange(8),
                "kind": "coll",
                "rank": 0,
                "peer": 1,
                "bytes": 4096,
                "started_ns": np.arange(8) * 10_000,
                "ended_ns": np.arange(8) * 10_000 + took,
            },
        )
        yield incident


def test_without_a_word_of_switches_they_are_not_looked_at(incident: Incident) -> None:
    with pytest.raises(MissingEvidence):
        incident.require(["collective_steps"])


def test_a_message_is_late_against_its_own_best(incident: Incident) -> None:
    incident.append(
        "switch_pauses", {"switch": ["s"], "port": [1], "at_ns": [0], "paused": [False]}
    )
    incident.append(
        "flows",
        {"flow": [31], "src_host": ["a"], "dst_host": ["b"], "is_collective": [True]},
    )
    rows = found(incident, "late_steps", "seq, flow, src_host, dst_host, excess_ns, critical")
    assert rows == [(4, 31, "a", "b", 900, True)]  # of what it took more, a tenth may be overhead


def test_what_hosts_traced_goes_before_what_their_traffic_shows(incident: Incident) -> None:
    incident.append(
        "flow_steps",
        {"job": ["j"], "comm": np.array([7], np.uint64), "seq": [9], "flow": [1], "src": [0]}
        | {"dst": [1], "step": [1], "started_ns": [0], "ended_ns": [5]},
    )
    assert found(incident, "collective_steps", "seq") == [(9,)]


def test_of_many_late_collectives_the_worst_are_followed() -> None:
    late = MOST_FOLLOWED + 8
    took = np.concatenate([np.full(100, 1_000), 2_000 + np.arange(late)])
    count = len(took)
    with Incident.empty() as incident:
        incident.append("ranks", {"job": "j", "rank": [0, 1], "node": ["a", "b"]})
        incident.append(
            "op_traffic",
            {
                "job": "j",
                "comm": np.full(count, 7, np.uint64),
                "seq": np.arange(count),
                "kind": "coll",
                "rank": 0,
                "peer": 1,
                "bytes": 4096,
                "started_ns": np.arange(count) * 10_000,
                "ended_ns": np.arange(count) * 10_000 + took,
            },
        )
        incident.append(
            "switch_pauses", {"switch": ["s"], "port": [1], "at_ns": [0], "paused": [False]}
        )
        ((first, last, followed),) = found(
            incident, "late_steps", "min(seq), max(seq), count(DISTINCT seq)"
        )
    assert (first, last, followed) == (count - MOST_FOLLOWED, count - 1, MOST_FOLLOWED)
