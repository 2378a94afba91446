"""The account of lost time: without which cause iterations would be shorter, and by how much."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np

from oncall.analysis.lost_time.arrays import Ints, Times
from oncall.analysis.lost_time.changes import Slowdown
from oncall.analysis.lost_time.lateness import Lateness
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.named_steps import read_steps
from oncall.analysis.lost_time.programs import read_programs
from oncall.analysis.lost_time.ways import Evidence, Outcome, outcome_of
from oncall.evidence import params_of, relation

_SCHEMA = [
    ("job", "VARCHAR", "", "the job"),
    ("entry", "INTEGER", "", "number of the cause, the largest first; 0: the whole account"),
    ("cause", "VARCHAR", "", "own: work of a rank; transfer; turns: work of ranks that are late by "
     "turns; perhaps: waits that chance may explain; unexplained: a lasting slowdown; account: "
     "what was accounted for; open: it does not decide, and not all is accounted for"),
    ("rank", "INTEGER", "", "a rank that has it, or that the evidence cannot tell from it"),
    ("tied", "INTEGER", "ranks", "how many share the entry"),
    ("share", "DOUBLE", "ratio", "iterations concerned would be so much shorter without it"),
    ("low", "DOUBLE", "ratio", "5 % quantile of the share"),
    ("high", "DOUBLE", "ratio", "95 % quantile of the share"),
    ("iterations", "INTEGER", "", "iterations concerned, or calls; of an account: all it covers"),
    ("of_iterations", "INTEGER", "", "iterations in the account"),
    ("gain_ns", "BIGINT", "ns", "lost in all of them"),
    ("iteration_ns", "BIGINT", "ns", "median length of an iteration"),
    ("at_ns", "BIGINT", "ns", "begin of the first one concerned, Unix time"),
    ("until_ns", "BIGINT", "ns", "end of the last one; of a cause only where enough others follow "
     "that it is over"),
    ("replay_error", "DOUBLE", "ratio", "median deviation of replayed from measured lengths"),
    ("timed", "BOOLEAN", "", "the durations of operations are recorded"),
    ("whole", "BOOLEAN", "", "of an account: what it does not name costs nothing"),
    ("shown_by", "VARCHAR", "", "what shows a cause: a replay without it; waits of others in "
     "calls; delays of its host between calls; a change with longer iterations"),
    ("declined", "VARCHAR", "", "the ways that were tried before, and why they name nobody"),
]  # fmt: skip


@dataclass(frozen=True)
class Account:
    """The outcome of all ways, and the iterations (s,) that it is about. `replay_error` None: not
    replayed. `decides`: the account says who is late, else rounds do. `whole`: what it does not
    name costs nothing. `slowdown`: a lasting one, where it names nobody."""

    outcome: Outcome
    length_ns: Times
    begin_ns: Ints
    replay_error: float | None
    timed: bool
    decides: bool = True
    whole: bool = True
    slowdown: Slowdown | None = None


def account_of(evidence: Evidence) -> Account | None:
    """The account of a job; None if it shows no iterations at all."""
    outcome, replay, lateness = outcome_of(evidence), evidence.replay, evidence.lateness
    # Who is late by turns is so before it as well.
    slowdown = evidence.unexplained if outcome.way in ("", "turns") else None
    if replay is not None and (evidence.replayed or outcome.way == "replay" or lateness is None):
        error = replay.error if outcome.way in ("", "replay") else None
        times = replay.length_ns, replay.begin_ns, error, replay.timed
        return Account(outcome, *times, whole=slowdown is None, slowdown=slowdown)
    # What steps that a recorder names show to be whole, other calls do not open again.
    accounts = [_of_lateness(evidence, one, outcome, slowdown) for one in evidence.views]
    if accounts:
        return next((one for one in accounts if one.whole), accounts[0])
    inexact = evidence.inexact
    if inexact is None or inexact.timed or evidence.devices_alone:
        return None
    # Hosts wait nowhere, so that their calls do not show rounds either.
    return Account(outcome, inexact.length_ns, inexact.begin_ns, None, timed=False, whole=False)


def _of_lateness(
    evidence: Evidence, lateness: Lateness, outcome: Outcome, slowdown: Slowdown | None
) -> Account:
    """Who came late decides where most ranks could be compared, in enough iterations; what the
    account does not name may still cost something where not all of it shows."""
    iterations, limits = lateness.iterations, evidence.limits
    length_ns = iterations.length_ns
    known, _ = iterations.spans()  # of fewer, it is not known whether iterations became longer
    # Durations show who came late in each iteration, however long it was.
    enough = len(known) >= limits.fewest or (lateness.timed and len(length_ns) >= limits.event)
    # Of devices' times and of calls all alike rounds show more: rates, and each call.
    shown = lateness.compared and not (evidence.devices_alone or iterations.stretches)
    unknown = (
        slowdown is not None
        or (not lateness.timed and iterations.hosts_wait_last(limits))
        or lateness.leaves_open(limits)
        or not lateness.of_all
        or _cover(iterations.begin_ns, length_ns) < limits.mostly
    )
    return Account(
        outcome,
        length_ns,
        iterations.begin_ns,
        None,
        lateness.timed,
        decides=(outcome.proven and not iterations.stretches) or (enough and shown),
        whole=outcome.proven or not unknown,
        slowdown=slowdown,
    )


def _cover(begin_ns: Ints, length_ns: Times) -> float:
    """The part of the time from the first to the last that the iterations (s,) cover: between them
    may lie others that were compared with nothing."""
    span_ns = float((begin_ns + length_ns).max() - begin_ns.min())
    return float(length_ns.sum()) / span_ns if span_ns > 0 else 1.0


@relation(
    "lost_time",
    reads=["operations", "members"],
    optional=["profiled_work"],
    columns=_SCHEMA,
    source="LOST_TIME: replay of the execution graph; VenusTrace Appendix A; beyond the papers",
    params=params_of(Limits),
)
def lost_time(con: duckdb.DuckDBPyConnection, **params: Any) -> Mapping[str, Any]:
    """What made iterations longer than they had to be, by cause, with its gain when removed."""
    limits = Limits(**params)
    rows: list[dict[str, Any]] = []
    for (job,) in con.execute("SELECT DISTINCT job FROM operations ORDER BY job").fetchall():
        programs = read_programs(con, job, limits)
        if programs is None:
            continue
        account = account_of(Evidence(programs, limits, read_steps(con, job, programs)))
        if account is not None:
            rows += _rows(job, programs.ranks, account, limits)
    return {name: [row.get(name) for row in rows] for name, *_ in _SCHEMA}


def _rows(job: str, ranks: Ints, account: Account, limits: Limits) -> list[dict[str, Any]]:
    iterations = len(account.length_ns)
    common = {
        "job": job,
        "of_iterations": iterations,
        "iteration_ns": int(np.median(account.length_ns)),
        "replay_error": account.replay_error,
        "timed": account.timed,
        "declined": "; ".join(f"{way}: {why}" for way, why in account.outcome.declined.items()),
    }
    worth = [one for one in account.outcome.entries if one.gain_ns >= limits.hiccup]
    rows = []
    if account.decides or not account.whole:
        cause = "account" if account.decides else "open"
        rows.append(
            common
            | {"entry": 0, "cause": cause, "tied": 0, "share": 0.0, "low": 0.0, "high": 0.0}
            | {"iterations": iterations, "gain_ns": 0, "at_ns": int(account.begin_ns.min())}
            | {"until_ns": int((account.begin_ns + account.length_ns).max())}
            | {"whole": account.whole and len(worth) == len(account.outcome.entries)}
        )
    if (since := account.slowdown) is not None:
        rows.append(
            common
            | {"entry": len(worth) + 1, "cause": "unexplained", "tied": 0, "low": 0.0}
            | {"share": since.share, "high": since.share, "iterations": since.segments}
            | {"at_ns": since.begin_ns}
        )
    for number, entry in enumerate(worth, 1):
        rows += [
            common
            | {"entry": number, "cause": entry.cause, "rank": int(ranks[rank])}
            | {"tied": len(entry.ranks), "share": entry.share, "low": entry.low}
            | {"high": entry.high, "iterations": entry.segments, "gain_ns": int(entry.gain_ns)}
            | {"at_ns": entry.begin_ns, "until_ns": entry.until_ns, "shown_by": entry.shown_by}
            for rank in entry.ranks
        ]
    return rows
