"""The numbers that decide in the account of lost time."""

from __future__ import annotations

from dataclasses import dataclass

from oncall.evidence import decides


@dataclass(frozen=True)
class Limits:
    """Of reading a job's programs, of comparing like with like, and of a verdict."""

    # How many are most, some, enough
    nearly_all: float = decides(
        "90 %", "of ranks, calls, pairs, bytes or time: the rest was lost or is an exception"
    )
    mostly: float = decides("50 %", "of ranks, calls, time or excess: less is not representative")
    same_calls: float = decides("70 %", "of the ranks do the same in iterations of one kind")
    hardly: float = decides("10 %", "of ranks, calls or time: less does not shape a job")
    negligible: float = decides("1 %", "of calls, or of all time: not worth waking anyone for")
    fewest: int = decides(4, "like iterations, or calls in one: of fewer, there is no baseline")
    few: int = decides(
        3,
        "ranks, links or groups that have a median: of two nobody knows which is the exception; or "
        "rounds and iterations that are no event",
    )
    enough: int = decides(12, "parts of a recording without iterations: they show what is chance")
    event: int = decides(8, "iterations, of which one may differ: a warm-up, a checkpoint")
    most_compared: int = decides(
        48,
        "ranks with the largest excess, or newest segments of a class: more say nothing new of now",
    )
    most_calls: int = decides(
        1_000_000, "of all ranks, in the segments of a class: as many fit in memory"
    )

    # Times of calls
    at_once: float = decides("30 us", "between calls made at once; 250 us is as good")
    exact: float = decides("2 ms", "by which clocks that calls have put right are off")
    ordinary: float = decides(
        "25 %",
        "quantile over iterations: what they take without a fault; of a length or of calls: what "
        "differs by less is alike",
    )
    most_lead: int = decides(12, "calls that a host makes ahead of its device")
    equally_good: float = decides("115 %", "of the best lead's impossible places: as good")
    overlaps_time: float = decides("300 us", "of a call not waited for: it goes on beside")

    # Verdicts
    least_gain: float = decides("5 %", "of an iteration, task or the time: these differ by as much")
    fewest_replayed: int = decides(2, "iterations: replays leave little to chance")
    most_causes: int = decides(4, "a job; what is left then is not worth a call")
    large: float = decides("20 %", "of an iteration, or of all time: more than any noise")
    hiccup: float = decides("20 ms", "in all: a host loses as much at any time, by one interrupt")
    once: float = decides("500 ms", "a full garbage collection stops a healthy host for less")
    stands_out: float = decides(2, "times the next rank's gain: else the difference is chance")
    alike: float = decides("80 %", "of the best gain: ranks that explain as much")
    inseparable: float = decides("97 %", "of the largest excess: they share all slow operations")
    by_chance: float = decides("2 %", "that a rank that is last by turns is last as often")
    seen: float = decides("33 %", "of what late ranks cost: late iterations are so much longer")
