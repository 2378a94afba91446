"""How NCCL set up the network, where that costs bandwidth or chose what it should not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from oncall.analysis.faults.connections import is_unreachable, is_virtual
from oncall.analysis.faults.lines import Attempt, Row, attempts
from oncall.evidence import relation

# Adapters whose NCCL transport never has GPU Direct over verbs.
_WITHOUT_GDR = ("hfi", "qib", "rxe", "siw")

_COLUMNS = (
    ("job", "VARCHAR", "", "the job's name"),
    ("attempt", "INTEGER", "", "start of the job, 1 first"),
    ("problem", "VARCHAR", "", "socket_fallback, gdr_off, wrong_interface, p2p_disabled"),
    (
        "reason",
        "VARCHAR",
        "",
        "no_device, no_verbs, no_plugin, socket, disabled, channels, virtual, local",
    ),
    ("node", "VARCHAR", "", "host, if the text names one"),
    ("nic", "VARCHAR", "", "RDMA device or interface"),
    ("at_ns", "BIGINT", "ns", "stamp of the line"),
    ("path", "VARCHAR", "", "the file"),
    ("line", "BIGINT", "", "its line"),
    ("text", "VARCHAR", "", "what it says"),
    ("nodes", "BIGINT", "nodes", "hosts that the job is known to have; NULL: unknown"),
)


@relation(
    "network_setup",
    reads=["log_events"],
    optional=["jobs", "logged_steps", "watchdog_reports"],
    columns=_COLUMNS,
    source="NCCL's debug output (INIT, NET)",
    params={
        "on_one_node": "delay_causes.few",
    },
)
def network_setup(con: duckdb.DuckDBPyConnection, *, on_one_node: float) -> Mapping[str, Any]:
    """Each problem once a host."""
    rows: list[dict[str, Any]] = []
    for attempt in attempts(con):
        nodes = _nodes(attempt, on_one_node)
        found = [*_fallback(attempt), *_gdr(attempt), *_interfaces(attempt), *_p2p(attempt)]
        rows += [
            {**row, "job": attempt.job, "attempt": attempt.number, "nodes": nodes} for row in found
        ]
    return {name: [row.get(name) for row in rows] for name, *_ in _COLUMNS}


def _nodes(attempt: Attempt, on_one_node: float) -> int | None:
    """The number of hosts, if the log states it or shows that all ranks are on one. Where several
    processes of the only host print, and fewer than the communicator has, there are other hosts."""
    inits = attempt.of("nccl_init")
    stated = [row["number"] for row in inits if row["code"] == "nodes"]
    if stated:
        return int(max(stated))
    hosts = {
        row["node"] for row in attempt.events if row["node"] and row["kind"] in ("nccl_init", "net")
    }
    sizes = [row["number"] for row in inits if row["comm_rank"] is not None]
    if len(hosts) > 1:
        return len(hosts)
    seen = len({row["pid"] for row in attempt.of("nccl_init", "net")})
    if not sizes or max(sizes) > on_one_node or 1 < seen < max(sizes):
        return None
    return 1


def _fallback(attempt: Attempt) -> list[dict[str, Any]]:
    rows = attempt.of("net")
    why = [row for row in rows if row["code"] in ("no_device", "no_verbs", "no_plugin")]
    sockets = [
        row for row in rows if row["code"] == "network" and (row["text"] or "").startswith("Socket")
    ]
    reason = why[0]["code"] if why else "socket"
    return [
        _row("socket_fallback", reason, row, why[0]["text"] if why else row["text"])
        for row in _by_node(sockets)
    ]


def _gdr(attempt: Attempt) -> list[dict[str, Any]]:
    rows = attempt.of("net")
    disabled = _without_gdr(rows)
    if disabled:
        return [_row("gdr_off", "disabled", row) for row in _by_node(disabled)]
    hcas = [row["device"] or "" for row in rows if row["code"] == "hca"]
    able = any(not hca.startswith(_WITHOUT_GDR) for hca in hcas)
    used = any(row["code"] == "channel_gdr" for row in rows)
    without = [row for row in rows if row["code"] == "channel_no_gdr"]
    if used or not able:
        return []
    return [_row("gdr_off", "channels", row) for row in _by_node(without)]


def _without_gdr(rows: Sequence[Row]) -> list[Row]:
    """Adapters without GPU Direct. Where lines are of a GPU and an adapter each, those of a GPU
    that has it with none of its host: with far adapters no GPU has it."""
    able = {_gpu(row) for row in rows if row["code"] == "gdr_enabled"}
    return [
        row
        for row in rows
        if row["code"] == "gdr_disabled" and (_gpu(row)[1] == "" or _gpu(row) not in able)
    ]


def _gpu(row: Row) -> tuple[str | None, str]:
    return row["node"], (row["device"] or "").partition(" of ")[2]


def _interfaces(attempt: Attempt) -> list[dict[str, Any]]:
    chosen = [row for row in attempt.of("net") if row["code"] == "interface"]
    virtual = [row for row in chosen if is_virtual(row["device"])]
    local = [row for row in chosen if is_unreachable(row["peer_host"])]
    return [
        _row("wrong_interface", "virtual" if row in virtual else "local", row)
        for row in _by_node([*virtual, *local])
    ]


def _p2p(attempt: Attempt) -> list[dict[str, Any]]:
    return [
        _row("p2p_disabled", "disabled", row)
        for row in _by_node([row for row in attempt.of("net") if row["code"] == "p2p_disabled"])
    ]


def _row(problem: str, reason: str, row: Row, text: str | None = None) -> dict[str, Any]:
    return {
        "problem": problem,
        "reason": reason,
        "node": row["node"],
        "nic": row["device"],
        "text": text or row["text"],
        **{name: row[name] for name in ("at_ns", "path", "line")},
    }


def _by_node(rows: Sequence[Row]) -> list[Row]:
    first: dict[str | None, Row] = defaultdict(dict)
    for row in rows:
        if row["node"] not in first:
            first[row["node"]] = row
    return list(first.values())
