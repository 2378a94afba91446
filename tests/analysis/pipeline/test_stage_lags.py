"""What a culprit costs over the recording."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncall.evidence import Incident

MS = 1_000_000
Play = Callable[..., Incident]
# Rank 4 is slow in two iterations, and again in one.
COMES_AND_GOES = {(i, 0, 2, m, "forward"): 50 * MS for i in (4, 5, 9) for m in range(8)}


def test_a_state_that_comes_back_is_one_culprit_with_episodes(played: Play) -> None:
    incident = played(delays=COMES_AND_GOES, iterations=14)
    incident.require(["stage_lags"])
    ((rank, slow, episodes, iterations, lag_ns, share),) = incident.con.execute(
        """SELECT rank, slow_iterations, episodes, iterations, lag_ns, share_of_lost
        FROM stage_lags"""
    ).fetchall()
    assert (rank, slow, episodes, iterations) == (4, 3, 2, 12)
    assert lag_ns == pytest.approx(3 * 7 * 50 * MS, rel=0.05)  # seven of eight lie on the path
    assert share > 0.9
