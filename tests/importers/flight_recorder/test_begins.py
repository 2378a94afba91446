"""With TORCH_NCCL_ENABLE_TIMING dumps show which GPU did not begin an open collective."""

from __future__ import annotations

import pytest

from oncall.evidence.incident import Incident
from oncall.importers import flight_recorder

WORLD = {"0": ("default_pg", range(4))}
DUMPED_NS = 1_760_000_600_000_000_000


@pytest.mark.parametrize(
    ("states", "unbegun"),
    [
        (["started", "started", "scheduled", "started"], [2]),
        (["scheduled"] * 4, []),  # without timing no state is ever "started"
        (["started"] * 4, []),
    ],
)
def test_the_gpu_that_did_not_begin_is_the_one_that_all_wait_for(fr, states, unbegun, tmp_path):
    for rank, state in enumerate(states):
        # The watchdog sees that it began when it writes the dump, ten minutes later.
        seen = {"time_discovered_started_ns": DUMPED_NS} if state == "started" else {}
        stuck = fr.stuck(1, 2, state=state, **seen)
        fr.write(tmp_path, rank, fr.dump([fr.entry(0, 1, duration_ms=1.5), stuck], WORLD))
    with Incident.empty() as incident:
        flight_recorder.read(sorted(tmp_path.iterdir()), incident, "llama")
        incident.require(["hang_suspects"])
        found = incident.con.execute("SELECT rank FROM hang_suspects WHERE reason = 'unbegun'")
        assert [rank for (rank,) in found.fetchall()] == unbegun
        ((began, called),) = incident.con.execute(
            "SELECT min(started_ns), min(enqueued_ns) FROM ops WHERE NOT done AND rank = 0"
        ).fetchall()
    assert began == (called if states[0] == "started" else None)
