"""Combine evidence that arrived in pieces: one row per operation, and complete rounds only.

An operation is written again at each seal while it is in flight, and comes with a digest and with
a detail. And a digest keeps what each node found notable, so of some rounds only a part arrives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncall.evidence.sampling import is_sampled, number
from oncall.evidence.training_tables import IN_FLIGHT

if TYPE_CHECKING:
    import duckdb

_SEAL_SLACK_NS = 10**9  # one seal looks at rank after rank
_LATEST = 16  # last operations of a rank on a communicator, which show where it is blocked

_KEYS = {
    "ops": "job, comm, kind, seq, rank, op, comm_peer",
    "transfers": "job, comm, kind, seq, rank, channel, comm_peer, direction",
}
# Readings come with a digest and with a detail; the same reading twice is the same.
_READINGS = {
    "nics": "node, nic, port, at_ns",
    "nic_priorities": "node, nic, port, priority, at_ns",
    "gpus": "node, gpu, at_ns",
    "hosts": "node, at_ns",
    "host_processes": "job, rank, node, pid, at_ns",
    "host_events": "node, at_ns, source, code, device, text",
    "pings": "node, nic, target_node, target_nic, kind, at_ns, rtt_ns",
    "devices": "node, kind, device, at_ns",
    "links": "a, a_port, b, b_port",
}


def settle_duplicates(con: duckdb.DuckDBPyConnection) -> None:
    """Of rows of one operation or transfer, keep the one that is over, else the newest; of one
    reading, one; and drop what was in flight once and was not seen so any more."""
    for table, key in _KEYS.items():
        finest = ", stands_for NULLS FIRST" if table == "ops" else ""
        # An operation that failed to start, or that nobody tracks, has no recorded end.
        over = f"{IN_FLIGHT}, " if table == "ops" else ""
        con.execute(
            f"""
            DELETE FROM {table} WHERE rowid IN (
                WITH twice AS (
                    SELECT unnest(list(rowid)) AS row FROM {table} GROUP BY {key}
                    HAVING count(*) > 1)
                SELECT t.rowid FROM {table} t JOIN twice ON t.rowid = twice.row
                QUALIFY row_number() OVER (
                    PARTITION BY {key} ORDER BY {over}ended_ns IS NULL, observed_ns DESC NULLS LAST
                    {finest}) > 1)
            """
        )
    for table, key in _READINGS.items():
        con.execute(
            f"DELETE FROM {table} WHERE rowid IN (SELECT unnest(list(rowid)[2:]) FROM {table} "
            f"GROUP BY {key} HAVING count(*) > 1)"
        )
    # What the kernel tells of a queue pair, it tells again at each seal and at each change.
    con.execute(
        """
        DELETE FROM qps WHERE rowid IN (
            SELECT rowid FROM qps WHERE observed_ns IS NOT NULL
            QUALIFY row_number() OVER (
                PARTITION BY node, nic, qpn, pid ORDER BY observed_ns DESC) > 1)
        """
    )
    con.execute(
        """
        CREATE OR REPLACE TEMP TABLE settled_newest AS
        SELECT job, rank, max(greatest(enqueued_ns, ended_ns, observed_ns)) AS newest_ns
        FROM ops GROUP BY ALL
        """
    )
    for table, open_row in (("ops", IN_FLIGHT), ("transfers", "ended_ns IS NULL")):
        con.execute(
            f"DELETE FROM {table} USING temp.settled_newest n WHERE {open_row} "
            f"AND {table}.job = n.job AND {table}.rank = n.rank "
            f"AND observed_ns < n.newest_ns - {_SEAL_SLACK_NS}"
        )
    con.execute("DROP TABLE temp.settled_newest")


def keep_whole_rounds(con: duckdb.DuckDBPyConnection) -> None:
    """Of thinned rounds keep those that every member left, as a part of a round would show the
    wrong rank as its last, and a part of its links the wrong one as slow; and let each stand for
    as many rounds as the coarsest node kept."""
    _keep_whole_transfers(con)
    if not con.execute("SELECT 1 FROM ops WHERE stands_for > 1 LIMIT 1").fetchall():
        return
    con.execute(
        f"""
        DELETE FROM ops WHERE rowid IN (
            WITH collectives AS (
                SELECT rowid AS row, job, comm, seq, rank, {IN_FLIGHT} AS open
                FROM ops WHERE kind = 'coll'),
            heads AS (SELECT job, comm, rank, max(seq) AS head FROM collectives GROUP BY ALL),
            members AS (SELECT job, comm, count(*) AS ranks FROM heads GROUP BY ALL),
            partial AS (
                SELECT job, comm, seq FROM
                    (SELECT job, comm, seq, count(DISTINCT rank) AS seen
                     FROM collectives GROUP BY ALL)
                JOIN members USING (job, comm) WHERE seen < ranks)
            SELECT row FROM collectives JOIN partial USING (job, comm, seq)
            JOIN heads USING (job, comm, rank)
            WHERE NOT open AND seq <= head - {_LATEST})
        """
    )
    con.execute(
        f"""
        UPDATE ops SET stands_for = CASE WHEN {is_sampled(number("ops"), "s.step")}
            THEN s.step ELSE 1 END
        FROM (SELECT job AS of_job, comm AS of_comm, kind AS of_kind, max(stands_for) AS step
              FROM ops GROUP BY ALL HAVING max(stands_for) > 1) s
        WHERE job = of_job AND comm IS NOT DISTINCT FROM of_comm AND kind = of_kind
        """
    )


def _keep_whole_transfers(con: duckdb.DuckDBPyConnection) -> None:
    """What is over and was sampled finer than on the coarsest node goes; what is kept because it
    is recent stays."""
    con.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE settled_steps AS
        SELECT job, comm, kind, max(stands_for) AS step FROM transfers
        GROUP BY ALL HAVING max(stands_for) > 1;
        DELETE FROM transfers t USING temp.settled_steps s
        WHERE t.job = s.job AND t.comm = s.comm AND t.kind = s.kind AND t.stands_for > 1
            AND NOT {is_sampled("coalesce(t.seq, 0)", "s.step")};
        UPDATE transfers SET stands_for = s.step FROM temp.settled_steps s
        WHERE transfers.job = s.job AND transfers.comm = s.comm AND transfers.kind = s.kind
            AND transfers.stands_for > 1;
        DROP TABLE temp.settled_steps
        """
    )


def name_peers(con: duckdb.DuckDBPyConnection) -> None:
    """Fill `peer`, the global rank, in ops and transfers from `comm_peer` and all members.

    To be called when the memberships of all nodes are there; a peer that left none stays NULL.
    """
    for table in ("ops", "transfers"):
        con.execute(
            f"""
            UPDATE {table} SET peer = c.rank
            FROM (SELECT job, comm, comm_rank, any_value(rank) AS rank FROM comms
                  WHERE comm_rank IS NOT NULL GROUP BY ALL) c
            WHERE {table}.peer IS NULL AND {table}.comm_peer = c.comm_rank
                AND {table}.job = c.job AND {table}.comm = c.comm
            """
        )
