"""What a digest carries of traffic: enough to judge ten minutes by, in some hundred kilobytes.

Of collectives' traffic one round in 2^k goes, the same rounds on every node (evidence/sampling.py),
and whatever they are those that are not over and each rank's longest of a minute. Group calls have
no number that all ranks share, so their newest go. Of windows of requests go those of stalled queue
pairs, and of each queue pair the fullest of a minute; of raw epochs the newest.
"""

from __future__ import annotations

from oncall.evidence.sampling import is_sampled

THINNED = ("op_traffic", "wr_windows", "epochs")
ROUNDS, CALLS = 8_000, 8_000  # rows of op_traffic: of collectives, of Sends
STUCK = 4_000  # rows of wr_windows
EPOCHS = 50_000
_MINUTE_NS = 60 * 10**9


def thinned_traffic(table: str, source: str) -> str:
    """SQL: the rows that go of `source`, SQL of rows shaped as `table`."""
    match table:
        case "op_traffic":
            return _operations(source)
        case "wr_windows":
            return _windows(source)
    return f"SELECT * FROM ({source}) ORDER BY start_ns DESC LIMIT {EPOCHS}"


def _operations(source: str) -> str:
    sampled = is_sampled("coalesce(seq, 0)", "step")
    a_minute = f"job, comm, rank, kind, op, started_ns // {_MINUTE_NS}"
    return f"""
        -- An operation recorded in flight does not count once its end is recorded.
        WITH recorded AS (
            FROM ({source})
            QUALIFY row_number() OVER (
                PARTITION BY job, comm, kind, seq, rank, op, coalesce(peer, qpn), nic
                ORDER BY ended_ns IS NULL, bytes DESC) = 1),
        steps AS (
            SELECT (2 ** greatest(0, ceil(log2(greatest(count(*), 1) / {ROUNDS}))))::BIGINT AS step
            FROM recorded WHERE kind IS DISTINCT FROM 'p2p')
        SELECT * EXCLUDE (step, nth) FROM (
            SELECT *, row_number() OVER (PARTITION BY kind ORDER BY started_ns DESC) AS nth
            FROM recorded, steps)
        WHERE ended_ns IS NULL
            OR CASE WHEN kind = 'p2p' THEN nth <= {CALLS} ELSE {sampled} END
        UNION
        SELECT * FROM recorded
        QUALIFY row_number() OVER (PARTITION BY {a_minute} ORDER BY active_ns DESC) = 1
    """


def _windows(source: str) -> str:
    return f"""
        WITH recorded AS ({source})
        SELECT * FROM (SELECT * FROM recorded WHERE oldest_ns IS NOT NULL
                       ORDER BY end_ns DESC LIMIT {STUCK})
        UNION
        SELECT * FROM recorded
        QUALIFY row_number() OVER (
            PARTITION BY node, nic, qpn, end_ns // {_MINUTE_NS} ORDER BY outstanding DESC) = 1
    """
