"""What each attempt of a job failed of, as its logs say: the root cause before its consequences."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

import duckdb

from oncall.analysis.faults.failures import count_echoes, stated_causes
from oncall.analysis.faults.hangs import hang_cause
from oncall.analysis.faults.lines import Attempt, Cause, Row, attempts, caused
from oncall.core.nodeset import named_ranks
from oncall.evidence import relation
from oncall.evidence.relations import Param

_GPU: Final = ("gpu", "nvlink", "fabric", "cpu", "kernel")
_ANY: Final = (*_GPU, "nic", "pcie", "memory", "limit", "process", "storage", "host")

_OF_CAUSE: Final[Mapping[str, tuple[str, ...]]] = {
    "xid": _GPU,
    "ecc": ("gpu",),
    "gpu_error": _GPU,
    "nvls": _GPU,
    "fabric_manager": _GPU,
    "oom_host": ("process",),
    "data_loader": ("storage", "memory", "cpu", "process"),
    "link_down": ("nic",),
    **dict.fromkeys(("ib_error", "init_hang", "node_failed", "terminated"), _ANY),
}

_CRASH = r"^crash:|[Ss]egmentation fault|[Bb]us error|SIG(?:SEGV|BUS|ILL)"
_ON_GPU = r"CUDA|NVML|\bGPU|^(?:busy|other):"
_DAMAGED = r"[Cc]orrupt|[Cc]hecksum"
# By the words of an error, its type first.
_OF_ERROR: Final = tuple(
    (part, re.compile(words))
    for part, words in (
        ("gpu", rf"{_CRASH}|{_ON_GPU}|CUBLAS|CUDNN|CUSOLVER|HIP|HSA|Accelerator|DEVICE_LOST"),
        ("nvlink", _ON_GPU),
        ("fabric", rf"{_ON_GPU}|NVLS|[Ff]abric"),
        ("nic", r"[Nn]etwork|[Ss]ocket|[Cc]onnect|[Uu]nreachable|RDMA|UCX|OFI|[Ii]bv"),
        ("storage", r"^OSError|I/O error|Input/output|[Ss]tale file|[Bb]us error|[Tt]imed? ?out"),
        ("memory", rf"{_CRASH}|{_DAMAGED}"),
        ("cpu", rf"{_CRASH}|{_DAMAGED}|[Tt]imed? ?out"),
        ("kernel", rf"{_CRASH}|{_ON_GPU}|[Tt]imed? ?out"),
        ("limit", r"^OSError|[Tt]oo many open files"),
        ("process", rf"{_CRASH}|[Kk]illed|[Mm]emory|DataLoaderWorker"),
    )
)
# Errors that only show that another process is gone, and exit codes, which say nothing of why.
_UNSAID: Final = ("echo", "warning", "exit")


def devices_behind(cause: Mapping[str, Any]) -> list[str]:
    """The kinds of device, as in the event catalogue; none where the program did it itself."""
    if cause["cause"] != "error":
        return list(_OF_CAUSE.get(cause["cause"], ()))
    if cause["reason"] in _UNSAID:
        return list(_ANY)
    said = f"{cause['reason']}: {cause['text'] or ''}"
    return [part for part, words in _OF_ERROR if words.search(said)]


# Reports in a row of requests that run and no token; vLLM reports every ten seconds, and a long
# prompt is worked on for less.
_REPORTS = 6
# Lines in a row that workers read nothing: each is a minute. While a server starts it loads and
# compiles for many minutes.
_MINUTES, _MINUTES_OF_START = 2, 15


def server_cause(attempt: Attempt) -> list[Cause]:
    """One row, of no rank: servers print no word of the worker that hangs."""
    rows = attempt.of("server")
    if not rows:
        return []
    answers = [row for row in attempt.of("served") if row["path"] == rows[-1]["path"]]
    last = max((row["line"] for row in answers), default=0)
    open_rows = [row for row in rows if row["path"] == rows[-1]["path"] and row["line"] > last]
    watchdogs = [row for row in open_rows if row["code"] == "watchdog"]
    stated = [row for row in open_rows if row["code"] == "no_answer"]
    waits = [row for row in open_rows if row["code"] == "no_block"]
    idle = [row for row in open_rows if row["code"] == "no_token"]
    about = {"rank": None, "node": None}
    if watchdogs:
        ranks = {row["rank"] for row in watchdogs if row["rank"] is not None}
        said = watchdogs[0]["text"] + (f", printed by {named_ranks(ranks)}" if ranks else "")
        return [caused("all_waiting", "forward", {**watchdogs[0], **about, "text": said})]
    if stated:
        return [caused("server_hung", "stated", {**stated[0], **about})]
    if len(waits) >= (_MINUTES if answers or idle else _MINUTES_OF_START):
        said = f"its workers have read nothing for {_minutes(waits)} min"
        return [caused("server_hung", "waits", {**waits[0], **about, "text": said})]
    if len(idle) >= _REPORTS:
        count = idle[-1]["number"]
        said = f"{count} {'request runs' if count == 1 else 'requests run'} and no token comes"
        return [caused("server_hung", "idle", {**idle[0], **about, "text": said})]
    return []


def _minutes(waits: list[Row]) -> int:
    return sum(row["number"] or 60 for row in waits) // 60


# Hardware explains whatever else is in a log, and whenever: its lines come late or from elsewhere.
# Then whatever a line states, in order; then what follows from waiting ranks; exit codes say least.
_FIRST = {"xid", "ecc", "link_down", "node_failed"}
_KERNEL = {("oom_host", who) for who in ("kernel", "ray", "pod")}
# A job that does not start because another of its processes failed.
_AFTER_OTHERS = ("store", "store_get", "rendezvous", "gloo", "connect", "socket", "clique")
_WEAK = {
    *(("error", "exit"), ("terminated", "ended"), ("terminated", "process")),
    *(("all_waiting", "report"), ("ib_error", "status_5"), ("oom_host", "worker")),
    # A peer that refuses a connection may be one that failed: its own error says more.
    *(("init_hang", reason) for reason in _AFTER_OTHERS),
}
# An error that follows from another's end: only where nothing else is known.
_LAST = {
    *(
        ("error", "warning"),
        ("error", "echo"),
        ("sharp_off", "collnet"),
        ("all_waiting", "reported"),
    ),
}
# These end a job that hangs, too: after a timeout they are its consequence.
_ENDS = {"terminated", "ib_error", "init_hang", "wrong_interface", "oom_host", "error"}

_COLUMNS = (
    "attempt",
    (
        "cause",
        "VARCHAR",
        "",
        "xid, gpu_program, ecc, gpu_error, oom_gpu, oom_host, link_down, ib_error, mismatch, "
        "not_joined, all_waiting, long_phase, heartbeat, data_loader, server_hung, version, nvls, "
        "sharp_off, fabric_manager, init_hang, wrong_interface, error, terminated, node_failed",
    ),
    ("reason", "VARCHAR", "", "by what it shows: a code, a status, watchdog, ..."),
    ("rank", "INTEGER", "", "global rank, if the text names one"),
    ("node", "VARCHAR", "", "host, if the text names one"),
    ("gpu", "VARCHAR", "", "PCI address of a GPU"),
    ("nic", "VARCHAR", "", "RDMA device"),
    ("link", "VARCHAR", "", "both ends of a connection, as host name and address"),
    ("peer_host", "VARCHAR", "", "the other end, as the line names it"),
    ("number", "BIGINT", "", "completion status, or ranks that were expected"),
    ("at_ns", "BIGINT", "ns", "stamp of the line"),
    (
        "until_ns",
        "BIGINT",
        "ns",
        "it was no later: the next stamp, or begin of the wait for it",
    ),
    "path line",
    ("text", "VARCHAR", "", "what it says"),
    ("seq", "BIGINT", "", "number of the collective"),
    ("op", "VARCHAR", "", "the collective"),
    ("process_group", "VARCHAR", "", "the process group"),
    ("waiting", "BIGINT", "ranks", "ranks that wait; of ib_error: hosts that name the peer"),
    ("size", "BIGINT", "ranks", "ranks of the group, if known"),
    ("least", "BIGINT", "ranks", "how many it has at least, by the ranks and tasks of lines"),
    ("timeout_ns", "BIGINT", "ns", "the watchdog's timeout"),
    ("waited_ns", "BIGINT", "ns", "how long it waited"),
    ("consequences", "BIGINT", "lines", "later lines that only follow from it"),
    ("parts", "VARCHAR[]", "", "kinds of device that can have brought it about"),
    ("fatal", "BOOLEAN", "", "of an Xid: whether the line says that it is fatal"),
    ("outlived", "BOOLEAN", "", "the launcher started the job again, and that start trained on"),
)
_STEPS = 3  # of a later start: it trains, whatever ended this one


@dataclass(frozen=True)
class _Ranked:
    """The rows of one cause, and how close to the root it is."""

    tier: int
    rows: Sequence[Cause]

    @property
    def key(self) -> tuple[int, int]:
        return self.tier, min(row["place"] for row in self.rows)


@relation(
    "log_causes",
    reads=["log_events|watchdog_reports|logged_steps"],
    optional=["jobs", "log_events", "watchdog_reports", "logged_steps"],
    columns=[
        "job",
        *_COLUMNS,
    ],
    source="PyTorch and NCCL sources; first error against cascade",
    params={
        "few": Param(
            "25 %",
            "this share of a group without a timeout did not join; more is rather a log cut short",
        )
    },
)
def log_causes(con: duckdb.DuckDBPyConnection, *, few: float) -> Mapping[str, Any]:
    """The root cause of each attempt, a row for each rank, host, GPU or link that it blames."""
    starts = attempts(con)
    rows = [
        {**row, "job": start.job, "attempt": start.number, "outlived": _is_outlived(start, starts)}
        for start in starts
        for row in _root(start, few)
    ]
    return {one.name: [row.get(one.name) for row in rows] for one in log_causes.columns}


def _is_outlived(start: Attempt, starts: Sequence[Attempt]) -> bool:
    """Whether the same launcher's next starts of the job got it going again."""
    later = [one for one in starts if one.job == start.job and one.number > start.number]
    restarts = takewhile(lambda one: one.is_restart, later)
    return any(len(one.steps) >= _STEPS for one in restarts)


