"""An incident on one time axis: what every rank, GPU, NIC and host did, and who waited for whom.

A track is a SELECT over one table or relation, an arrow one over what waits for what. New evidence
is shown by a new entry in TRACKS.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from oncall.evidence.incident import Incident
from oncall.evidence.window import span
from oncall.views.stages.trace import PLACED_TASKS, SENDS


class Event(NamedTuple):
    """Something on a track. Of a rank, else of a node, else of the job. With `until_ns` it lasted,
    with `value` it is a reading, else it is an instant. Unix ns; `about` is a JSON object."""

    rank: int | None
    node: str | None
    thread: str
    name: str
    at_ns: int
    until_ns: int | None
    value: float | None
    about: str


class Arrow(NamedTuple):
    """From an event of a rank to a later or equal instant on another's track, Unix ns."""

    rank: int
    thread: str
    at_ns: int
    to_rank: int
    to_thread: str
    to_ns: int
    name: str


@dataclass(frozen=True)
class Track:
    """`select` yields the fields of Event but those that it leaves NULL, `node` always; it may use
    `$end_ns`, the last instant of the evidence. Times are of the node's clock unless `common`."""

    reads: str
    select: str
    common: bool = False


def _readings(table: str, rank: str, thread: str, *columns: tuple[str, str]) -> list[Track]:
    """A track for each (column, name with its unit) of a table of readings `r`; `rank`: whose."""
    return [
        Track(
            table,
            f"SELECT {rank} AS rank, r.node, {thread} || ' {name}' AS thread, '{name}' AS name, "
            f"r.at_ns, {column}::DOUBLE AS value FROM {table} r WHERE isfinite({column}::DOUBLE)",
        )
        for column, name in columns
    ]


TRACKS = (
    Track(
        "operations",
        # Whose end is not known is as short as can be, unless it is known not to be over.
        """SELECT o.rank, p.node, 'group ' || coalesce(c.role, c.name, printf('0x%x', o.comm),
                'of two') AS thread,
            coalesce(o.op, o.kind) || ' ' || o.seq
                || if(o.done = false, ', not finished', '') AS name,
            coalesce(o.entered_ns, o.called_ns) AS at_ns,
            coalesce(o.ended_ns, CASE WHEN o.done = false THEN
                coalesce(o.observed_ns, $end_ns) ELSE at_ns + coalesce(o.duration_ns, 0) END)
                AS until_ns,
            to_json({communicator: printf('0x%x', o.comm), seq: o.seq, bytes: o.bytes,
                called_ns: o.called_ns, algo: o.algo, proto: o.proto, peer: o.peer,
                sends: o.sends, recvs: o.recvs, represents_rounds: o.stands_for}) AS about
        FROM operations o LEFT JOIN processes p USING (job, rank)
        LEFT JOIN (SELECT job, comm, any_value(name) AS name, any_value(role) AS role
            FROM comms GROUP BY job, comm) c USING (job, comm)""",
    ),
    Track(
        "stage_work",
        f"""WITH {PLACED_TASKS}
        SELECT rank, node, CASE WHEN moves THEN 'sends and receives' ELSE 'tasks' END AS thread,
            replace(task, '_', ' ') || coalesce(' ' || micro_batch, '')
                || CASE WHEN ended_ns IS NULL THEN ', not finished' ELSE '' END AS name,
            started_ns AS at_ns, until_ns,
            to_json({{iteration: iteration, chunk: chunk, stage: stage, pipeline: replica,
                own_ns: own_ns, on_critical_path: critical, slack_ns: slack_ns,
                expected_ns: expected_ns}}) AS about
        FROM placed""",
        common=True,
    ),
    Track(
        "stage_work",
        f"""WITH {PLACED_TASKS}
        SELECT 'critical path of pipeline ' || replica AS thread, replace(task, '_', ' ')
                || coalesce(' ' || micro_batch, '') || ' on rank ' || rank AS name,
            greatest(started_ns, max(until_ns) OVER (PARTITION BY replica ORDER BY started_ns
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS at_ns, until_ns,
            to_json({{iteration: iteration, rank: rank, node: node}}) AS about
        FROM placed WHERE critical QUALIFY until_ns > at_ns""",
        common=True,
    ),
    Track(
        "front",
        """SELECT f.rank, p.node, 'waits' AS thread, 'waits in ' || coalesce(f.op, 'a call') || ' '
                || f.seq AS name, f.since_ns AS at_ns, $end_ns AS until_ns,
            to_json({for_ranks: f.missing, communicator: printf('0x%x', f.comm)}) AS about
        FROM front f LEFT JOIN processes p USING (job, rank)""",
    ),
    Track(
        "front",
        """SELECT f.awaited AS rank, p.node, 'awaited' AS thread,
            'awaited by ' || count(*) || if(count(*) = 1, ' rank', ' ranks') AS name,
            min(f.since_ns) AS at_ns, $end_ns AS until_ns,
            to_json({ranks: list(f.rank ORDER BY f.rank)[:64]}) AS about
        FROM (SELECT * EXCLUDE (missing), unnest(missing) AS awaited FROM front) f
        LEFT JOIN processes p ON (p.job, p.rank) = (f.job, f.awaited) GROUP BY ALL""",
    ),
    Track(
        "thread_stacks",
        """SELECT rank, node, 'stacks' AS thread, frames[1] AS name, at_ns,
            to_json({thread: thread, state: state, frames: frames, file: path}) AS about
        FROM thread_stacks""",
    ),
    Track(
        "log_events",
        """SELECT rank, node, 'log' AS thread, text AS name, coalesce(at_ns, sort_ns) AS at_ns,
            to_json({kind: kind, code: code, file: path, line: line}) AS about FROM log_events""",
    ),
    Track(
        "host_events",
        """SELECT node, source AS thread, text AS name, at_ns,
            to_json({code: code, device: device, file: path, line: line}) AS about
        FROM host_events""",
    ),
    Track(
        "pause_spans",
        """SELECT switch AS node, 'port ' || port AS thread, 'paused' AS name,
            started_ns AS at_ns, ended_ns AS until_ns,
            to_json({by_switch: by_switch, by_port: by_port}) AS about FROM pause_spans""",
        common=True,
    ),
    *_readings(
        # A GPU that several ranks share is shown with the first.
        "gpus", "(SELECT min(rank) FROM processes WHERE node = r.node AND gpu = r.gpu)",
        "'GPU ' || r.gpu",
        ("r.sm_clock_mhz", "SM clock [MHz]"), ("r.utilisation", "busy [0..1]"),
        ("r.power_w", "power [W]"), ("r.temp_c", "temperature [°C]"),
    ),
    *_readings(
        "nic_rates", "NULL::INTEGER", "r.nic || ' port ' || r.port",
        ("r.tx_bytes_per_s", "sends [bytes/s]"), ("r.rx_bytes_per_s", "receives [bytes/s]"),
        ("r.rx_paused", "paused by the network [0..1]"),
        ("r.tx_paused", "pauses the network [0..1]"),
    ),
    *_readings(
        "hosts", "NULL::INTEGER", "'host'",
        ("r.cpu_busy", "CPU busy [0..1]"), ("r.cpu_mhz", "CPU clock [MHz]"),
        ("r.cpu_pressure", "CPU pressure [0..1]"), ("r.io_pressure", "I/O pressure [0..1]"),
        ("r.memory_available_bytes", "memory available [bytes]"),
    ),
)  # fmt: skip
# Each yields the fields of Arrow, and the nodes of both ends.
_ARROWS = (
    Track(
        "front",
        """SELECT f.rank, 'waits' AS thread, f.since_ns AS at_ns, f.awaited AS to_rank,
            'awaited' AS to_thread, f.since_ns AS to_ns, 'waits for' AS name, p.node,
            t.node AS to_node
        FROM (SELECT * EXCLUDE (missing), unnest(missing) AS awaited FROM front) f
        LEFT JOIN processes p USING (job, rank)
        LEFT JOIN processes t ON (t.job, t.rank) = (f.job, f.awaited)
        WHERE f.since_ns IS NOT NULL""",
    ),
    Track("stage_graph", SENDS, common=True),
)
_NO_EVENT = """
    SELECT NULL::INTEGER AS rank, NULL::VARCHAR AS node, '' AS thread, '' AS name,
        $end_ns::BIGINT AS at_ns, $end_ns::BIGINT AS until_ns, NULL::DOUBLE AS value,
        '{}' AS about WHERE false"""
