"""One number for each rank as last measured, to colour and sort a fleet by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from oncall.core.errors import UsageError
from oncall.core.units import NS_PER_S
from oncall.evidence.incident import Incident
from oncall.views.snapshot import Snapshot

if TYPE_CHECKING:
    import duckdb

MEASURES = ("lag", "rate", "temperature", "power", "NIC")
_RECENT_NS = 30 * NS_PER_S  # a rate is of so long before the moment shown
# A reading by (node, GPU): what no other row says, so that the newest is taken alone.
_GPU = """
    SELECT node, gpu, {column} FROM gpus WHERE {column} IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY node, gpu ORDER BY at_ns DESC) = 1
"""
_NIC = """
    WITH steps AS (
        SELECT node, nic, at_ns, at_ns - lag(at_ns) OVER w AS took_ns,
            tx_bytes + rx_bytes - lag(tx_bytes + rx_bytes) OVER w AS moved
        FROM nics WINDOW w AS (PARTITION BY node, nic, port ORDER BY at_ns))
    SELECT node, nic, sum(moved) * 1e9 / sum(took_ns) FROM steps
    WHERE took_ns > 0 AND moved >= 0 AND at_ns > $since_ns GROUP BY node, nic
"""
# By how many operations a rank is behind its group, where it is furthest behind: a rank that waits
# for another is behind nobody.
_LAG = """
    WITH fronts AS (
        SELECT rank, max(entered_seq) OVER (PARTITION BY job, comm) - entered_seq AS behind
        FROM frontier WHERE entered_seq IS NOT NULL)
    SELECT rank, max(behind) FROM fronts GROUP BY rank
"""
_RATE = """
    SELECT rank, sum(coalesce(stands_for, 1)) FROM operations
    WHERE done IS DISTINCT FROM false AND coalesce(ended_ns, entered_ns) > $since_ns GROUP BY rank
"""


@dataclass(frozen=True, eq=False)
class RankValues:
    """A number for each rank of a snapshot, (n,) in the order of its ranks; NaN: not recorded."""

    measure: str  # lag, rate, temperature, power, NIC
    unit: str
    value: npt.NDArray[np.float64]


def rank_values(incident: Incident, snapshot: Snapshot, measure: str) -> RankValues:
    """One of MEASURES by rank, in the order of the snapshot's; NaN where nothing was recorded.

    Raises UsageError for another, and where it was recorded for no rank.
    """
    con, ranks, at_ns = incident.con, snapshot.ranks, snapshot.moment.at_ns
    since_ns = 0 if at_ns is None else at_ns - _RECENT_NS
    gpus = list(zip(ranks.node, ranks.gpu.tolist(), strict=True))
    nics = list(zip(ranks.node, ranks.nic, strict=True))
    unit = {"lag": "ops", "rate": "ops/s", "temperature": "°C", "power": "W", "NIC": "B/s"}
    match measure:
        case "lag":
            incident.provide_what_can_be(("frontier",))
            behind = dict(con.execute(_LAG).fetchall())
            value = np.array([behind.get(rank, np.nan) for rank in ranks.rank.tolist()], float)
        case "rate":
            incident.provide_what_can_be(("operations",))
            value = _rates(con, ranks.rank.tolist(), since_ns)
        case "temperature":
            value = _of(con, _GPU.format(column="temp_c"), gpus, {})
        case "power":
            value = _of(con, _GPU.format(column="power_w"), gpus, {})
        case "NIC":
            value = _of(con, _NIC, nics, {"since_ns": since_ns})
        case _:
            raise UsageError(f"unknown measure `{measure}`; choose one of {', '.join(MEASURES)}")
    if not np.isfinite(value).any():
        raise UsageError(f"{measure} was recorded for no rank")
    return RankValues(measure, unit[measure], value)


def _of(
    con: duckdb.DuckDBPyConnection,
    sql: str,
    keys: Sequence[tuple[str, object]],
    params: dict[str, int],
) -> npt.NDArray[np.float64]:
    found = {(node, device): value for node, device, value in con.execute(sql, params).fetchall()}
    return np.array([found.get(key, np.nan) for key in keys], dtype=np.float64)


def _rates(
    con: duckdb.DuckDBPyConnection, ranks: list[int], since_ns: int
) -> npt.NDArray[np.float64]:
    """Zero for a rank that completed something earlier and nothing since."""
    ever = {rank for (rank,) in con.execute("SELECT DISTINCT rank FROM operations").fetchall()}
    found = dict(con.execute(_RATE, {"since_ns": since_ns}).fetchall())
    seconds = _RECENT_NS / NS_PER_S
    return np.array(
        [found.get(rank, 0) / seconds if rank in ever else np.nan for rank in ranks],
        dtype=np.float64,
    )
