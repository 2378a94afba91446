"""When each task could begin and when it was done, and what of that the rank computed itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oncall.analysis.common.quantiles import median, quantile
from oncall.analysis.tasks import thresholds
from oncall.analysis.tasks.iteration_bounds import Block, started_ns
from oncall.analysis.tasks.neighbours import after, before
from oncall.analysis.tasks.rank_calls import (
    OUTSIDE,
    RECV,
    REPLICAS,
    SEND,
    TASK,
    UNKNOWN,
    RankCalls,
)
from oncall.analysis.tasks.schedules import Array
from oncall.analysis.tasks.task_calls import Inside
from oncall.analysis.tasks.task_lateness import Late
from oncall.analysis.tasks.task_positions import Tasks


@dataclass(frozen=True)
class Times:
    """Arrays (ranks, tasks), ns on the node's clock, -1 unknown; `calls` (tasks,). `seen`: some of
    it is recorded."""

    started_ns: Array
    ended_ns: Array
    first_call_ns: Array
    last_call_ns: Array
    calls: Array
    own_ns: Array
    seen: Array


def time_tasks(
    calls: RankCalls,
    blocks: list[Block],
    tasks: Tasks,
    inside: Inside,
    late: Late,
    sent_ns: Array | None = None,
) -> Times:
    """The times of every task of ranks that are alike: of `calls` and `late`, times are of all of
    them (ranks, calls). `sent_ns`: when its input was sent (ranks, tasks), where known."""
    count = inside.last - inside.first
    any_call = count > 0
    first = _at(calls.entered_ns, _pick(inside.positions, inside.first, any_call))
    final = _pick(inside.positions, inside.last - 1, any_call)
    last = _at(calls.entered_ns, final)
    done = _done(calls, final)
    ended = _ended(calls, tasks, inside, any_call, done)
    begins = first if sent_ns is None else _fed(calls, tasks, first, sent_ns)
    recorded = np.where(first < 0, begins, UNKNOWN)
    started = _started(calls, blocks, tasks, ended, begins, recorded)
    ahead = np.zeros(started.shape, dtype=np.bool_)
    if not calls.knows_ends:
        ahead = _runs_ahead(tasks, started, ended, last, count, thresholds.AHEAD_SHARE)
    # A host that does not wait for its device between two tasks shows when both were over.
    apart = any_call & ~(ahead & after(ahead, False))
    follows = before(~_is_last(tasks) & ~apart, False)
    started, ended = _shared(tasks, apart, started, ended, thresholds.BACKWARD_SHARE)
    started = _after_the_send(calls, tasks, started, first)
    # What ends later than its rank goes on, as Sends that no rank waits for, holds up no task.
    begun = (first >= 0) & (started > first) & ~(ahead & follows)
    started = np.where(begun, first, started)
    ended = np.where((ended >= 0) & (ended < started), started, ended)
    seen = _begun(calls, tasks, any_call, started, ended)
    own = _own(calls, started, ended)
    if not calls.knows_ends:
        waited, behind = late.waited(inside)
        asked = _at(calls.entered_ns, tasks.recv_at)
        head = np.where(asked >= 0, np.clip(first - asked, 0, behind), 0)
        head = np.where(started == first, head, 0)
        own = np.where(
            ahead,
            np.where((first >= 0) & (waited >= 0), last - first + head, UNKNOWN),
            _own_by_calls(started, ended, waited, head),
        )
    return Times(started, ended, first, last, count, own, seen)


def _pick(positions: Array, index: Array, wanted: Array) -> Array:
    if not len(positions):
        return np.full(len(index), UNKNOWN, dtype=np.int64)
    return np.where(wanted, positions[np.clip(index, 0, len(positions) - 1)], UNKNOWN)


def _at(values: Array, positions: Array) -> Array:
    """`values` (..., calls) at the positions, -1 where there is none."""
    *ranks, n = values.shape
    if not n:
        return np.full((*ranks, len(positions)), UNKNOWN, dtype=np.int64)
    found = values[..., np.clip(positions, 0, n - 1)]
    return np.asarray(np.where(positions >= 0, found, UNKNOWN))


def _done(calls: RankCalls, final: Array) -> Array:
    """When the last calls of tasks were done, -1 where they are not. Where only calls are recorded,
    that is when the rank went on to call something else: it waits for its device before."""
    if calls.knows_ends:
        newest = np.flatnonzero((calls.ended_ns >= 0).any(axis=0))[-1]
        entered = np.where(final < newest, _at(calls.entered_ns, final), UNKNOWN)
        return np.asarray(np.maximum(_at(calls.ended_ns, final), entered))
    following = np.where((final >= 0) & (final + 1 < len(calls)), final + 1, UNKNOWN)
    return _at(calls.entered_ns, following)


def _begun(calls: RankCalls, tasks: Tasks, any_call: Array, started: Array, ended: Array) -> Array:
    """Which tasks the rank has begun, that is, which have what they need (t,)."""
    came = _at(calls.ended_ns, tasks.recv_at) >= 0
    if not calls.knows_ends:
        came = tasks.recv_at >= 0
    # One that needs nothing follows the task before it at once.
    free = before((ended >= 0) & any_call, False)
    free &= (np.diff(tasks.group, prepend=-1) == 0) & (started >= 0)
    known = (started >= 0) & (ended >= 0)
    return np.asarray(came | free | (tasks.send_at >= 0) | any_call | known)


def _is_last(tasks: Tasks) -> Array:
    """The last task of its group (t,)."""
    return np.asarray(np.diff(tasks.group, append=-1) != 0)


def _ended(calls: RankCalls, tasks: Tasks, inside: Inside, any_call: Array, done: Array) -> Array:
    """A task is done when it sends, else with its last call, else when the next one begins. Of
    what nothing bounds from behind all calls must be there, and one that comes after them."""
    last = _is_last(tasks)
    sent = np.where(last, _at(calls.entered_ns, tasks.send_at), UNKNOWN)
    closed = last & (tasks.high >= 0) & (tasks.high < len(calls)) & ~tasks.sends
    before = np.where(closed, _gradients_begin(calls, tasks), UNKNOWN)
    following = _at(calls.entered_ns, before)
    bounded = (tasks.high >= 0) & (tasks.high < len(calls))
    left = ~last & (bounded | np.append(any_call[1:], False)[: len(tasks)])
    final = _pick(inside.positions, inside.last - 1, any_call)
    gone_on = inside.whole & ~tasks.sends & (final < len(calls) - 1)
    over = any_call & (left | closed | gone_on | (tasks.send_at >= 0))
    return np.asarray(np.where(sent >= 0, sent, np.where(over, done, following)))


def _gradients_begin(calls: RankCalls, tasks: Tasks) -> Array:
    """The call that ends a task which sends nothing (tasks,): the bound behind it, or the last of
    the calls on the communicator on which gradients are reduced first, which are there by then.
    What is reduced after these waits for them."""
    first = np.clip(tasks.low + 1, 0, len(calls) - 1)
    ends = np.append(np.flatnonzero(np.diff(calls.comm)), len(calls) - 1)
    last = ends[np.searchsorted(ends, first)]
    reduced = (tasks.low + 1 < tasks.high) & (calls.use[first] == REPLICAS)
    return np.where(reduced, np.minimum(last, tasks.high - 1), tasks.high)


def _started(
    calls: RankCalls,
    blocks: list[Block],
    tasks: Tasks,
    ended: Array,
    first: Array,
    recorded: Array,
) -> Array:
    """A task can begin when what it needs has come and the task before it is done.

    Where the recorder logs only calls, a Recv does not show when it was over: then the first
    call within the task stands for its begin.
    """
    opening = np.diff(tasks.block, prepend=-1) != 0
    free = before(ended, UNKNOWN)
    if len(tasks):
        free = np.where(opening, started_ns(calls, blocks)[..., tasks.block], free)
    came = _at(calls.ended_ns, tasks.recv_at)
    waited = np.where(came >= 0, np.maximum(came, free), UNKNOWN if calls.knows_ends else first)
    started = np.where(tasks.receives, waited, np.where(free >= 0, free, first))
    fed = opening & ~tasks.receives
    # Where others show when it could begin, it was no sooner, nor before its rank was free.
    others = (recorded >= 0) & (started >= 0)
    started = np.where(others, np.maximum(started, np.maximum(recorded, free)), started)
    started = _after_the_optimizer(tasks, fed, started, first)
    return _after_the_pause(calls, blocks, tasks, fed & (first < 0), started, ended)


def _fed(calls: RankCalls, tasks: Tasks, first: Array, sent_ns: Array) -> Array:
    """The first calls of tasks; where a task has none, when it could begin: when the input that it
    asked for was sent, and all else that was received in the group call before it, for which its
    rank waits, too; in an iteration's first task, when its rank and all others had come."""
    asked = _at(calls.entered_ns, tasks.recv_at)
    came = np.where(sent_ns >= 0, np.maximum(asked, sent_ns), UNKNOWN)
    transfers = np.flatnonzero(calls.use <= RECV)
    if len(transfers):
        apart = (np.diff(calls.group[transfers], prepend=-2) != 0) | (calls.group[transfers] < 0)
        apart[1:] |= np.diff(transfers) != 1
        exchange = np.zeros(len(calls), dtype=np.int64)
        exchange[transfers] = np.cumsum(apart)
        over = np.full((len(came), int(apart.sum()) + 1), UNKNOWN, dtype=np.int64)
        received = tasks.recv_at >= 0
        np.maximum.at(over.T, exchange[tasks.recv_at[received]], came[:, received].T)
        over[:, 0] = UNKNOWN  # of what is no transfer
        heads = (np.diff(tasks.group, prepend=-1) != 0) & (tasks.low >= 0)
        exchanged = exchange[np.clip(tasks.low, 0, len(calls) - 1)]
        began = heads & (~tasks.receives | (came >= 0))
        came = np.where(began, np.maximum(came, over[:, exchanged]), came)
    return np.where(first >= 0, first, came)


