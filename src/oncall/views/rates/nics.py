"""What each port of each NIC sends and receives, from two readings of its counters."""

from __future__ import annotations

from collections.abc import Collection

import duckdb
import numpy as np

from oncall.core.printable import clean
from oncall.views.rates.buckets import SHORTEST_GAP_BUCKETS, Buckets, Floats, Series, baseline_of
from oncall.views.rates.thresholds import RateThresholds

Nic = tuple[str, str]  # node and device


def nic_series(
    con: duckdb.DuckDBPyConnection,
    buckets: Buckets,
    suspects: Collection[Nic],
    only: Nic | None = None,
    thresholds: RateThresholds | None = None,
) -> list[Series]:
    """Bytes a second, those of suspects first; gaps where no counter was read in time."""
    rows = con.execute(
        f"""
        WITH steps AS (
            SELECT node, nic, port, at_ns, at_ns - lag(at_ns) OVER w AS took_ns,
                tx_bytes - lag(tx_bytes) OVER w AS tx, rx_bytes - lag(rx_bytes) OVER w AS rx
            FROM nics WHERE $node IS NULL OR (node = $node AND nic = $nic)
            WINDOW w AS (PARTITION BY node, nic, port ORDER BY at_ns)),
        timed AS (
            SELECT *, median(took_ns) OVER (PARTITION BY node, nic, port) AS median_ns FROM steps
            WHERE took_ns > 0)
        -- A counter that fell was set back; a reading long after the one before gives no rate.
        SELECT node, nic, port, {buckets.sql("at_ns")} AS b,
            sum(tx) FILTER (tx >= 0) * 1e9 / sum(took_ns) FILTER (tx >= 0),
            sum(rx) FILTER (rx >= 0) * 1e9 / sum(took_ns) FILTER (rx >= 0), max(median_ns)
        FROM timed WHERE took_ns <= {SHORTEST_GAP_BUCKETS} * median_ns
        GROUP BY node, nic, port, b HAVING b IS NOT NULL ORDER BY node, nic, port, b
        """,
        {"node": only and only[0], "nic": only and only[1]},
    ).fetchall()
    thresholds = thresholds or RateThresholds()
    values: dict[tuple[str, str, int | None, str], Floats] = {}
    for node, nic, port, place, sent, received, median_ns in rows:
        # Read more rarely than a bucket is long, a reading speaks for the buckets before it, too.
        since = max(0, place + 1 - max(1, round(median_ns / buckets.length_ns)))
        for way, rate in (("tx", sent), ("rx", received)):
            empty = np.full(buckets.count, np.nan)
            value = values.setdefault((node, nic, port, way), empty)
            value[since : place + 1] = np.nan if rate is None else rate
    return [
        Series(
            name=clean(f"{node} {nic}" + (f"/{port}" if port not in (None, 1) else "") + f" {way}"),
            unit="B/s",
            at_ns=buckets.at_ns,
            value=value,
            baseline=baseline_of(value, buckets, thresholds.baseline_part, thresholds.baseline_ns),
            suspect=(node, nic) in suspects,
            group="nics",
            subject=clean(f"nic {node} {nic}"),
        )
        for (node, nic, port, way), value in sorted(
            values.items(), key=lambda item: item[0][:2] not in suspects
        )
    ]
