"""What would decide an inconclusive diagnosis, by what the evidence lacks."""

from __future__ import annotations

from oncall.core.diagnosis import Coverage, Gap
from oncall.evidence.incident import Incident
from oncall.use_case.deciding import would_decide

NOTHING_MISSING = Coverage(nodes=2, answered=2, ranks=4, ranks_seen=4)


def incident(*nodes: str) -> Incident:
    made = Incident.empty()
    if nodes:
        made.append("ranks", {"job": "j", "rank": list(range(len(nodes))), "node": list(nodes)})
    return made


def test_calls_alone_want_stacks_of_their_hosts() -> None:
    with incident("gpu01", "gpu02") as made:
        made.append("ops", {"job": "j", "rank": [0], "seq": 1})
        assert would_decide(made, NOTHING_MISSING).endswith("`oncall stacks --hosts gpu[01-02]`")


def test_ranks_without_a_recording_are_looked_at() -> None:
    torn = Gap("rank0.json: torn after 600 events", ("gpu01",), (0,))
    missing = Gap("left no recording", ("gpu02",), (3,), silent=True)
    coverage = Coverage(2, 1, 4, 3, gaps=(torn, missing))
    with incident("gpu01", "gpu02") as made:
        made.append("ops", {"job": "j", "rank": [0], "seq": 1})
        advice = would_decide(made, coverage)
    assert advice == "See what rank 3 without a recording does: `oncall stacks --hosts gpu02`"


def test_one_look_of_ras_wants_another() -> None:
    with incident("gpu01") as made:
        made.append("launches", {"job": "j", "rank": [0], "launched": 5})
        assert "`oncall diagnose ras://gpu01`" in would_decide(made, NOTHING_MISSING)


def test_stacks_that_are_alike_want_calls() -> None:
    with incident() as made:
        frames = [["all_reduce at torch/distributed/distributed_c10d.py:9"]] * 2
        stacks = {"job": "j", "rank": [0, 1], "is_main": True, "frames": frames}
        made.append("thread_stacks", stacks)
        assert "fr_trace_rank_*" in would_decide(made, NOTHING_MISSING)


def test_the_stack_of_one_process_is_alike_to_none() -> None:
    with incident() as made:
        stacks = {"job": "j", "rank": [0], "is_main": True, "frames": [["f at x.py:1"]]}
        made.append("thread_stacks", stacks)
        assert would_decide(made, NOTHING_MISSING) == ""


def test_stacks_that_were_taken_are_taken_again() -> None:
    with incident("gpu01") as made:
        made.append("ops", {"job": "j", "rank": [0, 1], "seq": 1})
        frames = [["f at x.py:1"], ["all_reduce at torch/distributed/distributed_c10d.py:9"]]
        made.append(
            "thread_stacks", {"job": "j", "rank": [0, 1], "is_main": True, "frames": frames}
        )
        assert would_decide(made, NOTHING_MISSING).startswith("Take the stacks again")


def test_names_that_a_shell_would_read_are_not_repeated() -> None:
    with incident("gpu01; rm -rf ~") as made:
        made.append("ops", {"job": "j", "rank": [0], "seq": 1})
        assert would_decide(made, NOTHING_MISSING).endswith("`oncall stacks --hosts HOSTS`")


def test_operations_without_durations_want_durations() -> None:
    with incident("gpu01") as made:
        made.append("ops", {"job": "j", "rank": [0], "seq": 1})
        assert "TORCH_NCCL_ENABLE_TIMING=1" in would_decide(made, NOTHING_MISSING, "durations")
