"""How fast the whole job goes, and the lines of logs around a moment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from oncall.console.evidence_queries import GetLogLines, GetRankValues, GetRates
from oncall.console.queries import GetSnapshot
from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall.tui.models.rates import deviation, outside_band
from oncall.views.night import log_lines
from oncall.views.rates.buckets import Buckets, Series, has_stopped
from oncall.views.rates.job import job_series

from .conftest import Open


def job(open_session: Open, path: Path) -> dict[str, Series]:
    session = open_session(path)
    session.ask(GetSnapshot())
    return {one.name: one for one in session.ask(GetRates("job"))}


def test_a_hang_is_a_zero_and_an_iteration_that_does_not_end(
    recorded: Callable[[str], Path], opened: Open
) -> None:
    series = job(opened, recorded("hang"))
    done = series["completed operations"]
    assert done.unit == "ops/s" and done.baseline is not None
    assert done.value[-1] == 0.0 < done.baseline[0]
    took = series["iteration time"]
    median = float(np.nanmedian(took.value[: len(took.value) // 3]))
    assert took.value[-1] > 4 * median


def test_calls_alone_are_not_headed_completed(tmp_path: Path, opened: Open) -> None:
    """As a log of calls holds them: neither an end nor whether they were done."""
    call = {"job": "j", "comm": 7, "kind": "coll", "op": "AllReduce", "bytes": 8, "rank": 0}
    begun = [10**18 + n * 10**9 for n in range(40)]
    for name, ended in (("calls", {}), ("completed operations", {"ended_ns": begun, "done": True})):
        with Incident.empty() as incident:
            incident.append("ops", call | {"seq": list(range(40)), "enqueued_ns": begun} | ended)
            incident.append("comms", {"job": "j", "comm": 7, "rank": [0, 1], "size": 2})
            incident.save(tmp_path / f"{name}.oncall")
        assert next(iter(job(opened, tmp_path / f"{name}.oncall"))) == name


def test_a_call_that_waits_in_its_stream_ends_no_iteration(tmp_path: Path, opened: Open) -> None:
    """Enqueued with the rest of its iteration, it will begin an iteration later."""
    with Incident.empty() as incident:
        rounds, second = 40, 10**9
        begun = [10**18 + n * second for n in range(rounds)]
        call = {"job": "j", "comm": 7, "kind": "coll", "op": "AllReduce", "bytes": 8, "rank": 0}
        times = {"enqueued_ns": begun, "started_ns": begun, "ended_ns": [b + 5 for b in begun]}
        incident.append("ops", call | times | {"seq": list(range(rounds)), "done": True})
        queued = {"seq": rounds, "enqueued_ns": begun[-1] + 1000, "done": False}
        incident.append("ops", call | queued | {"observed_ns": begun[-1] + second // 2})
        incident.append("comms", {"job": "j", "comm": 7, "rank": [0, 1], "size": 2})
        incident.save(tmp_path / "made.oncall")
    took = job(opened, tmp_path / "made.oncall")["iteration time"]
    known = took.value[np.isfinite(took.value)]
    assert len(known) and np.allclose(known, 1.0)


SECOND = 10**9


def two_nodes(path: Path, until_s: tuple[int, int], stopped_s: int = 10**6) -> Path:
    """A rank on each of two nodes, ten operations a second until each was asked, or it stopped."""
    with Incident.empty() as incident:
        for rank, seconds in enumerate(until_s):
            call = {"job": "j", "comm": 7, "kind": "coll", "op": "AllReduce", "bytes": 8}
            count = 10 * min(seconds, stopped_s)
            begun = [10**18 + n * SECOND // 10 for n in range(count)]
            times = {"enqueued_ns": begun, "started_ns": begun, "ended_ns": [b + 5 for b in begun]}
            done = {"rank": rank, "seq": list(range(count)), "done": True}
            incident.append("ops", call | times | done)
            seen = {"seq": count, "enqueued_ns": begun[-1] + 9, "done": False, "rank": rank}
            incident.append("ops", call | seen | {"observed_ns": 10**18 + seconds * SECOND})
            incident.append("ranks", {"job": "j", "rank": [rank], "node": [f"gpu{rank}"]})
        incident.append("comms", {"job": "j", "comm": 7, "rank": [0, 1], "size": 2})
        incident.save(path)
    return path


def test_what_a_node_has_yet_to_tell_is_no_zero(tmp_path: Path, opened: Open) -> None:
    done = job(opened, two_nodes(tmp_path / "j.oncall", (60, 57)))["completed operations"]
    assert 10**18 + 56 * SECOND < done.at_ns[-1] < 10**18 + 58 * SECOND
    assert done.value[-1] > 10


def test_a_stop_is_outside_without_a_time_before_the_fault(tmp_path: Path, opened: Open) -> None:
    session = opened(two_nodes(tmp_path / "j.oncall", (60, 60), stopped_s=30))
    session.ask(GetSnapshot())
    shown = session.shown
    assert shown is not None
    buckets = Buckets.over(10**18, 10**18 + 60 * SECOND)
    done, took = job_series(shown.incident, shown.snapshot.ranks, buckets, began_ns=10**18)
    for one, sides in ((done, "below"), (took, "above")):
        assert one.baseline is not None and deviation(one) == sides
        assert not outside_band(one, one.value[:20]).any()


def test_the_lines_nearest_to_the_moment() -> None:
    with Incident.empty() as incident:
        lines = range(100)
        incident.append("log_events", {
            "job": ["j"] * 100, "path": ["a.log"] * 100, "line": list(lines),
            "at_ns": [10**18 + n * 10**9 for n in lines], "rank": [3] * 100,
            "kind": ["error" if n == 50 else "init" for n in lines],
            "text": [f"line {n}" for n in lines],
        })  # fmt: skip
        near = log_lines(incident, 10**18 + 20 * 10**9, 5)
        assert [one.text for one in near] == [f"line {n}" for n in range(18, 23)]
        first = log_lines(incident, None, 3)
        assert [one.problem for one in first] == [False, True, False]
        assert near[0].source == "rank 3"


def test_each_rank_has_its_lag_and_its_rate(recorded: Callable[[str], Path], opened: Open) -> None:
    session = opened(recorded("hang"))
    snapshot = session.ask(GetSnapshot())
    lag = session.ask(GetRankValues("lag"))
    assert lag.unit == "ops" and len(lag.value) == len(snapshot.ranks)
    assert lag.value[5] == lag.value.max() > 0  # nobody is behind further than the culprit
    rate = session.ask(GetRankValues("rate"))
    assert np.isfinite(rate.value).all() and rate.value.min() >= 0
    with pytest.raises(UsageError, match="temperature was recorded for no rank"):
        session.ask(GetRankValues("temperature"))
    with pytest.raises(UsageError, match="unknown measure"):
        session.ask(GetRankValues("humidity"))


def test_a_reading_is_the_newest_of_its_gpu(recorded: Callable[[str], Path], opened: Open) -> None:
    session = opened(recorded("hang"))
    snapshot = session.ask(GetSnapshot())
    shown = session.shown
    assert shown is not None
    ranks = snapshot.ranks
    at_ns = snapshot.moment.at_ns or 0
    shown.incident.append("gpus", {
        "node": [ranks.node[0]] * 2, "gpu": [int(ranks.gpu[0])] * 2,
        "at_ns": [at_ns, at_ns - 10**9], "temp_c": [84.0, 40.0],
    })  # fmt: skip
    found = session.ask(GetRankValues("temperature"))
    assert found.value[0] == 84.0 and np.isnan(found.value[1])


def test_a_recording_without_logs_has_no_lines(
    recorded: Callable[[str], Path], opened: Open
) -> None:
    session = opened(recorded("hang"))
    session.ask(GetSnapshot())
    assert session.ask(GetLogLines()) == ()


def test_who_pauses_between_bursts_has_not_stopped() -> None:
    bursts = np.tile([3.0, 0.0, 0.0, 2.0], 20)
    assert not has_stopped(bursts)
    assert not has_stopped(np.concatenate((bursts, np.zeros(4))))
    assert has_stopped(np.concatenate((bursts, np.zeros(30))))
    assert has_stopped(np.concatenate((bursts, np.zeros(30), [np.nan] * 3)))
    assert not has_stopped(np.zeros(30))
    assert not has_stopped(np.full(30, np.nan))