def _after_the_send(calls: RankCalls, tasks: Tasks, started: Array, first: Array) -> Array:
    """A rank that never makes a first call of a task before its last Send is over waits for it."""
    if not calls.knows_ends:
        return started
    sent = before(_at(calls.ended_ns, tasks.send_at), UNKNOWN)
    later = (started >= 0) & (sent > started) & (np.diff(tasks.block, prepend=-1) == 0)
    waits = ~((first < sent) & later).any(axis=-1, keepdims=True)
    return np.where(later & waits, sent, started)


def _after_the_optimizer(tasks: Tasks, opening: Array, started: Array, first: Array) -> Array:
    """Between the last call of an iteration and the first of the next a rank updates its
    parameters, too: of that time the first forward has as much as forwards need up to their first
    call elsewhere."""
    known = ~tasks.backward & (started >= 0) & (first >= started)
    lead = _row_median(first - started, known & ~opening)
    shown = opening & known & ~np.isnan(lead)
    lead_ns = np.nan_to_num(lead).astype(np.int64)
    return np.where(shown, np.maximum(started, first - lead_ns), started)


def _after_the_pause(
    calls: RankCalls, blocks: list[Block], tasks: Tasks, opening: Array, started: Array,
    ended: Array,
) -> Array:  # fmt: skip
    """The same where no call lies within forwards: the first of an iteration begins after what
    such take longer than others by the baseline, by the call before them. More than that is its
    own."""
    took = np.where((started >= 0) & (ended >= started) & ~tasks.backward, ended - started, UNKNOWN)
    others = _row_median(took, ~opening & (took >= 0) & ~tasks.evaluation)
    mine = opening & (took >= 0) & ~np.isnan(others)
    if not mine.any():
        return started
    begins = np.array([block.begin for block in blocks])[tasks.block]
    words = np.append(calls.word, 0)[begins - 1]
    moved = started.copy()
    for word in np.unique(words[mine.any(axis=0)]).tolist():
        alike = mine & (words == word)
        pause = quantile(np.where(alike, took, np.nan), 0.25, 1)[:, np.newaxis] - others
        pause_ns = np.nan_to_num(pause).astype(np.int64)
        moved += np.where(alike, np.minimum(np.maximum(pause_ns, 0), took), 0)
    return moved


