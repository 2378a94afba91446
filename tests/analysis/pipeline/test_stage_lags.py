"""What a culprit costs over the recording."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import pytest

from oncall.analysis.pipeline.stage_lags import stage_lags
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


@pytest.mark.parametrize(
    ("longer_ns", "iterations", "lag_ns"),
    [
        (0, 12, 0),
        (40, 12, 7 * 40),
        (900, 12, 7 * 500),
        (0, 7, 7 * 500),  # slow in each of them, so that none shows how long they are without it
    ],
)
def test_what_it_slows_is_longer_than_what_it_does_not(
    longer_ns: int, iterations: int, lag_ns: int
) -> None:
    """Seven iterations of 1 us hold a transfer that takes 500 ns more than it should."""
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE training_iterations AS SELECT 'j' AS job, i AS iteration, "
            "1000 + CASE WHEN i < 7 THEN ? ELSE 0 END AS duration_ns, false AS warm_up "
            "FROM range(?) t(i)",
            [longer_ns, iterations],
        )
        con.execute(
            "CREATE TABLE slow_stages AS SELECT job, iteration, 0 AS replica, 1 AS stage, "
            "NULL::INTEGER AS rank, 'n' AS node, true AS network, 500 AS saved_ns, "
            "1000 * iteration AS started_ns FROM training_iterations WHERE iteration < 7"
        )
        con.execute(
            "CREATE TABLE stage_costs AS "
            "SELECT job, iteration, 1500 AS actual_ns, 1000 AS normal_ns FROM slow_stages"
        )
        assert stage_lags.sql is not None
        found = con.execute(
            f"SELECT lag_ns, slow_iterations FROM ({stage_lags.sql})", {"fewest": 3}
        ).fetchall()
    assert found == [(lag_ns, 7)]
