"""What decides how a rank's calls are read as tasks: the parameters of `labelled_tasks`."""

from __future__ import annotations

from dataclasses import dataclass

from oncall.analysis.traffic.parallelism import UseThresholds
from oncall.evidence import decides


@dataclass(frozen=True)
class Thresholds(UseThresholds):
    """Carried with each rank's calls, so that every reader of them decides by the same values."""

    # what calls are for
    element_bytes: int = decides(
        2, "bytes, where a recorder states elements only: bfloat16, as in training"
    )
    shape_bytes: int = decides("256 B", "shapes of tensors are announced by Sends of their own")
    cut_groups: float = decides(
        "1 %", "of group calls: more go one way in a pipeline, twice in each iteration"
    )

    # where iterations begin and end
    pause: float = decides(
        "25 %", "of an iteration, beyond the baseline there: no part of training takes so long"
    )
    usually: float = decides("50 %", "of the iterations: what comes with as many belongs to them")
    together: float = decides(
        "25 %", "of an iteration: pipelines leave their ranks no further apart"
    )
    long_pause: float = decides(
        "50 %", "of the baseline pause before an iteration's first exchange"
    )
    exchange_times: float = decides(3, "times the median pause: before it an iteration begins")
    repeated: float = decides(
        1.5, "times as often as once an iteration: the same two exchanges follow within one too"
    )

    # what repeats within them
    repeats: float = decides("99.9 %", "of calls are the same as one period before")
    loss: float = decides(
        "12.5 %", "of the largest call: losses, a number a token, are smaller than what layers pass"
    )
    most_words: int = decides(4, "of the rarest calls, by whose distance periods are searched")
    most_periods: int = decides(1024, "distances between equal calls that are tried")

    # which schedule a job runs
    alike: float = decides(1.2, "times another's misfit: less does not distinguish two schedules")
    explained: float = decides("2 %", "of a transfer out of place on average: as the schedule says")
    fits: float = decides("50 %", "of a transfer out of place on average: more explains nothing")
    against_stated: float = decides("20 %", "by which another schedule must fit the calls better")
    most_chunks: int = decides(16, "chunks of a stage that are tried")
    most_shapes: int = decides(6, "different iterations of a rank that are compared")
    inverted: float = decides(
        "5 %", "of tasks send before they receive: then one group call exchanges both ways"
    )

    # how long tasks take
    backward_share: float = decides(
        2 / 3, "of both: a backward computes two gradients, each as much as the forward does"
    )
    ahead_share: float = decides(
        "50 %",
        "of the time that a host which waits in each call takes up to the last: one that calls "
        "ahead takes less",
    )
    goes_on_ns: int = decides(
        "120 us", "hosts make the next call within it, a transfer takes longer"
    )

    # how far clocks are apart
    prompt_ns: int = decides("5 ms", "after a round: a member that calls so soon did not wait")
    clock_error_ns: int = decides("3 ms", "members go on apart by as much")
    fewest_rounds: int = decides(3, "that show how far two clocks are apart")