def _root(attempt: Attempt, few: float) -> Sequence[Cause]:
    stated, hang = stated_causes(attempt), hang_cause(attempt, few)
    gave_up = [row for row in attempt.reports if row["kind"] in ("timeout", "local_dump")]
    gave_up += [row for row in attempt.of("server") if row["code"] == "watchdog"]
    began = min((row["place"] for row in gave_up), default=None)
    ranked = [_Ranked(_tier(rows, began), rows) for rows in stated]
    ranked += [_Ranked(2, rows) for rows in (hang, server_cause(attempt)) if rows]
    if not ranked:
        return []
    root = min(ranked, key=lambda one: one.key)
    followed = count_echoes(attempt, root.key[1])
    # An agent says whose process ended before srun says which of its own did.
    homes = {
        row["rank"]: row["node"]
        for row in reversed(attempt.of("exit", "process"))
        if None not in (row["rank"], row["node"])
    }
    return [
        {
            **row,
            "node": row.get("node") or homes.get(row["rank"]),
            "until_ns": _before(row, attempt),
            "consequences": followed,
            "parts": devices_behind(row),
        }
        for row in root.rows
    ]


def _before(row: Cause, attempt: Attempt) -> int | None:
    """Until when it happened, where its line has no stamp: the next stamp, and of a rank that did
    not time out, when the others began to wait."""
    if row["at_ns"] is not None:
        return None
    timeouts = [one for one in attempt.reports if one["kind"] == "timeout"]
    waited = row["cause"] == "error" and row["rank"] not in {one["rank"] for one in timeouts}
    began = [
        one["at_ns"] - (one["waited_ns"] or 0)
        for one in timeouts
        if waited and one["at_ns"] is not None
    ]
    known = [*began, *([row["before_ns"]] if row.get("before_ns") else [])]
    return min(known, default=None)


def _tier(rows: Sequence[Cause], began: int | None) -> int:
    cause, reason = rows[0]["cause"], rows[0]["reason"]
    if cause in _FIRST or (cause, reason) in _KERNEL:
        return 0
    if (cause, reason) in _LAST:
        return 4
    if (cause, reason) in _WEAK:
        return 3
    after = began is not None and rows[0]["place"] > began
    return 3 if after and cause in _ENDS and not _of_another_rank(rows) else 1


def _of_another_rank(rows: Sequence[Cause]) -> bool:
    """An error of a rank that did not time out is no consequence of the timeout."""
    return rows[0]["cause"] == "error" and rows[0]["rank"] is not None
