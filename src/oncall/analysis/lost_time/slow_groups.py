"""Groups whose transfers take several times as long as those of their siblings, call by call.

Ring buffers of large jobs hold an iteration or two, or not even that. But groups of one dimension
of a mesh make the same calls of the same sizes, and once its last member is there, a collective
lasts as long as the transfer: that needs no iterations.
"""

from __future__ import annotations

import numpy as np

from oncall.analysis.lost_time.causes import Entry
from oncall.analysis.lost_time.collectives import Collectives, collectives_of
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.moments import numbered
from oncall.analysis.lost_time.programs import Flags, Ints, Programs, Times


def slow_groups(programs: Programs, limits: Limits) -> Entry | None:
    """The ranks that share all groups whose transfers take several times as long as their
    siblings', if all others wait for these ranks meanwhile."""
    size = programs.sizes[programs.comm]
    calls, span_ns = collectives_of(programs, size > 1, limits), _span(programs)
    if not len(calls.first) or not span_ns:
        return None
    comm = programs.comm[calls.first]
    excess_ns, baseline_ns = _excess(programs, calls, limits)
    comms = len(programs.members)
    slower: Flags = calls.took_ns >= limits.stands_out * baseline_ns
    excess_ns = np.where(slower, excess_ns, 0.0)
    lost_ns = np.bincount(comm, excess_ns, comms)
    most_ns = np.zeros(comms)  # of one call: a group connects in its first one
    np.maximum.at(most_ns, comm, excess_ns)
    share = (lost_ns - most_ns) / span_ns
    times = np.bincount(comm[slower], minlength=comms)
    slow = np.flatnonzero((share >= limits.least_gain) & (times >= limits.repeats))
    if not len(slow) or share[slow].min() < limits.as_late * share.max():
        return None
    if share[slow].min() < limits.stands_out * np.delete(share, slow).max(initial=0.0):
        return None
    ranks, together = _shared(programs, slow)
    if not len(ranks) or 2 * len(together) > len(programs.ranks):
        return None
    waited_ns = _waited(programs, calls, ranks, together)
    stages = bool(programs.batch.any())  # which wait for one another in transfers as well
    if waited_ns < limits.least_gain / (2 if stages else 1) * span_ns:
        return None
    concerned = slower & np.isin(comm, slow)
    return Entry(
        cause="transfer",
        ranks=tuple(map(int, _slower_to_peers(programs, ranks, limits))),
        share=float(share[slow].max()),
        low=float(min(waited_ns / span_ns, share[slow].max())),
        segments=int(concerned.sum()),
        gain_ns=float((lost_ns - most_ns)[slow].max()),
        begin_ns=int(programs.at_ns[calls.node[concerned[calls.of]]].min()),
        shown_by="calls",
    )


def _excess(programs: Programs, calls: Collectives, limits: Limits) -> tuple[Times, Times]:
    """By how much each call (c,) took longer than its siblings' do, and how long these take: the
    median of the groups' medians; infinite with too few groups to have one."""
    comm = programs.comm[calls.first]
    kinds = numbered(programs.signature[calls.first].astype(np.int64))
    order = np.lexsort((calls.took_ns, comm, kinds))
    first = np.flatnonzero(np.diff(numbered(kinds, comm)[order], prepend=-1))
    size = np.diff(first, append=len(order))
    kind, each_ns = kinds[order[first]], calls.took_ns[order[first + (size - 1) // 2]]
    baseline_ns = np.full(int(kinds.max()) + 1, np.inf)
    for one in np.flatnonzero(np.bincount(kind) >= limits.few_peers):
        baseline_ns[one] = np.median(each_ns[kind == one])
    baseline_ns = baseline_ns[kinds]
    return np.where(np.isfinite(baseline_ns), calls.took_ns - baseline_ns, 0.0), baseline_ns


def _span(programs: Programs) -> float:
    """How long a rank's recording lasts (median), ns."""
    first = np.flatnonzero(np.diff(programs.rank, prepend=-1))
    last = np.append(first[1:], len(programs.rank)) - 1
    return float(np.median(programs.at_ns[last] - programs.at_ns[first]))


def _shared(programs: Programs, slow: Ints) -> tuple[Ints, Ints]:
    """The ranks that are in all slow groups, and those that are in any."""
    member = np.zeros((len(slow), len(programs.ranks)), dtype=np.bool_)
    for at, comm in enumerate(slow):
        member[at, programs.members[comm]] = True
    return np.flatnonzero(member.all(0)), np.flatnonzero(member.any(0))


def _waited(programs: Programs, calls: Collectives, ranks: Ints, together: Ints) -> float:
    """How long all others (mean) waited for these ranks in calls that they shared, in all, ns."""
    rank, took_ns = programs.rank[calls.node], programs.duration_ns[calls.node]
    ours, others = np.isin(rank, ranks), ~np.isin(rank, together)
    last_ns = np.full(len(calls.first), -np.inf)
    np.maximum.at(last_ns, calls.of[ours], took_ns[ours])
    number = np.bincount(calls.of[others], minlength=len(last_ns))
    mean_ns = np.bincount(calls.of[others], took_ns[others], len(last_ns)) / np.maximum(number, 1)
    shared = np.isfinite(last_ns) & (number > 0)
    return float(np.maximum(mean_ns - last_ns, 0.0)[shared].sum())


def _slower_to_peers(programs: Programs, ranks: Ints, limits: Limits) -> Ints:
    """The one of the ranks whose sends and receives are slower, too; else all of them. The fastest
    quarter of a rank's transfers waits for nobody."""
    parts = np.bincount(programs.parts.node, minlength=len(programs.rank))
    alone = programs.batch & (parts == 1) & np.isfinite(programs.duration_ns)
    begin, end = (np.searchsorted(programs.rank, ranks, side) for side in ("left", "right"))
    each = [
        programs.duration_ns[a:b][alone[a:b]] for a, b in zip(begin, end, strict=True)
    ]  # nodes are in the order of their ranks
    if not all(len(one) >= limits.repeats for one in each):
        return ranks
    fast_ns = np.array([np.quantile(one, 0.25) for one in each])
    worst = int(np.argmax(fast_ns))
    clear = fast_ns[worst] >= limits.stands_out * np.delete(fast_ns, worst).max(initial=0.0)
    return ranks[[worst]] if clear and len(ranks) > 1 else ranks
