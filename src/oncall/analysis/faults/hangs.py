"""What the watchdog's lines and the heartbeat monitor say of a job that hangs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from oncall.analysis.faults.lines import Attempt, Row, is_echo, once
from oncall.analysis.faults.watchdogs import (
    Stuck,
    absent,
    behind,
    mismatched,
    stuck_group,
    unnamed_groups,
)
from oncall.core.nodeset import named_ranks

Cause = dict[str, Any]


def hang_cause(attempt: Attempt, few: float) -> list[Cause]:
    """One row for each rank that is to blame, or one without a rank; none without a hang."""
    stuck = stuck_group(attempt, few)
    if stuck is None:
        return _stuck_watchdogs(attempt) or _without_ranks(attempt) or _dumps(attempt)
    first = min(stuck.waiting.values(), key=lambda one: one.first["place"]).first
    about = {
        "place": first["place"],
        "at_ns": first["at_ns"],
        "path": first["path"],
        "line": first["line"],
        "seq": stuck.last.seq,
        "op": stuck.op,
        "process_group": stuck.group,
        "waiting": len(stuck.waiting),
        "size": stuck.size,
        "least": stuck.least,
        "timeout_ns": first["timeout_ns"],
    }
    if (several := unnamed_groups(attempt)) and _open_phase(attempt, first["place"]) is None:
        return _rows("all_waiting", "groups", [], {**about, "text": several})
    ranks, detail = mismatched(stuck)
    if detail:
        return _rows("mismatch", "watchdog", ranks, {**about, "text": detail})
    return _not_joined(attempt, stuck, about, few)


def _not_joined(
    attempt: Attempt, stuck: Stuck, about: Mapping[str, Any], few: float
) -> list[Cause]:
    late, detail = behind(stuck)
    missing = [] if late else absent(stuck, few)
    phase = _open_phase(attempt, about["place"])
    waits_whole = stuck.size is not None and len(stuck.waiting) >= stuck.size
    if phase is not None and not waits_whole:
        rank = phase["rank"]
        ranks = [rank] if rank is not None and rank not in stuck.waiting else missing or late
        why = {"text": phase["text"], "line": phase["line"], "path": phase["path"]}
        return _rows("long_phase", phase["code"], ranks, {**about, **why})
    if late:
        ahead = {"waiting": len(stuck.waiting.keys() - set(late)), "text": detail}
        return _rows("not_joined", "behind", late, {**about, **ahead})
    if missing:
        error = _of_no_rank(attempt)
        return _rows("not_joined", "no_timeout", missing, {**about, "text": None, **error})
    return _rows("all_waiting", "watchdog", [], {**about, "text": None})


def _of_no_rank(attempt: Attempt) -> dict[str, Any]:
    """An error of a process's own that names no rank. Whoever timed out had called the collective
    and waited, so it is most likely of one that did not."""
    own = (
        row
        for row in attempt.fatal("error", "crash")
        if row["rank"] is None and not (row["kind"] == "error" and is_echo(row))
    )
    found = next(own, None)
    if found is None:
        return {}
    said = ": ".join(dict.fromkeys(one for one in (found["code"], found["text"]) if one))
    return {"text": said, "path": found["path"], "line": found["line"]}


def _open_phase(attempt: Attempt, before: int) -> Row | None:
    """A checkpoint or evaluation that began before the timeout, and neither ended nor was followed
    by a step."""
    phases = [row for row in attempt.of("phase") if row["place"] < before]
    last = phases[-1] if phases else None
    if last is None or last["code"] not in ("checkpoint", "evaluation"):
        return None
    steps = [
        row
        for row in attempt.steps
        if row["iteration"] is not None and row["path"] == last["path"] and row["place"] < before
    ]
    # A progress bar of another length is the evaluation's own.
    length = next((row["of_iterations"] for row in steps if row["place"] < last["place"]), None)
    stepped = any(
        row["place"] > last["place"] and row["of_iterations"] in (length, None) for row in steps
    )
    return None if stepped else last


def _without_ranks(attempt: Attempt) -> list[Cause]:
    """A timeout whose line names no rank."""
    return [
        {"cause": "all_waiting", "reason": "unnamed", "op": row["op"], **_where(row)}
        for row in [row for row in attempt.reports if row["kind"] == "timeout"][:1]
    ]


def _dumps(attempt: Attempt) -> list[Cause]:
    """Ranks that gave up a collective and print their counters only; a rank that had not enqueued
    the operation that others wait in did not join it."""
    dumps = [row for row in attempt.reports if row["kind"] in ("local_dump", "remote_dump")]
    if not dumps:
        return []
    first = next((row for row in dumps if row["kind"] == "local_dump"), dumps[0])
    known = [
        row
        for row in once(dumps, "rank")
        if row["process_group"] == first["process_group"]
        and None not in (row["rank"], row["enqueued"], row["completed"])
    ]
    open_ = [row for row in known if row["completed"] < row["enqueued"]]
    seq = min((row["completed"] + 1 for row in open_), default=None)
    late = [row["rank"] for row in known if seq is not None and row["enqueued"] < seq]
    about = {**_where(first), "seq": seq, "process_group": first["process_group"]}
    if late and len(late) <= len(open_):
        detail = f"it has not called operation {seq:,}, in which the others wait"
        about |= {"waiting": len(open_), "text": detail}
        return _rows("not_joined", "behind", late, about)
    if open_:
        row = open_[0]
        said = f"{row['enqueued']:,} operations enqueued, {row['completed']:,} completed"
        text = f"{named_ranks([row['rank']])} has {said}"
    elif known:
        text = "every operation of the group that prints is done, so it is one of another group"
    else:
        text = "the counters of the group are not logged"
    return _rows("all_waiting", "dump", [], {**about, "text": text})


def _stuck_watchdogs(attempt: Attempt) -> list[Cause]:
    """Watchdog threads that made no progress; the rank with fewer operations pending, or the only
    one, is the candidate."""
    stuck = [row for row in attempt.reports if row["kind"] in ("stuck", "heartbeat")]
    if not stuck:
        return []
    lists = [row for row in stuck if row["rank"] is not None and row["pending"] is not None]
    lists = once(lists, "rank")
    # Numbers of operations of unlike groups do not compare; two ranks of one place are in two.
    places = [row["comm_rank"] for row in lists if row["comm_rank"] is not None]
    alike = len({row["process_group"] for row in lists}) < 2 and len({*places}) == len(places)
    pending = {row["rank"]: row["pending"] for row in lists if alike}
    ranks = {row["rank"] for row in stuck if row["rank"] is not None}
    kinds = Counter(pending.values())
    low = min(pending.values(), default=None)
    culprits = [rank for rank, count in pending.items() if count == low]
    reason, text = "all", None
    if len(kinds) > 1 and len(culprits) == 1:
        reason = "fewest"
        text = f"{low} operations pending, the others {max(pending.values())}"
    elif len(ranks) == 1 and max(attempt.world or 0, attempt.least) > 1:
        reason, culprits = "alone", sorted(ranks)
    else:
        culprits = []
    about = {**_where(stuck[0]), "text": text, "waiting": len(ranks), "size": attempt.world}
    about["waited_ns"] = max((row["waited_ns"] or 0 for row in stuck), default=0) or None
    return _rows("heartbeat", reason, culprits, about)


def _where(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in ("place", "at_ns", "path", "line")}


def _rows(cause: str, reason: str, ranks: Sequence[int], about: Mapping[str, Any]) -> list[Cause]:
    return [
        {"cause": cause, "reason": reason, **about, "rank": rank} for rank in (*ranks,) or (None,)
    ]
