"""The numbers that decide in the account of lost time."""

from __future__ import annotations

from dataclasses import dataclass

from oncall.evidence import decides


@dataclass(frozen=True)
class Limits:
    """Of reading a job's programs, of comparing like with like, and of a verdict."""

    batch_gap: float = decides("30 us", "calls of one batch are made within; 250 us is as good")
    timed: float = decides("90 %", "of the calls say how long they took, or when they began")

    uneven: float = decides("10 %", "of an operation's calls, members differ in size: by data")

    # Segments
    most_ranks: float = decides("90 %", "of the ranks call a cut, and take part in a class")
    same_calls: float = decides("70 %", "of the ranks do the same in segments of one class")
    heard: float = decides("60 %", "of the ranks recorded a segment")
    fewest_nodes: int = decides(4, "calls from cut to cut, where some call is rare enough")
    fewest_iterations: int = decides(4, "of fewer, there is no baseline")
    exact: float = decides("2 ms", "by which clocks that calls have put right are off")
    most_segments: int = decides(48, "newest ones of a class; more say nothing new")
    spacing: float = decides("10 %", "of the calls from one to the next: it comes back regularly")
    returns: float = decides("90 %", "of its spacings are regular: nothing lies between")
    stretches: int = decides(12, "of a recording without iterations: enough to tell chance")
    most_calls: float = decides("50 %", "of the calls are in iterations: less is one phase")
    short: float = decides("10 %", "of the longest class: what is shorter is no iteration")

    # Times
    busy: float = decides("25 %", "of a rank's calls are in its tensor group")
    early: float = decides("20 %", "of the segments: lateness only adds to a clock's offset")
    gone_early: float = decides("1 %", "of calls, left before the last came: clocks are right")
    drifts: int = decides(12, "segments that show a drift of clocks")
    most_lead: int = decides(12, "calls that a host is ahead of its device by")
    equally_good: float = decides("115 %", "of the best lead's impossible places: as good")
    equally_good_share: float = decides("2 %", "... and so many of all places")
    equally_good_time: float = decides("20 us", "... or of calls alone so much time")
    clearly: float = decides("5 %", "of an operation's time is beyond the exactness of calls")
    clearly_time: float = decides("50 us", "... and this long")
    overlaps: float = decides("25 %", "of a call's time not waited for: it goes on beside")
    overlaps_time: float = decides("300 us", "... and this long")

    replays: float = decides("25 %", "a replay that is off by more does not know who waits")
    covers: float = decides("50 %", "of an iteration: a replay of less does not account for it")
    backwards: float = decides(
        "10 %", "of ranks' time, gone on too early: hosts do not wait where a replay has it"
    )
    replay_error: float = decides(
        "25 %", "quantile over iterations of what replays are too long by: so much they always are"
    )

    # Baselines
    few_peers: int = decides(3, "ranks of a role have a median")
    usual_alone: float = decides("30 %", "quantile over iterations of a rank without peers")
    usual_transfer: float = decides("25 %", "quantile over iterations of a transfer")
    late_share: float = decides("10 %", "of a common delay: with less, nobody was late for it")
    lateness: float = decides("20 %", "of a common delay, before it: a delay that shows later")

    fewer: float = decides("75 %", "of the late ranks: a reading of waits explains so much better")

    # Verdicts
    least_gain: float = decides("5 %", "of an iteration: less is within what iterations differ by")
    hiccup: float = decides("20 ms", "in all: a host loses as much at any time, by one interrupt")
    once: float = decides("500 ms", "a full garbage collection stops a healthy host for less")
    least_part: float = decides("1 %", "of all time since: less is not worth waking anyone for")
    stands_out: float = decides(2, "times the next rank's gain: else the difference is chance")
    as_late: float = decides("50 %", "of the largest excess: ranks that one cause makes late")
    own_and_link: float = decides(
        "70 %", "of the largest excess: a rank that is slow itself is the one whose link is"
    )
    alike: float = decides("80 %", "of the best gain: ranks whose transfers explain as much")
    inseparable: float = decides("97 %", "of the largest excess: they share all slow operations")
    calls_alone: int = decides(2, "times the iterations: calls hardly show transfers")
    calls_gain: float = decides("133 %", "of the least gain, for the same reason")
    repeats: int = decides(3, "iterations in which others wait for a rank: fewer are an event")
    by_chance: float = decides("2 %", "that a rank that is last by turns is last as often")
    seen: float = decides(
        "33 %", "of what late ranks cost: late iterations are so much longer than the others"
    )
    large: float = decides("20 %", "of an iteration, or of all time: more than any noise")
    event: int = decides(8, "iterations, of which one may differ: a warm-up, a checkpoint")
    tried: int = decides(32, "ranks with the largest excess, of more than four times as many")
