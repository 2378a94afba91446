"""An incident as rows of the archive: from a diagnosis in its JSON contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

import duckdb

from oncall.archive.layout import DEVICES, Device, Measure
from oncall.core.errors import Unreadable

_LONGEST = 500  # characters of a name or a title
_VERSIONS = (2,)
Row = dict[str, Any]


def rows_of(
    document: Any, cluster: str, written_ns: int, hosts: Mapping[int, str] | None = None
) -> list[Row]:
    """A row for each finding and each component that it blames, one row if nothing was found.

    `document` is what `oncall diagnose --format json` writes, perhaps damaged; `hosts` names the
    host of a rank where a blame does not. Raises Unreadable if it is no diagnosis, or without the
    times that say which incident it is.
    """
    if not isinstance(document, dict) or "findings" not in document:
        raise Unreadable("not a diagnosis of oncall: expected `oncall diagnose --format json`")
    if document.get("schema") not in _VERSIONS:
        raise Unreadable(f"schema {document.get('schema')!r} is not read; known: {_VERSIONS[0]}")
    try:
        return list(_rows(document, cluster, written_ns, hosts or {}))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"a damaged diagnosis: {type(error).__name__}: {error}") from error


def _rows(
    document: Mapping[str, Any], cluster: str, written_ns: int, hosts: Mapping[int, str]
) -> Iterator[Row]:
    job = _text(document["job"]) or "unnamed"
    since_ns, until_ns = (_instant(document["window"][name]) for name in ("since_ns", "until_ns"))
    if until_ns is None:
        raise Unreadable("the evidence has no times: when it happened is unknown")
    whole = {
        "incident": incident_id(cluster, job, since_ns, until_ns),
        "written_ns": written_ns,
        "cluster": cluster,
        "job": job,
        "since_ns": since_ns,
        "until_ns": until_ns,
        "result": _text(document["result"]),
    }
    if not document["findings"]:
        yield {**whole, "at_ns": until_ns}
    for finding in document["findings"]:
        at_ns = _instant(finding["at_ns"])
        about = {
            "finding": _text(finding["id"]),
            "rulebook": _text(finding["rulebook"]),
            "verdict": _text(finding["verdict"]),
            "title": _text(finding["title"]),
            "fault_class": _text(finding["class"]),
            "severity": _text(finding["severity"]),
            "confidence": float(finding["confidence"]),
            "explained_by": _text(finding["explained_by"]),
            "at_ns": until_ns if at_ns is None else at_ns,
        }
        for blamed in {tuple(sorted(one.items())) for one in _blamed(finding, hosts)} or {()}:
            yield {**whole, **about, **dict(blamed)}


def incident_id(cluster: str, job: str, since_ns: int | None, until_ns: int) -> str:
    """Twelve hexadecimal digits: the same incident, whoever adds it, has the same."""
    named = "\0".join((cluster, job, str(since_ns), str(until_ns)))
    return blake2b(named.encode(), digest_size=6).hexdigest()


def _blamed(finding: Mapping[str, Any], hosts: Mapping[int, str]) -> Iterator[Row]:
    for blame in finding["blame"]:
        rank = blame.get("rank")
        rank = rank if isinstance(rank, int) and 0 <= rank < 2**31 else None
        node = _text(blame.get("node")) or (hosts.get(rank) if rank is not None else None)
        yield {
            "kind": _text(blame["kind"]),
            "node": node,
            "component": component_of(blame, node),
            "rank": rank,
        }


def component_of(blame: Mapping[str, Any], node: str | None) -> str | None:
    """What is blamed by the name of the hardware, such as `gpu017/mlx5_3`: the device on its host,
    a rank's host, a link; None for what is no hardware, such as a communicator."""
    kind = blame["kind"]
    name = _text(blame.get("nic") if kind == "port" and blame.get("nic") else blame.get(kind))
    if kind in ("rank", "node"):
        return node
    if kind in ("gpu", "nic", "port", "link") and name:
        name = f"gpu{name}" if kind == "gpu" and name.isdecimal() else name
        return f"{node}/{name}" if node else name
    return None


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, (dict, list)):
        return None
    return "".join(c if c.isprintable() else "\ufffd" for c in str(value)[:_LONGEST])


def _instant(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
        raise ValueError(f"{value!r} is no instant")
    return value


# Hourly roll-ups of what collectors measured: about one row an hour of each GPU, NIC and host.

_HOUR_NS = 3600 * 10**9
_HOW = {"mean": "avg", "max": "max", "min": "min", "gained": "sum"}


def hours_of(con: duckdb.DuckDBPyConnection, cluster: str, job: str, written_ns: int) -> str:
    """A SELECT, for the connection of an incident, of the hours that it measured."""
    name = {"cluster": cluster, "job": job}
    for part in name:
        con.execute(f"SET VARIABLE archived_{part} = ?", [name[part]])
    return " UNION ALL BY NAME ".join(_hours(device, written_ns) for device in DEVICES)


def _hours(device: Device, written_ns: int) -> str:
    gained = [one for one in device.measures if one.how == "gained"]
    deltas = ", ".join(f"{_gained(one.source)} AS {one.source}" for one in gained)
    others = ", ".join(one.source for one in device.measures if one.how != "gained")
    columns = ", ".join(part for part in (others, deltas) if part)
    port = ", port" if device.kind == "nic" else ""
    return f"""
        SELECT {written_ns}::BIGINT AS written_ns, getvariable('archived_cluster') AS cluster,
          getvariable('archived_job') AS job, at_ns - at_ns % {_HOUR_NS} AS hour_ns, node,
          '{device.kind}' AS kind, device, count(*) AS readings,
          {", ".join(map(_aggregate, device.measures))}
        FROM (SELECT node, at_ns, ({device.device})::VARCHAR AS device, {columns}
              FROM {device.table} WHERE at_ns IS NOT NULL AND node IS NOT NULL
              WINDOW in_time AS (PARTITION BY node, {device.device}{port} ORDER BY at_ns))
        GROUP BY ALL
    """


def _gained(counter: str) -> str:
    """What a counter gained since the reading before; unknown if it was reset meanwhile."""
    delta = f"{counter} - lag({counter}) OVER in_time"
    return f"CASE WHEN {delta} >= 0 THEN {delta} END"


def _aggregate(measure: Measure) -> str:
    column = measure.column
    return f"{_HOW[measure.how]}({measure.source})::{column.type} AS {column.name}"
