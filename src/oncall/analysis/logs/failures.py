"""Causes that a line states outright: hardware, memory, errors of a process, signals, network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from oncall.analysis.logs.echoes import ENDED_BY_OTHERS, is_echo
from oncall.analysis.logs.lines import Attempt, Row
from oncall.core.nodeset import fold_ranks

Cause = dict[str, Any]

# Xids that a program causes, or that only clean up after another: never the root beside others.
_OF_PROGRAMS = {"8", "13", "31", "43", "45", "68", "69", "137"}
_KILLED = {"-9", "137"}
_LINK = {"port_error", "port_err", "fatal", "down", "device_fatal", "local_catastrophic_error"}
_HARDWARE = {"ecc": "ecc", "nvlink": "gpu_error", "gpu": "gpu_error", "illegal_access": "gpu_error"}


def stated_causes(attempt: Attempt) -> list[list[Cause]]:
    """Each cause that lines state, as the rows of what they blame."""
    found = [
        *(make(attempt) for make in _MAKERS),
    ]
    return [rows for rows in found if rows]


def _cause(name: str, reason: str, row: Row, **more: Any) -> Cause:
    columns = ("place", "at_ns", "path", "line", "rank", "node", "text", "seq", "process_group")
    return {"cause": name, "reason": reason, **{one: row[one] for one in columns}, **more}


def _xids(attempt: Attempt) -> list[Cause]:
    """The first Xid that a GPU caused by itself, on all GPUs that report it."""
    xids = [row for row in attempt.of("xid") if row["number"] is None]
    hardware = [row for row in xids if row["code"] not in _OF_PROGRAMS]
    switches = attempt.of("sxid")
    first = (hardware or switches or xids)[:1]
    if not first:
        return []
    same = [
        row
        for row in (hardware or switches or xids)
        if (row["kind"], row["code"]) == (first[0]["kind"], first[0]["code"])
    ]
    return [_of_xid(row) for row in _once(same, "device")]


def _of_xid(row: Row) -> Cause:
    if row["kind"] == "xid":
        return _cause("xid", f"Xid {row['code']}", row, gpu=row["device"])
    about = {**row, "text": f"NVSwitch {row['device']}: {row['text']}"}
    return _cause("xid", f"SXid {row['code']}", about)


def _gpu_errors(attempt: Attempt) -> list[Cause]:
    rows = [row for row in attempt.of("cuda") if row["code"] in _HARDWARE]
    ecc = [row for row in rows if row["code"] == "ecc"]
    chosen = _first_known(ecc or rows)
    return [_cause(_HARDWARE[row["code"]], row["code"], row) for row in chosen]


def _gpu_memory(attempt: Attempt) -> list[Cause]:
    rows = [row for row in attempt.fatal("memory") if row["code"] == "gpu"]
    first = _first_known(rows)
    near = [row for row in rows if row["rank"] is not None]
    return [_cause("oom_gpu", "memory", row) for row in _once(near, "rank")[:1] or first]


def _host_memory(attempt: Attempt) -> list[Cause]:
    rows = [row for row in attempt.of("memory") if row["code"] == "host"]
    by_pid = {row["pid"]: row["rank"] for row in attempt.of("exit") if row["rank"] is not None}
    return [
        _cause("oom_host", "kernel", {**row, "rank": row["rank"] or by_pid.get(row["pid"])})
        for row in _first_known(rows)
    ]


def _killed(attempt: Attempt) -> list[Cause]:
    rows = [row for row in attempt.fatal("exit") if row["code"] in _KILLED]
    stopped = attempt.fatal("scheduler", "signal")
    if stopped and rows and stopped[0]["place"] < rows[0]["place"]:
        return []
    return [_cause("oom_host", "killed", row) for row in _once_known(rows)]


def _failed_nodes(attempt: Attempt) -> list[Cause]:
    """Nodes that the scheduler names as failed; that it ended the job for one names none."""
    rows = [row for row in attempt.of("scheduler") if row["code"] == "node_failed"]
    return [_cause("node_failed", "scheduler", row) for row in _once(rows, "node")]


def _link_down(attempt: Attempt) -> list[Cause]:
    rows = [row for row in attempt.of("port") if row["code"] in _LINK]
    return [_cause("link_down", row["code"], row, nic=row["device"]) for row in _once(rows, "node")]


def _completions(attempt: Attempt) -> list[Cause]:
    """Completion errors; 5 (flushed) follows from another. A peer that several hosts name is it."""
    rows = [row for row in attempt.of("ib") if row["code"] != "5"] or attempt.of("ib")
    if not rows:
        return []
    # A line without a host repeats another, as PyTorch's exception repeats NCCL's last error.
    reporters: dict[Any, set[Any]] = {row["peer_host"]: set() for row in rows}
    for row in rows:
        reporters[row["peer_host"]] |= {row["node"]} - {None}
    peer, hosts = max(reporters.items(), key=lambda pair: len(pair[1]))
    if len(hosts) > 1:
        row = next(row for row in rows if row["peer_host"] == peer)
        return [
            _cause(
                "ib_error",
                "one_peer",
                {**row, "node": peer, "rank": None},
                peer_host=peer,
                waiting=len(hosts),
                number=_status(row),
            )
        ]
    return [
        _cause(
            "ib_error",
            f"status_{row['code']}" if _status(row) is not None else row["code"],
            row,
            peer_host=row["peer_host"],
            number=_status(row),
            nic=row["device"],
            link=_link(row),
        )
        for row in _once(rows, "node", "peer_host")[:1]
    ]


def _status(row: Row) -> int | None:
    """The completion status, where the transport prints one."""
    return int(row["code"]) if row["code"].isdecimal() else None


def _link(row: Row) -> str | None:
    return f"{row['node']} - {row['peer_host']}" if row["node"] and row["peer_host"] else None


def _mismatches(attempt: Attempt) -> list[Cause]:
    rows = attempt.of("mismatch")
    if not rows:
        return []
    first = rows[0]
    if first["code"] == "sizes":
        link, peer = _link(first), first["peer_host"]
        return [_cause("mismatch", "sizes", {**first, "rank": None}, peer_host=peer, link=link)]
    same = _once([row for row in rows if _operation(row) == _operation(first)], "rank")
    if first["code"] == "fingerprint":
        return _minority(same)
    return [_cause("mismatch", row["code"], row) for row in same]


def _operation(row: Row) -> tuple[str, int | None]:
    return row["code"], row["seq"]


def _minority(rows: Sequence[Row]) -> list[Cause]:
    """The ranks whose call differs from what most call; all of them where none is most common."""
    calls = Counter(row["text"] for row in rows).most_common()
    (usual, most), *others = calls
    tie = not others or others[0][1] == most
    said = "; ".join(
        f"{_ranks(row['rank'] for row in rows if row['text'] == call)}: {call}" for call, _ in calls
    )
    return [
        _cause("mismatch", "fingerprint", {**row, "text": said})
        for row in rows
        if tie or row["text"] != usual
    ]


def _ranks(ranks: Iterable[int]) -> str:
    named = sorted(ranks)
    return f"{'rank' if len(named) == 1 else 'ranks'} {fold_ranks(named)}"


def _desync(attempt: Attempt) -> list[Cause]:
    rows = attempt.of("desync")
    absent = [row for row in rows if row["code"] == "absent"]
    if absent:
        return [_cause("not_joined", "report", row) for row in _once(absent, "rank")]
    # It lists every group apart, and victims of the first as absent from the others.
    by_tool = [row for row in rows if row["code"] == "torchfrtrace"]
    if by_tool:
        first = [row for row in by_tool if row["line"] == by_tool[0]["line"]]
        return [_cause("not_joined", "torchfrtrace", row) for row in first]
    return [_cause("all_waiting", "report", {**row, "rank": None}) for row in rows[:1]]


def _versions(attempt: Attempt) -> list[Cause]:
    rows = attempt.of("version")
    if rows:
        if rows[0]["code"] == "stated":
            return [_cause("version", "stated", row) for row in _once(rows, "rank")]
        return [_cause("version", rows[0]["code"], rows[0])]
    loaded: dict[str, Row] = {}
    for row in attempt.of("nccl_version"):
        loaded.setdefault(row["code"], row)
    if len(loaded) < 2:
        return []
    said = " and ".join(sorted(loaded))
    return [_cause("version", "loaded", {**row, "text": said}) for row in loaded.values()]


def _nvls(attempt: Attempt) -> list[Cause]:
    rows = attempt.of("nvls")
    return [_cause("nvls", row["code"], row) for row in _once_known(rows, "node")]


def _fabric(attempt: Attempt) -> list[Cause]:
    rows = attempt.of("fabric") + [row for row in attempt.of("cuda") if row["code"] == "system"]
    return [_cause("fabric_manager", "fabric", row) for row in _once_known(rows, "node")]


def _init(attempt: Attempt) -> list[Cause]:
    begun = [row["place"] for row in attempt.of("nccl_init") if row["code"] == "complete"]
    rows = [
        row
        for row in attempt.of("init")
        if not attempt.went_on_after(row, 1) and row["place"] > max(begun, default=0)
    ]
    strong = [
        row for row in rows if row["code"] not in ("store", "store_get", "rendezvous", "gloo")
    ]
    # Who reports that others did not come is no culprit; who cannot reach an address may be one.
    return [
        _cause(
            "init_hang",
            row["code"],
            {**row, "rank": None, "node": row["node"] if _is_own(row) else None},
            peer_host=row["peer_host"],
            link=_link(row),
            number=row["number"],
        )
        for row in (strong or rows)[:1]
    ]


def _is_own(row: Row) -> bool:
    """Whether the host that prints the line may be the one at fault."""
    return row["peer_host"] is not None or row["code"] in ("no_interface", "port_in_use")


def _half_made(attempt: Attempt) -> list[Cause]:
    """Communicators that processes began to make and that were not complete when the log ends."""
    inits = [row for row in attempt.of("nccl_init") if row["comm_rank"] is not None]
    done = {
        (row["process_group"], row["node"], row["comm_rank"])
        for row in inits
        if row["code"] == "complete"
    }
    begun = [row for row in inits if row["code"] == "start"]
    groups_done = {group for group, _, _ in done}
    open_ = [row for row in begun if row["process_group"] not in groups_done]
    if (
        not open_
        or attempt.steps
        or any((row["code"] or "").startswith("channel_") for row in attempt.of("net"))
        or not attempt.events
        or attempt.events[-1]["kind"] not in ("nccl_init", "net", "echo", "init")
    ):
        return []
    first = open_[0]
    here = {row["comm_rank"] for row in begun if row["process_group"] == first["process_group"]}
    size = first["number"] or 0
    missing = (
        sorted(set(range(size)) - here)
        if 0 < size - len(here) <= max(1, size // 4) and size == attempt.world
        else []
    )
    said = f"{len(here)} of {size} ranks began a communicator, and none completed it"
    about = {**first, "text": said}
    return [
        _cause("init_hang", "not_complete", {**about, "rank": rank, "node": None})
        for rank in missing
    ] or [_cause("init_hang", "not_complete", {**about, "rank": None, "node": None})]


def _errors(attempt: Attempt) -> list[Cause]:
    """The first error of a process's own: an exception, a crash, or a CUDA error of the program."""
    rows = [
        row
        for row in attempt.fatal("error", "crash", "cuda")
        if not (row["kind"] == "error" and is_echo(row))
        and not (row["kind"] == "cuda" and row["code"] in (*_HARDWARE, "system"))
    ]
    timed_out = {
        row["rank"]: row["place"] for row in reversed(attempt.reports) if row["kind"] == "timeout"
    }
    first_timeout = min(timed_out.values(), default=None)
    own = [
        row
        for row in rows
        if first_timeout is None
        or row["place"] < first_timeout
        or (row["rank"] is not None and row["rank"] not in timed_out)
    ]
    if not own:
        return []
    first = next((row for row in own if row["code"] == "DuplicateGPU"), own[0])
    if "DataLoader timed out" in (first["text"] or ""):
        return [_cause("data_loader", "error", first)]
    alike = [row for row in own if (row["code"], row["text"]) == (first["code"], first["text"])]
    known = [row for row in alike if row["rank"] is not None]
    if not known:
        alike = [{**first, **_only_one(own, _ended_alone(attempt))}]
    return [_cause("error", first["code"] or "crash", row) for row in _once(known or alike, "rank")]


