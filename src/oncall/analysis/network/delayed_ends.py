"""Which NIC counters at both ends of a late collective explain why it was late.

What a switch reported needs no inference, so collectives with a root in the network are left out.
Pauses that are counted in frames only have no duration and cannot be weighed.
"""

from __future__ import annotations

from oncall.analysis.network.late_ends import END_COLUMNS
from oncall.evidence import Param, relation


@relation(
    "delayed_ends",
    reads=["late_ends", "network_roots"],
    empty_without=["late_ends"],
    columns=[
        *END_COLUMNS,
        ("stopped", "BOOLEAN", "", "its switch paused it for long enough to make the step late"),
        ("stops", "BOOLEAN", "", "it paused its switch for as long"),
        ("slowed", "BOOLEAN", "", "congestion notifications slowed it for as long"),
        ("repeated", "BOOLEAN", "", "what it sent again took as long"),
        ("shared", "BOOLEAN", "", "other traffic took a good part of its link"),
    ],
    source="Vedrfolnir III-D1, from the hosts' side; DCQCN; IEEE 802.1Qbb",
    params={
        "least_lost": "worst_collectives.least_lost",
        "share": Param(
            "30 %",
            "of what the collective lost, at one end; and of that, by what its NIC counted: less "
            "did not make it late",
        ),
        "paused": Param(
            "2 %",
            "of all the time of the readings, where flows are known as a whole only: of ten "
            "rounds in one reading, one is late",
        ),
        "notice": Param(
            "300 us",
            "a notification halves a rate at most, and half of the way back takes one period of "
            "that length (DCQCN)",
        ),
        "repeat_cost": Param(
            "20 us",
            "a round trip through a queue: the least that a packet costs which is sent again",
        ),
        "full": Param("85 %", "of a link's rate: headers and gaps between packets take the rest"),
        "others": Param(
            "15 %",
            "of the link's rate, the late step's time through: what others took, as far as "
            "readings within it cover it",
        ),
    },
)
def delayed_ends() -> str:
    """The ends where much was lost, with what their NICs' counters explain of it."""
    return """
        WITH counts AS (
            SELECT *, $share * excess_ns AS enough_ns,
                CASE WHEN whole THEN $paused * seen_ns ELSE 0 END AS floor_ns,
                notified * $notice AS notified_ns, repeats * $repeat_cost AS repeats_ns
            FROM late_ends ANTI JOIN network_roots USING (job, comm, seq)
            WHERE lost_ns > $least_lost * took_ns AND excess_ns >= $share * lost_ns)
        SELECT * EXCLUDE (enough_ns, floor_ns, notified_ns, repeats_ns),
            coalesce(rx_pauses > 0
                AND coalesce(rx_paused_ns >= greatest(enough_ns, floor_ns), NOT whole), false)
                AS stopped,
            coalesce(tx_pauses > 0
                AND coalesce(tx_paused_ns >= greatest(enough_ns, floor_ns), NOT whole), false)
                AS stops,
            coalesce(notified_ns >= greatest(enough_ns,
                CASE WHEN whole THEN $share * seen_ns ELSE 0 END), false) AS slowed,
            coalesce(repeats_ns >= greatest(enough_ns, floor_ns), false) AS repeated,
            coalesce(CASE side WHEN 'sender' THEN tx_full >= $full AND tx_others >= $others
                WHEN 'receiver' THEN rx_full >= $full AND rx_others >= $others END, false)
                AS shared
        FROM counts
    """


@relation(
    "delayed_collectives",
    reads=["delayed_ends", "critical_steps"],
    empty_without=["delayed_ends"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("seq", "BIGINT", "", "the collective that stands for its communicator's"),
        ("took_ns", "BIGINT", "ns", "the collective"),
        ("lost_ns", "DOUBLE", "ns", "what it lost"),
    ],
    source="Vedrfolnir III-B",
    params={
        "clearly": Param(
            "10 %",
            "of the collective's time: without a cause in sight, only what nobody would call "
            "scatter is worth a word",
        ),
        "rounds": Param(
            3,
            "rounds of a communicator, where nobody traced them: one among thousands is scatter",
        ),
    },
)
def delayed_collectives() -> str:
    """One collective of each communicator: of those that were traced the one that lost most, else
    the one that lost most of those whose NICs show a cause."""
    return """
        WITH candidates AS (
            SELECT job, comm, seq, any_value(traced) AS traced, any_value(took_ns) AS took_ns,
                any_value(lost_ns) AS lost_ns, coalesce(bool_or(CASE side
                    WHEN 'sender' THEN stopped OR slowed OR repeated OR shared
                    WHEN 'receiver' THEN stops OR repeated OR shared END), false) AS shown,
                coalesce(bool_or(rx_pauses IS NOT NULL) FILTER (side = 'sender')
                    AND bool_or(tx_pauses IS NOT NULL) FILTER (side = 'receiver'), false)
                    AS both_known
            FROM delayed_ends GROUP BY job, comm, seq),
        rounds AS (
            SELECT job, comm, count(DISTINCT seq) AS known FROM critical_steps GROUP BY job, comm),
        chosen AS (
            SELECT * FROM candidates LEFT JOIN rounds USING (job, comm)
            QUALIFY row_number() OVER (PARTITION BY job, comm
                    ORDER BY traced DESC, traced OR shown DESC, lost_ns DESC) = 1
                AND (traced OR count(*) FILTER (shown) OVER (PARTITION BY job, comm)
                    >= least($rounds, coalesce(known, $rounds))))
        SELECT * FROM chosen
        WHERE shown OR (traced AND both_known AND lost_ns > $clearly * took_ns)
    """
