"""The account of lost time: without which cause iterations would be shorter, and by how much.

The answer comes from replay where iterations can be replayed, elsewhere from who came late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import duckdb
import numpy as np

from oncall.analysis.lost_time.books import Books, books_of
from oncall.analysis.lost_time.causes import Entry, gains_together
from oncall.analysis.lost_time.chance import counts_alone
from oncall.analysis.lost_time.entries import entries_of
from oncall.analysis.lost_time.exposure import exposure_of
from oncall.analysis.lost_time.host_delays import host_delays
from oncall.analysis.lost_time.iterations import Iterations, iterations_of
from oncall.analysis.lost_time.late_hosts import late_hosts
from oncall.analysis.lost_time.latecomers import latecomers, suspected
from oncall.analysis.lost_time.lateness import Lateness, lateness_of
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.moments import arrivals_of
from oncall.analysis.lost_time.onsets import (
    changed_with,
    longer_transfers,
    own_time_in,
    slower_with_transfers,
)
from oncall.analysis.lost_time.peers import with_peers
from oncall.analysis.lost_time.programs import NONE, Ints, Programs, Times, read_programs
from oncall.analysis.lost_time.sibling_transfers import late_by_transfers, slow_beside_siblings
from oncall.analysis.lost_time.slow_groups import slow_groups
from oncall.analysis.lost_time.slowdowns import Slowdown, lasting, repeated, slowdowns_of
from oncall.evidence import params_of, relation

_SCHEMA = [
    ("job", "VARCHAR", "", "the job"),
    ("entry", "INTEGER", "", "number of the cause, the largest first; 0: the whole account"),
    (
        "cause",
        "VARCHAR",
        "",
        "own: work of a rank; transfer; perhaps: waits that chance "
        "may explain; unexplained: a lasting slowdown; account: what was accounted for",
    ),
    ("rank", "INTEGER", "", "a rank that has it, or that the evidence cannot tell from it"),
    ("tied", "INTEGER", "ranks", "how many share the entry"),
    ("share", "DOUBLE", "ratio", "iterations concerned would be so much shorter without it"),
    ("low", "DOUBLE", "ratio", "5 % quantile of the share"),
    ("iterations", "INTEGER", "", "iterations concerned, or calls; of an account: all it covers"),
    ("of_iterations", "INTEGER", "", "iterations in the account"),
    ("gain_ns", "BIGINT", "ns", "lost in all of them"),
    ("iteration_ns", "BIGINT", "ns", "median length of an iteration"),
    ("at_ns", "BIGINT", "ns", "begin of the first one concerned, Unix time"),
    ("replay_error", "DOUBLE", "ratio", "median deviation of replayed from measured lengths"),
    ("timed", "BOOLEAN", "", "the durations of operations are recorded"),
    ("whole", "BOOLEAN", "", "of an account: what it does not name costs nothing"),
    (
        "shown_by",
        "VARCHAR",
        "",
        "what shows a cause: a replay without it; waits of others in calls; delays of its host "
        "between calls; stalls, such that all hosts waited for; siblings: transfers of like "
        "groups; calls: the same, call by call; a change with longer iterations; overlap: "
        "transfers that got longer behind computation",
    ),
]


@dataclass(frozen=True)
class Account:
    """The causes of a job, and the iterations (s,) they were looked for in. `replay_error` None:
    from lateness. `decides`: rounds are not asked. `whole`: what it does not name costs nothing.
    `slowdown`: a lasting one, where it names nobody."""

    entries: Sequence[Entry]
    length_ns: Times
    begin_ns: Ints
    replay_error: float | None
    timed: bool
    decides: bool = True
    whole: bool = True
    slowdown: Slowdown | None = None


def _by_replay(programs: Programs, books: Books, limits: Limits) -> Account:
    """The account of a job whose replay, with nothing removed, is as long as was measured."""
    entries = entries_of(books, limits)
    length_ns, begin_ns = books.length_ns, books.begin_ns
    slowdowns = [] if entries else slowdowns_of(books, limits)
    # Of calls alone a replay knows hosts only as far as devices follow them.
    unseen = not (entries or books.timed or programs.on_device)
    lateness = _lateness(programs, limits) if slowdowns or unseen else None
    changed = changed_with(slowdowns, programs, lateness, limits) if lateness else None
    changed = changed or own_time_in(slowdowns, books, limits)
    if changed is None and unseen and lateness is not None:
        changed = _delayed(programs, lateness, limits)
    if changed is None and not entries and books.timed:
        if lateness is not None:
            iterations: Iterations | None = lateness.iterations
        else:
            iterations = iterations_of(programs, arrivals_of(programs, limits).moments(), limits)
        changed = slower_with_transfers(programs, iterations, limits) if iterations else None
    if changed is not None:
        return Account([changed], length_ns, begin_ns, None, books.timed)
    slowdown = _unexplained(slowdowns, limits)
    whole = slowdown is None
    return Account(
        entries, length_ns, begin_ns, books.error, books.timed, whole=whole, slowdown=slowdown
    )


def _unexplained(slowdowns: Sequence[Slowdown], limits: Limits) -> Slowdown | None:
    """A slowdown that nobody has to be found for to be worth a sentence."""
    return next((s for s in slowdowns if s.share >= limits.lasting and s.begins_ns is None), None)


def _by_exposure(
    con: duckdb.DuckDBPyConnection, job: str, programs: Programs, limits: Limits
) -> Account | None:
    """The account of a profiled job in which one rank waits less than all others. Where none does,
    its operations may still show something else: slow transfers."""
    lateness = exposure_of(con, job, programs.ranks, limits)
    entry = latecomers(lateness, limits) if lateness is not None else None
    if lateness is None or entry is None:
        return None
    rest = exposure_of(con, job, programs.ranks, limits, but=limits.repeats - 1)
    again = latecomers(rest, limits) if rest is not None else None
    if again is None or again.ranks != entry.ranks:
        part = entry.gain_ns / float(lateness.iterations.length_ns.sum())
        entry = replace(entry, cause="perhaps", share=part, low=0.0)  # A few long waits show it.
    iterations = lateness.iterations
    return Account([entry], iterations.length_ns, iterations.begin_ns, None, lateness.timed)


def _of_operations(programs: Programs, limits: Limits) -> Account | None:
    books = books_of(programs, limits)
    if books is not None and books.covered < limits.covers:
        books = None
    if books is not None and not books.hold(limits):
        return _by_lateness(programs, None, limits, books)
    if books is not None and len(books.length_ns) >= limits.fewest_iterations:
        account = _by_replay(programs, books, limits)
        if account.entries or books.missed < limits.least_gain:
            return account
        return _by_lateness(programs, None, limits) or account
    return _by_lateness(programs, books, limits)


def _by_lateness(
    programs: Programs, books: Books | None, limits: Limits, inexact: Books | None = None
) -> Account | None:
    """The account of a job of which calls are recorded that ranks wait in. `books` are of too few
    iterations to accuse anyone by, and show what being late costs them; those that are `inexact`
    show who differs in longer iterations."""
    lateness = _lateness(programs, limits)
    if lateness is None and not programs.on_device:
        return _by_calls(programs, limits) or _of_hosts_alone(programs, inexact, limits)
    if lateness is None:
        return None
    iterations = lateness.iterations
    entry = None if programs.on_device else latecomers(lateness, limits)
    stages = bool(programs.batch.any())
    if entry is None and lateness.timed and not (programs.on_device or stages):
        entry = late_hosts(lateness, limits)
    if entry is not None and iterations.stretches and stages and entry.share < limits.too_much:
        entry = None  # Stages differ by design, and no iteration shows which calls are alike.
    if not lateness.of_all and (stages or _wait_in_larger(programs, iterations)):
        entry = None  # Who is late in its group may have waited for someone outside.
    if not (lateness.timed or programs.on_device or (entry and entry.cause != "perhaps")):
        entry = _delayed(programs, lateness, limits) or entry
    entry = entry or suspected(lateness, limits)
    if entry is not None and books is not None:
        gains = partial(gains_together, sets=[np.array(entry.ranks)])
        if books.shares(gains).max() < limits.least_gain:
            entry = None  # Who is off the critical path is waited for, and costs nothing.
    length_ns, begin_ns = iterations.length_ns, iterations.begin_ns
    slowdowns = [] if iterations.stretches else _slowdowns(iterations, limits)
    open_still = entry is None or entry.cause == "perhaps"
    if open_still and not programs.on_device:  # whose rounds show more: rates
        changed = changed_with(slowdowns, programs, lateness, limits)
        if changed is None and inexact is not None:
            changed = own_time_in(slowdowns_of(inexact, limits), inexact, limits)
        entry = changed or entry
    if lateness.timed and not programs.on_device:
        entry = _or_transfers(programs, lateness, entry, limits)
        open_still = entry is None or entry.cause == "perhaps"
        if open_still:
            entry = slower_with_transfers(programs, iterations, limits) or entry
        open_still = entry is None or entry.cause == "perhaps"
        entry = (slow_groups(programs, limits) if open_still else None) or entry
        entry = entry or longer_transfers(programs, iterations, limits)
    entries = [entry] if entry is not None else []
    # Of devices' times rounds show more: rates. A suspicion says what they leave open.
    proven = entry is not None and entry.cause != "perhaps"
    known, _ = iterations.spans()  # of fewer, it is not known whether iterations became longer
    enough = len(known) >= limits.fewest_iterations
    # Durations show who came late in each iteration, however long it was.
    enough = enough or (lateness.timed and len(length_ns) >= limits.fewest_timed)
    shown = lateness.compared and not (programs.on_device or iterations.stretches)
    decides = proven or (enough and shown)
    slowdown = None if entries else _unexplained(slowdowns, limits)
    once = bool(counts_alone(length_ns.max() - np.median(length_ns), length_ns, limits))
    hidden = not lateness.timed and iterations.hosts_wait_last(limits)
    late = stages and lateness.leaves_open(limits)
    whole = proven or not (slowdown or once or hidden or late or not lateness.of_all)
    return Account(entries, length_ns, begin_ns, None, lateness.timed, decides, whole, slowdown)


def _wait_in_larger(programs: Programs, iterations: Iterations) -> bool:
    """Whether ranks call in groups larger than those that iterations are of."""
    size = np.array([len(line) for line in programs.members])[programs.comm]
    return bool(size[iterations.number != NONE].max() > size[iterations.cut].max())


def _delayed(programs: Programs, lateness: Lateness, limits: Limits) -> Entry | None:
    """The rank whose host holds up its calls in longer iterations, or all others in any."""
    iterations = lateness.iterations
    moments = lateness.moments or arrivals_of(programs, limits).moments(iterations.nth)
    delays = host_delays(programs, iterations, moments, limits)
    entry = latecomers(replace(lateness, late_ns=delays.own_ns, by="delays"), limits)
    return entry or latecomers(replace(lateness, late_ns=delays.stalls_ns, by="stalls"), limits)


def _or_transfers(
    programs: Programs, lateness: Lateness, entry: Entry | None, limits: Limits
) -> Entry | None:
    """The entry, or the transfers that it comes from, or that are slow where it is not proven. A
    rank that is late itself slows the transfers of its group, not the other way round."""
    beside = slow_beside_siblings(programs, lateness, limits)
    open_still = entry is None or entry.cause == "perhaps"
    if beside is not None and (entry is None or open_still or entry.ranks == beside.ranks):
        return beside
    if entry is not None and entry.cause == "own":
        return late_by_transfers(programs, lateness, entry, limits)
    return entry


def _by_calls(programs: Programs, limits: Limits) -> Account | None:
    """The account of a job whose transfers show by themselves, call by call, which group is slow:
    of the time that is recorded of each rank."""
    entry = slow_groups(programs, limits)
    if entry is None:
        return None
    length_ns = np.array([entry.gain_ns / entry.share])
    return Account([entry], length_ns, np.array([entry.begin_ns]), None, timed=True)


def _of_hosts_alone(programs: Programs, inexact: Books | None, limits: Limits) -> Account | None:
    """The account of a job whose iterations show nobody who waits."""
    account = _by_stretches(programs, limits)
    if account is not None or inexact is None or inexact.timed:
        return account
    # Hosts wait nowhere, so that their calls do not show rounds either.
    length_ns, begin_ns = inexact.length_ns, inexact.begin_ns
    return Account([], length_ns, begin_ns, None, timed=False, whole=False)


def _by_stretches(programs: Programs, limits: Limits) -> Account | None:
    """The account of calls alone that show no iterations, as a service's: a host that all others
    wait for holds them up as long, whatever they call."""
    moments = arrivals_of(programs, limits).moments()
    iterations = iterations_of(programs, moments, limits, evenly=True)
    if iterations is None or not iterations.stretches:
        return None
    stalls_ns = host_delays(programs, iterations, moments, limits).stalls_ns
    entry = latecomers(
        Lateness(stalls_ns, programs.ranks, iterations, timed=False, by="stalls"), limits
    )
    if entry is None:
        return None
    return Account([entry], iterations.length_ns, iterations.begin_ns, None, timed=False)


def _slowdowns(iterations: Iterations, limits: Limits) -> list[Slowdown]:
    _, kind, counts = np.unique(iterations.program, axis=0, return_inverse=True, return_counts=True)
    other = kind.ravel() != int(np.argmax(counts))  # another program, such as an evaluation
    found = repeated(*iterations.spans(other), limits)
    return lasting(*iterations.spans(), limits) + found


def _lateness(programs: Programs, limits: Limits) -> Lateness | None:
    """Who came late in the iterations that hosts show; None if they show none."""
    arrivals = arrivals_of(programs, limits)
    iterations = iterations_of(programs, arrivals.moments(), limits)
    if iterations is None:
        return None
    moments = arrivals.moments(iterations.nth)
    return lateness_of(with_peers(programs, iterations.cut), iterations, moments, limits)


@relation(
    "lost_time",
    reads=["operations", "members"],
    optional=["profiled_time", "stage_layout"],
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
        account = _by_exposure(con, job, programs, limits) or _of_operations(programs, limits)
        if account is not None:
            worth = [entry for entry in account.entries if entry.gain_ns >= limits.hiccup]
            rows += _rows(job, programs, replace(account, entries=worth))
    return {name: [row.get(name) for row in rows] for name, *_ in _SCHEMA}


def _rows(job: str, programs: Programs, account: Account) -> list[dict[str, Any]]:
    length = account.length_ns
    common = {
        "job": job,
        "of_iterations": len(length),
        "iteration_ns": int(np.median(length)),
        "replay_error": account.replay_error,
        "timed": account.timed,
    }
    rows = [
        common
        | {"entry": 0, "cause": "account", "tied": 0, "share": 0.0, "low": 0.0, "gain_ns": 0}
        | {"iterations": len(length), "at_ns": int(account.begin_ns.min())}
        | {"whole": account.whole}
        for _ in range(account.decides)
    ]
    if account.slowdown is not None:
        since = account.slowdown
        rows.append(
            common
            | {"entry": 1, "cause": "unexplained", "tied": 0, "share": since.share, "low": 0.0}
            | {"iterations": since.segments, "at_ns": since.begin_ns}
        )
    for number, entry in enumerate(account.entries, 1):
        rows += [
            common
            | {"entry": number, "cause": entry.cause, "rank": int(programs.ranks[rank])}
            | {"tied": len(entry.ranks), "share": entry.share, "low": entry.low}
            | {"iterations": entry.segments, "gain_ns": int(entry.gain_ns)}
            | {"at_ns": entry.begin_ns, "shown_by": entry.shown_by}
            for rank in entry.ranks
        ]
    return rows