def _only_one(*sources: Sequence[Row]) -> dict[str, Any]:
    """The rank and host of the first source whose rows name exactly one rank."""
    for rows in sources:
        named = _once([row for row in rows if row["rank"] is not None], "rank")
        if len(named) == 1:
            return {"rank": named[0]["rank"], "node": named[0]["node"]}
    return {}


def _ended_alone(attempt: Attempt) -> list[Row]:
    """The rows of the only rank that ended by itself, where agents ended the others. Ranks abort
    themselves after a timeout or another's end, so signal 6 counts only without either."""
    rows = [row for row in attempt.fatal("exit") if row["code"] not in _KILLED]
    own = [row for row in rows if row["code"] not in ENDED_BY_OTHERS]
    if not own and not attempt.reports and not _of_nccl(attempt):
        own = [row for row in rows if row["code"] in ("-6", "134")]
    ranks = {row["rank"] for row in own if row["rank"] is not None}
    return own if len(ranks) == 1 else []


def _of_nccl(attempt: Attempt) -> bool:
    return any(row["code"] == "DistBackendError" for row in attempt.of("error"))


def _exits(attempt: Attempt) -> list[Cause]:
    """Exit codes alone: whoever ended by itself where the others were ended; else nobody."""
    rows = [row for row in attempt.fatal("exit") if row["code"] not in _KILLED]
    alone = _ended_alone(attempt)
    own = alone or [row for row in rows if row["code"] not in ENDED_BY_OTHERS]
    about = {"rank": None, "node": None}
    if not own:
        ended = [row for row in rows if row["code"] in ("-15", "143")]
        return [_cause("terminated", "ended", {**row, **about}) for row in ended[:1]]
    others = {row["rank"] for row in rows if row["rank"] is not None} - {
        row["rank"] for row in alone
    }
    return [_cause("error", "exit", {**own[0], **about, **(_only_one(alone) if others else {})})]


