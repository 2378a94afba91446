"""Which rank's traffic a queue pair carries, and to which rank: both of its sides matched (Pulse
5.1).

A side knows its own number, the number of its peer and the peer's GID, but not its own GID. Two
sides belong together if each names the other. Numbers are counted from low values on every host, so
unrelated sides may name each other too. Then the GID decides: a NIC has the same GID as in those of
its queue pairs whose match is unique. A number that is used again counts from its creation.
"""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "queue_pairs",
    reads=["qps"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("node", "VARCHAR", "", "host"),
        ("nic", "VARCHAR", "", "RDMA device"),
        ("qpn", "UINTEGER", "", "queue pair number"),
        ("created_ns", "BIGINT", "ns", "it is this queue pair's from then on; NULL: always"),
        ("until_ns", "BIGINT", "ns", "... and until then; NULL: to the end"),
        ("rank", "INTEGER", "", "rank that sends on it"),
        ("peer", "INTEGER", "", "rank that receives; NULL: its other side is not recorded"),
        ("peer_side", "UBIGINT", "", "tells receivers apart, known or not"),
        ("comm", "UBIGINT", "", "communicator, as recorded"),
        ("channel", "INTEGER", "", "channel, as recorded"),
        ("how", "VARCHAR", "", "recorded, matched, ambiguous (left out), unmatched"),
    ],
    source="Pulse 5.1",
    at="node",
)
def queue_pairs() -> str:
    """Every queue pair with the ranks at both ends."""
    return """
        WITH sides AS (
            -- The hook and the kernel both tell; what one of them does not know the other may.
            SELECT any_value(job) AS job, node, nic, qpn, created_ns, any_value(rank) AS rank,
                any_value(peer_rank) AS peer_rank, any_value(peer_gid) AS peer_gid,
                any_value(peer_qpn) AS peer_qpn, any_value(comm) AS comm,
                any_value(channel) AS channel
            FROM (SELECT * REPLACE (coalesce(created_ns, min(created_ns) OVER one) AS created_ns)
                  FROM qps WHERE qpn IS NOT NULL
                  WINDOW one AS (PARTITION BY node, nic, qpn))
            GROUP BY node, nic, qpn, created_ns),
        lasting AS (
            SELECT *, row_number() OVER () AS side, lead(created_ns) OVER (
                PARTITION BY node, nic, qpn ORDER BY created_ns) AS until_ns
            FROM sides),
        mirrored AS (
            SELECT a.side, b.side AS other, b.rank AS other_rank, a.peer_gid, b.node AS other_node,
                b.nic AS other_nic, count(*) OVER (PARTITION BY a.side) AS candidates,
                abs(coalesce(a.created_ns - b.created_ns, 0)) AS apart_ns
            FROM lasting a JOIN lasting b ON a.qpn = b.peer_qpn AND a.peer_qpn = b.qpn
                AND a.job IS NOT DISTINCT FROM b.job AND (a.node, a.nic) <> (b.node, b.nic)
                AND coalesce(a.created_ns < b.until_ns, true)
                AND coalesce(b.created_ns < a.until_ns, true)),
        -- Which NIC has which GID: the one that most sides name, those without doubt first.
        gids AS (
            SELECT peer_gid, other_node, other_nic,
                (count(*) FILTER (candidates = 1), count(*)) AS support
            FROM mirrored WHERE peer_gid IS NOT NULL GROUP BY 1, 2, 3
            WINDOW by_gid AS (PARTITION BY peer_gid ORDER BY support DESC)
            QUALIFY row_number() OVER by_gid = 1
                AND support > coalesce(lead(support) OVER by_gid, (-1, -1))),
        fitting AS (
            SELECT m.*, count(*) OVER (PARTITION BY side) AS left_over FROM mirrored m
            WHERE candidates = 1 OR peer_gid IS NULL
                OR EXISTS (FROM gids g WHERE g.peer_gid = m.peer_gid
                           AND g.other_node = m.other_node AND g.other_nic = m.other_nic)),
        matched AS (
            SELECT side, any_value(other_rank) AS peer FROM fitting WHERE left_over = 1
            GROUP BY side)
        SELECT l.job, node, nic, qpn, created_ns, until_ns, rank,
            coalesce(peer_rank, m.peer) AS peer,
            hash(coalesce(peer_rank::VARCHAR, m.peer::VARCHAR, l.peer_gid, peer_qpn::VARCHAR))
                AS peer_side,
            comm, channel,
            CASE WHEN peer_rank IS NOT NULL THEN 'recorded' WHEN m.peer IS NOT NULL THEN 'matched'
                 WHEN EXISTS (FROM mirrored x WHERE x.side = l.side) THEN 'ambiguous'
                 ELSE 'unmatched' END AS how
        FROM lasting l LEFT JOIN matched m USING (side)
    """
