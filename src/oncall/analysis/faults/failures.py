"""Causes that a line states outright: hardware, memory, errors of a process, signals, network."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any

from oncall.analysis.faults.connections import CONNECTIONS
from oncall.analysis.faults.lines import (
    ENDED_BY_OTHERS,
    Attempt,
    Cause,
    Row,
    caused,
    is_echo,
    link,
    once,
    once_known,
)
from oncall.core.nodeset import named_ranks
from oncall.evidence.codes.event_catalogue import MEANINGS
from oncall.evidence.codes.nvlink_errors import is_fatal

_MOST_OF_FIRST = 120  # characters of an error, where what it led to is shown, too
_UNKNOWN = ("gpu", "warning", "")
_HARM = (True, None, False)  # of a link, as the line says: fatal, neither, not fatal
_KILLED = {"-9", "137"}
# Who ended a process for lack of memory; of a refused allocation nobody; of a worker that left
# without a word it may be memory.
_ENDED_BY = {"host": "kernel", "ray": "ray", "pod": "pod"}
_OF_MEMORY = {**_ENDED_BY, "refused": "refused", "worker": "worker"}
_AGENTS_LOOK_NS = 10 * 10**9  # an agent looks at its processes every five seconds at the latest
_STOPPED = {"cancelled", "agent", "process"}  # after the job's end: nothing was lost
_PEER = re.compile(r"closed by (?:remote )?peer \[?([\w.:-]+?)\]?(?:<\d+>|:\d+)")  # Gloo's, NCCL's
_HARDWARE = {"ecc": "ecc", "nvlink": "gpu_error", "gpu": "gpu_error", "illegal_access": "gpu_error"}


def stated_causes(attempt: Attempt) -> list[list[Cause]]:
    """Each cause that lines state, as the rows of what they blame."""
    found = [
        *(make(attempt) for make in _MAKERS),
    ]
    return [rows for rows in found if rows]


def _xids(attempt: Attempt) -> list[Cause]:
    """The first of the gravest Xids, on all GPUs that report it."""
    rows = [row for row in attempt.of("xid", "sxid") if row["number"] is None]
    if not rows:
        return []
    first = min(rows, key=_gravity)
    about = (first["kind"], first["code"], is_fatal(first["text"]))
    same = [row for row in rows if (row["kind"], row["code"], is_fatal(row["text"])) == about]
    return [_of_xid(row) for row in once(same, "device")]


def _gravity(row: Row) -> tuple[bool, bool, int, bool]:
    """A GPU's own fault comes first; then links, the fatal ones first, and the switches at their
    other end. What a program caused, or what only cleans up after another, comes last."""
    known = row["kind"] if row["kind"] == "sxid" else f"xid_{row['code']}"
    part, weight, _ = MEANINGS.get(known, _UNKNOWN)
    harm = is_fatal(row["text"]) if part == "nvlink" else None
    own = part == "gpu" and weight == "fault"
    return weight == "program", not own, _HARM.index(harm), row["kind"] == "sxid"


def _of_xid(row: Row) -> Cause:
    fatal = is_fatal(row["text"])
    if row["kind"] == "xid":
        _, weight, _ = MEANINGS.get(f"xid_{row['code']}", _UNKNOWN)
        name = "gpu_program" if weight == "program" else "xid"
        return caused(name, f"Xid {row['code']}", row, gpu=row["device"], fatal=fatal)
    about = {**row, "text": f"NVSwitch {row['device']}: {row['text']}"}
    return caused("xid", f"SXid {row['code']}", about, fatal=fatal)


def _gpu_errors(attempt: Attempt) -> list[Cause]:
    rows = [row for row in attempt.of("cuda") if row["code"] in _HARDWARE]
    ecc = [row for row in rows if row["code"] == "ecc"]
    chosen = _whose(attempt, ecc or rows)
    return [caused(_HARDWARE[row["code"]], row["code"], row) for row in chosen]


def _gpu_memory(attempt: Attempt) -> list[Cause]:
    rows = [row for row in attempt.fatal("memory") if row["code"] == "gpu"]
    near = [row for row in rows if row["rank"] is not None]
    return [caused("oom_gpu", "memory", row) for row in near[:1] or _whose(attempt, rows)]


def _host_memory(attempt: Attempt) -> list[Cause]:
    every = [
        row
        for row in attempt.of("memory")
        if row["code"] in _ENDED_BY or not attempt.went_on_after(row)
    ]
    codes = [code for code in _OF_MEMORY if any(row["code"] == code for row in every)]
    rows = [row for row in every if row["code"] in codes[:1]]
    by_pid = {row["pid"]: row["rank"] for row in attempt.of("exit") if row["rank"] is not None}
    return [
        caused(
            "oom_host",
            _OF_MEMORY[row["code"]],
            {**row, "rank": row["rank"] or by_pid.get(row["pid"])},
        )
        for row in _first_known(rows)
    ]


def _killed(attempt: Attempt) -> list[Cause]:
    rows = [row for row in attempt.fatal("exit") if row["code"] in _KILLED]
    stopped = attempt.fatal("scheduler", "signal")
    if stopped and rows and stopped[0]["place"] < rows[0]["place"]:
        return []
    return [caused("oom_host", "killed", row) for row in once_known(rows)]


def _failed_nodes(attempt: Attempt) -> list[Cause]:
    """Nodes that the scheduler names as failed; that it ended the job for one names none."""
    rows = [row for row in attempt.of("scheduler") if row["code"] == "node_failed"]
    return [caused("node_failed", "scheduler", row) for row in once(rows, "node")]


def _mismatches(attempt: Attempt) -> list[Cause]:
    rows = attempt.of("mismatch")
    if not rows:
        return []
    first = rows[0]
    if first["code"] == "sizes":
        ends, peer = link(first), first["peer_host"]
        return [caused("mismatch", "sizes", {**first, "rank": None}, peer_host=peer, link=ends)]
    same = once([row for row in rows if _operation(row) == _operation(first)], "rank")
    if first["code"] == "fingerprint" and first["rank"] is not None:
        return _minority(same)
    return [caused("mismatch", row["code"], row) for row in same]


def _operation(row: Row) -> tuple[str, int | None]:
    return row["code"], row["seq"]


def _minority(rows: Sequence[Row]) -> list[Cause]:
    """The ranks whose call differs from what most call; of two ranks both, of larger sides of one
    size nobody."""
    calls = Counter(row["text"] for row in rows).most_common()
    (common, most), *others = calls
    tie = not others or others[0][1] == most
    said = "; ".join(
        f"{named_ranks(row['rank'] for row in rows if row['text'] == call)}: {call}"
        for call, _ in calls
    )
    if tie and others and most > 1:
        return [caused("mismatch", "fingerprint", {**rows[0], "rank": None, "text": said})]
    by = "fingerprint" if tie else "minority"
    odd = [row for row in rows if tie or row["text"] != common]
    return [caused("mismatch", by, {**row, "text": said}) for row in odd]


def _desync(attempt: Attempt) -> list[Cause]:
    rows = attempt.fatal("desync")
    absent = [row for row in rows if row["code"] == "absent"]
    if absent:
        return [caused("not_joined", "report", row) for row in once(absent, "rank")]
    # It lists every group apart, and victims of the first as absent from the others.
    by_tool = [row for row in rows if row["code"] == "torchfrtrace"]
    if by_tool:
        first = [row for row in by_tool if row["line"] == by_tool[0]["line"]]
        return [caused("not_joined", "torchfrtrace", row) for row in first]
    waiting = {row["rank"] for row in rows if row["code"] == "inside"}
    awaited = [row for row in rows if row["code"] == "awaited" and row["rank"] not in waiting]
    if awaited:
        return [caused("not_joined", "awaited", row) for row in once(awaited, "rank")]
    return [caused("all_waiting", "report", {**row, "rank": None}) for row in rows[:1]]


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
        return [caused("data_loader", "error", first)]
    alike = [row for row in own if (row["code"], row["text"]) == (first["code"], first["text"])]
    known = [row for row in alike if row["rank"] is not None]
    if not known:
        alike = [{**first, **_only_one(own, _ended_alone(attempt))}]
    return [
        caused("error", first["code"] or "crash", {**row, "text": _with_the_last(row, own)})
        for row in once(known or alike, "rank")
    ]


def _with_the_last(row: Row, errors: Sequence[Row]) -> str | None:
    """What an error says, and the last that its process printed after it: it may say why."""
    after = (
        one
        for one in errors
        if (one["path"], one["rank"]) == (row["path"], row["rank"]) and one["line"] > row["line"]
    )
    *_, last = row, *takewhile(lambda one: one["kind"] == "error" and not is_echo(one), after)
    said: str | None = row["text"]
    if (last["text"] or "").partition(" (")[0] in (said or ""):  # it was raised anew
        return said
    return f"{(said or '')[:_MOST_OF_FIRST]}; then {last['code']}: {last['text']}"


def _only_one(*sources: Sequence[Row]) -> dict[str, Any]:
    """The rank and host of the first source whose rows name exactly one rank."""
    for rows in sources:
        named = once([row for row in rows if row["rank"] is not None], "rank")
        if len(named) == 1:
            return {"rank": named[0]["rank"], "node": named[0]["node"]}
    return {}


def _whose(attempt: Attempt, rows: Sequence[Row]) -> list[Row]:
    """The first row that names the rank or host; else the first, of the rank that ended alone."""
    found = _first_known(rows)
    if found and found[0]["rank"] is None:
        return [{**found[0], **_only_one(_ended_alone(attempt))}]
    return found


def _ended_alone(attempt: Attempt) -> list[Row]:
    """The rows of the only rank that ended by itself, where agents ended the others. Ranks abort
    themselves after a timeout or another's end, so signal 6 counts only without either; and who
    printed that it lost another did not end first."""
    lost = {row["rank"] for row in attempt.fatal("error") if is_echo(row)} - {None}
    rows = [
        row
        for row in attempt.fatal("exit")
        if row["code"] not in _KILLED and row["rank"] not in lost
    ]
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
    alone = _ended_alone(attempt) or _first_by_clock(rows)
    own = alone or [row for row in rows if row["code"] not in ENDED_BY_OTHERS]
    about = {"rank": None, "node": None}
    ended = [row for row in rows if row["code"] in ("-15", "143")]
    if ended and not own:
        return [caused("terminated", "ended", {**ended[0], **about})]
    own = own or [row for row in rows if row["code"] in ("-6", "134")]
    if not own:
        return []
    who = {**about, **_only_one(alone)}
    above = [
        row
        for row in attempt.fatal("reported")
        if row["code"] in ("failure", "late")
        and row["path"] == own[0]["path"]
        and row["line"] < own[0]["line"]
    ]
    if above:
        known = who if who != about else {"rank": None}  # who says it need not be who failed
        return [caused("error", "failure", {**above[-1], "place": own[0]["place"], **known})]
    return [caused("error", "exit", {**own[0], **who})]


def _first_by_clock(rows: Sequence[Row]) -> list[Row]:
    """The first failure of the agent that saw one long before the others did, each by its host's
    clock."""
    stated = [
        row for row in rows if row["number"] == 1 and row["at_ns"] and row["rank"] is not None
    ]
    roots = sorted(once(stated, "node"), key=lambda row: row["at_ns"])
    if len(roots) < 2 or roots[1]["at_ns"] - roots[0]["at_ns"] < _AGENTS_LOOK_NS:
        return []
    return roots[:1] if roots[0]["code"] not in ENDED_BY_OTHERS else []


def _left(attempt: Attempt) -> list[Cause]:
    """Who ended with exit code 0 while the others trained: torchrun lists those that failed and
    those that it ended, which are all others of its processes, and some of these lost a peer."""
    here = {row["rank"] for row in attempt.of("process") if row["code"] == "torchrun"}
    ended = [row for row in attempt.fatal("exit") if row["rank"] in here]
    gone = sorted(here - {row["rank"] for row in ended})
    lost = any(is_echo(row) for row in attempt.fatal("error"))
    if not lost or 2 * len(gone) >= len(here):
        return []
    about = {
        "node": None,
        "text": f"exit code 0; torchrun lists the {len(here) - len(gone)} others",
    }
    return [caused("error", "left", {**ended[0], **about, "rank": rank}) for rank in gone]


def _unexplained(attempt: Attempt) -> list[Cause]:
    """A job that fails of communication, where no line shows what came first: NCCL's first warning,
    else the first error. Who prints it only noticed it."""
    echoes = [
        row
        for row in attempt.fatal("error", "echo", "init")
        if row["code"] not in ("SystemExit", "KeyboardInterrupt", "peer_gone", "unscheduled")
        and _lost_a_peer(attempt, row)
        and not attempt.finished_before(row)
    ]
    if not echoes:
        return []
    warnings = [row for row in attempt.of("warning") if not is_echo(row)]
    if warnings:
        return [caused("error", "warning", warnings[0])]
    lost = [(row, found[1]) for row in echoes if (found := _PEER.search(row["text"] or ""))]
    peers = {peer for _, peer in lost}
    by = len(once((row for row, _ in lost), "rank"))
    peer = peers.pop() if len(peers) == 1 and by > 1 else None
    about = {**echoes[0], "rank": None, "node": peer}
    return [caused("error", "echo", about, peer_host=peer, waiting=by)]


def _reported(attempt: Attempt) -> list[Cause]:
    """A line of the level of an error that says that something waited in vain."""
    rows = [row for row in attempt.fatal("reported") if row["code"] == "timeout"]
    return [caused("all_waiting", "reported", {**row, "rank": None}) for row in rows[:1]]


def _lost_a_peer(attempt: Attempt, row: Row) -> bool:
    """Whether the line only shows that another process is gone: so does a connection that failed
    after the job took steps, if no step followed."""
    if row["kind"] == "init":
        return attempt.started_before(row) and not attempt.went_on_after(row, 1)
    return row["kind"] == "echo" or is_echo(row)


def _interrupted(attempt: Attempt) -> list[Cause]:
    """Somebody stopped the program from its terminal."""
    rows = [row for row in attempt.fatal("error") if row["code"] == "KeyboardInterrupt"]
    about = {"rank": None, "node": None, "text": "KeyboardInterrupt"}
    return [caused("terminated", "interrupted", {**row, **about}) for row in rows[:1]]


def _signals(attempt: Attempt) -> list[Cause]:
    failed = min((row["place"] for row in attempt.fatal("exit") if _is_own(row)), default=None)
    rows = [
        row
        for row in attempt.fatal("scheduler", "signal")
        if row["code"] not in _STOPPED
        or not (attempt.finished_before(row) or (failed is not None and failed < row["place"]))
    ]
    schedulers = [row for row in rows if row["kind"] == "scheduler"]
    reasons = [row for row in schedulers if row["code"] != "cancelled"] or schedulers
    why = reasons[0] if reasons else None
    return [
        caused(
            "terminated",
            why["code"] if why else _who_signalled(row),
            {
                **row,
                "text": (why or row)["text"],
                "rank": None,
                "node": _only_signalled(attempt, rows),
            },
        )
        for row in rows[:1]
    ]


def _is_own(row: Row) -> bool:
    """Whether a process ended with a code of its own: a launcher then ends the others."""
    return row["code"] not in ENDED_BY_OTHERS | _KILLED


def _who_signalled(row: Row) -> str:
    """A person at the terminal sends SIGINT; who sends another is not known."""
    if "SIGINT" in (row["text"] or ""):
        return "interrupted"
    return "signal" if row["code"] == "agent" else "process"


def _only_signalled(attempt: Attempt, rows: Sequence[Row]) -> str | None:
    """The host that alone was signalled, where others only show that it is gone."""
    signalled = {row["node"] for row in rows}
    others = {row["node"] for row in attempt.of("echo", "exit", "error")} - signalled - {None}
    if len(signalled) > 1 or not others or any(row["kind"] == "scheduler" for row in rows):
        return None
    node: str | None = next(iter(signalled))
    return node


def _first_known(rows: Sequence[Row]) -> list[Row]:
    """The first row, or the first that repeats it and names the rank or host."""
    if not rows:
        return []
    same = [row for row in rows if row["code"] == rows[0]["code"]]
    return [next((row for row in same if row["rank"] is not None or row["node"]), rows[0])]


_MAKERS: tuple[Callable[[Attempt], list[Cause]], ...] = (
    *(_xids, _gpu_errors, _gpu_memory, _host_memory, _failed_nodes, _killed),
    *(_mismatches, _desync),
    *CONNECTIONS,
    *(_errors, _left, _exits, _signals, _interrupted, _unexplained, _reported),
)


def count_echoes(attempt: Attempt, after: int) -> int:
    """How many lines after `after` only follow from it."""
    kinds = ("error", "echo", "exit", "crash", "signal", "init", "ib")
    return sum(row["place"] > after for row in (*attempt.of(*kinds), *attempt.reports))