def _unexplained(attempt: Attempt) -> list[Cause]:
    """A job that fails of communication, where no line shows what came first: NCCL's first warning,
    else the first error. Who prints it only noticed it."""
    finished = min(
        (row["place"] for row in attempt.of("phase") if row["code"] == "finished"), default=None
    )
    echoes = [
        row
        for row in attempt.fatal("error", "echo")
        if row["code"] not in ("SystemExit", "KeyboardInterrupt", "peer_gone")
        and (row["kind"] == "echo" or is_echo(row))
        and (finished is None or row["place"] < finished)
    ]
    if not echoes:
        return []
    warnings = [row for row in attempt.of("warning") if not is_echo(row)]
    if warnings:
        return [_cause("error", "warning", warnings[0])]
    return [_cause("error", "echo", {**echoes[0], "rank": None, "node": None})]


def _interrupted(attempt: Attempt) -> list[Cause]:
    """Somebody stopped the program from its terminal."""
    rows = [row for row in attempt.fatal("error") if row["code"] == "KeyboardInterrupt"]
    about = {"rank": None, "node": None, "text": "KeyboardInterrupt"}
    return [_cause("terminated", "process", {**row, **about}) for row in rows[:1]]


def _signals(attempt: Attempt) -> list[Cause]:
    rows = attempt.fatal("scheduler", "signal")
    schedulers = [row for row in rows if row["kind"] == "scheduler"]
    first = rows[:1]
    reasons = [row for row in schedulers if row["code"] != "cancelled"] or schedulers
    why = reasons[0] if reasons else None
    return [
        _cause(
            "terminated",
            why["code"] if why else "signal" if row["code"] == "agent" else "process",
            {**row, "text": (why or row)["text"], "rank": None, "node": None},
        )
        for row in first
    ]