_AT_ONCE = 10_000  # rows fetched


@dataclass(frozen=True)
class Clocks:
    """How many nodes' clocks were aligned, the largest error of an offset, and of how many nodes
    the clock is unknown."""

    aligned: int
    error_ns: int
    unknown: int


def prepare(incident: Incident) -> Clocks:
    """Make ready what tracks read; one whose evidence is missing stays empty."""
    incident.provide_what_can_be(
        ["processes", "clock_offsets", "stage_graph", *(one.reads for one in (*TRACKS, *_ARROWS))]
    )
    ((aligned, error_ns, unknown),) = incident.con.execute(
        "SELECT count(offset_ns), coalesce(max(error_ns), 0), count(*) - count(offset_ns) "
        "FROM (SELECT DISTINCT node FROM processes WHERE node IS NOT NULL) "
        "LEFT JOIN clock_offsets USING (node)"
    ).fetchall()
    return Clocks(aligned, error_ns, unknown)


def events(incident: Incident) -> Iterator[Event]:
    """Every track in turn, each by start, on the common clock. `prepare` comes first."""
    _, end_ns = span(incident.con)
    for track in TRACKS:
        if incident.rows(track.reads):
            found = incident.con.execute(
                f"""SELECT rank, node, thread, name, at_ns - shift_ns, until_ns - shift_ns, value,
                    coalesce(about::VARCHAR, '{{}}')
                FROM ({_NO_EVENT} UNION ALL BY NAME FROM ({track.select}))
                LEFT JOIN clock_offsets USING (node), LATERAL (SELECT {_shift("offset_ns", track)}
                    AS shift_ns)
                WHERE at_ns IS NOT NULL ORDER BY at_ns, rank""",
                {"end_ns": end_ns},
            )
            while rows := found.fetchmany(_AT_ONCE):
                yield from map(Event._make, rows)


def arrows(incident: Incident) -> Iterator[Arrow]:
    """Who waited for whom, and what was sent to whom, on the common clock."""
    for track in _ARROWS:
        if incident.rows(track.reads):
            found = incident.con.execute(
                f"""SELECT rank, thread, at_ns - {_shift("f.offset_ns", track)}, to_rank, to_thread,
                    to_ns - {_shift("t.offset_ns", track)}, name
                FROM ({track.select}) LEFT JOIN clock_offsets f USING (node)
                LEFT JOIN clock_offsets t ON t.node = to_node ORDER BY ALL"""
            )
            while rows := found.fetchmany(_AT_ONCE):
                yield from map(Arrow._make, rows)


def _shift(offset: str, track: Track) -> str:
    return "0" if track.common else f"coalesce({offset}, 0)"