def _shared(
    tasks: Tasks, any_call: Array, started: Array, ended: Array, backward_share: float
) -> tuple[Array, Array]:
    """Where no call separates two tasks of a group, their time is shared as such tasks share
    theirs elsewhere on the rank, else as computation does."""
    over = after(ended, UNKNOWN)
    head = ~_is_last(tasks) & ~any_call & (started >= 0) & (over >= 0)
    if not head.any():
        return started, ended
    alone = _is_last(tasks) & (np.diff(tasks.group, prepend=-1) != 0)
    took = np.where((started >= 0) & (ended >= 0), ended - started, UNKNOWN)
    forward, backward = (
        _row_median(took, alone & (tasks.backward == b) & (took >= 0)) for b in (False, True)
    )
    known = ~np.isnan(forward) & ~np.isnan(backward) & (forward + backward > 0)
    both = np.where(known, forward + backward, 1.0)
    share = np.where(known, backward / both, backward_share)
    first_share = np.where(tasks.backward, share, 1 - share)
    middle = started + ((over - started) * first_share).astype(np.int64)
    return (
        np.where(before(head, False), before(middle, UNKNOWN), started),
        np.where(head, middle, ended),
    )


def _own(calls: RankCalls, started: Array, ended: Array) -> Array:
    """Of each span, the time in which the rank was in no call of its tasks; -1 where ends are not
    recorded. Sends and gradients may be under way while it computes, and count for nothing here."""
    known = (started >= 0) & (ended >= started)
    if not calls.knows_ends or not known.any():
        return np.full(started.shape, UNKNOWN, dtype=np.int64)
    has_end = (calls.ended_ns >= 0).any(axis=0) & (calls.use == TASK)
    if not has_end.any():
        return np.where(known, ended - started, UNKNOWN)
    entered, done = calls.entered_ns[:, has_end], calls.ended_ns[:, has_end]
    order = np.argsort(entered, axis=1, kind="stable")
    begin = np.take_along_axis(entered, order, axis=1)
    end = np.maximum.accumulate(np.take_along_axis(done, order, axis=1), axis=1)
    # Outside all operations by the begin of each, measured from the first one's.
    outside = np.zeros_like(begin)
    np.cumsum(np.maximum(0, begin[:, 1:] - end[:, :-1]), axis=1, out=outside[:, 1:])

    def until(instant: Array) -> Array:
        place = np.array(
            [np.searchsorted(*each, side="right") for each in zip(begin, instant, strict=True)]
        )
        place = np.maximum(place - 1, 0)
        upto, over = (np.take_along_axis(each, place, axis=1) for each in (outside, end))
        return np.asarray(upto + np.maximum(0, instant - over))

    own = until(np.where(known, ended, begin[:, :1])) - until(
        np.where(known, started, begin[:, :1])
    )
    return np.where(known, own, UNKNOWN)