def _once(rows: Iterable[Row], *names: str) -> list[Row]:
    """The first row of each value of these columns."""
    seen: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        seen.setdefault(tuple(row[name] for name in names), row)
    return list(seen.values())


def _once_known(rows: Sequence[Row], name: str = "rank") -> list[Row]:
    """The first row of each known value, else the first row."""
    return _once([row for row in rows if row[name] is not None], name) or list(rows[:1])


def _first_known(rows: Sequence[Row]) -> list[Row]:
    """The first row, or the first that repeats it and names the rank or host."""
    if not rows:
        return []
    same = [row for row in rows if row["code"] == rows[0]["code"]]
    return [next((row for row in same if row["rank"] is not None or row["node"]), rows[0])]


_MAKERS: tuple[Callable[[Attempt], list[Cause]], ...] = (
    *(_xids, _gpu_errors, _gpu_memory, _host_memory, _failed_nodes, _killed, _link_down),
    _completions,
    *(_mismatches, _desync, _versions, _nvls, _fabric, _init, _half_made),
    *(_errors, _exits, _signals, _interrupted, _unexplained),
)


def count_echoes(attempt: Attempt, after: int) -> int:
    """How many lines after `after` only follow from it."""
    kinds = ("error", "echo", "exit", "crash", "signal", "init", "ib")
    return sum(row["place"] > after for row in (*attempt.of(*kinds), *attempt.reports))