def _runs_ahead(
    tasks: Tasks, started: Array, ended: Array, last: Array, count: Array, ahead_share: float
) -> Array:
    """Where the host calls all of such tasks at once and then waits for its device (t,): that waits
    for anybody, and only what keeps the host from calling is counted as the rank's own.

    A host waits for its device before it exchanges anything, so a group's last task shows it for
    the group. One that waits in each of n calls makes the last after (n - 1) / n of the task.
    """
    kind = 2 * tasks.chunk + tasks.backward
    waits = _is_last(tasks)
    known = waits & (started >= 0) & (ended > started) & (last >= started)
    ahead = np.zeros(started.shape, dtype=np.bool_)
    if not len(kind):
        return ahead
    calling = (last - started) / np.where(known, ended - started, 1)
    for each in np.unique(kind).tolist():
        mine = known & (kind == each) & (count > 0)
        share = _row_median(calling / (1 - 1 / np.maximum(count, 2)), mine)
        ahead |= (share < ahead_share) & waits & (kind == each)
    final = np.append(np.flatnonzero(waits), len(kind) - 1)
    return np.asarray(ahead[:, final[np.searchsorted(final, np.arange(len(kind)))]])


def _own_by_calls(started: Array, ended: Array, waited: Array, head: Array) -> Array:
    """The same where only calls are recorded: less what the rank waited for the last to call, with
    the transfers that follow.

    Where the first call is taken as the begin, `head` is how long after its input was asked for,
    and after the first of its peers, the rank made it.
    """
    known = (started >= 0) & (ended >= started) & (waited >= 0)
    return np.asarray(np.where(known, np.maximum(ended - started - waited + head, 0), UNKNOWN))


def transfers_over(calls: RankCalls) -> Array:
    """When each Send and Recv was over as far as its rank shows (ranks, calls), -1 unknown.

    Where only calls are recorded: a host waits for what it receives before it goes on, and one that
    goes on at once after what it sends alone does not wait for that. One that makes no call within
    its tasks goes on to compute, and its next call is after that; after what it sends alone, it
    asks for the next input first, if it needs one.
    """
    if calls.knows_ends:
        return calls.ended_ns
    transfers = np.flatnonzero(calls.use <= RECV)
    if not len(transfers):
        return np.full(calls.entered_ns.shape, UNKNOWN, dtype=np.int64)
    with_next = np.diff(calls.group[transfers], append=UNKNOWN) == 0
    with_next &= (calls.group[transfers] >= 0) & (np.diff(transfers, append=len(calls)) == 1)
    # The first call after all of a group, by the group's last transfer.
    last = np.minimum.accumulate(np.where(with_next, len(calls), transfers)[::-1])[::-1]
    following = _at(calls.entered_ns, np.where(last + 1 < len(calls), last + 1, UNKNOWN))
    torn = np.append(calls.lost, True)[last + 1]
    # Before what all replicas or stages do together a rank may wait for something else, too.
    elsewhere = np.append(np.isin(calls.use, (REPLICAS, OUTSIDE)), True)[last + 1]
    over = np.where(torn | elsewhere, UNKNOWN, following)
    if not (calls.use == TASK).any():
        asks = np.append(calls.use == RECV, False)[last + 1]
        received = np.isin(
            calls.group[transfers], calls.group[transfers][calls.use[transfers] == RECV]
        )
        received &= calls.group[transfers] >= 0
        over = np.where(asks & ~received & (calls.use[transfers] == SEND), over, UNKNOWN)
    sends = calls.use[transfers] == SEND
    alone = sends & ~with_next & ~np.append(False, with_next[:-1]) & (over >= 0)
    took = _row_median(over - calls.entered_ns[:, transfers], alone)
    at_once = np.isnan(took) | (np.nan_to_num(took) < thresholds.GOES_ON_NS)
    result = np.full(calls.entered_ns.shape, UNKNOWN, dtype=np.int64)
    result[:, transfers] = np.where(sends & at_once, UNKNOWN, over)
    return result


def _row_median(values: Array, known: Array) -> Array:
    """The median of the known values of each row (rows, 1), NaN where there is none."""
    return median(np.where(known, values, np.nan), 1)[:, np.newaxis]
