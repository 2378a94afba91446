"""Laws of simulated jobs: physics of host and device, and dumps as PyTorch writes them."""

from __future__ import annotations

import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oncall.core.errors import UsageError
from oncall_lab.drawn.jobs import LEAST, case
from oncall_lab.files import simulate_file
from oncall_lab.jobs import JobFault, JobScenario, simulate_job
from oncall_lab.jobs.fault import CLASSES
from oncall_lab.jobs.play import Operation, Played, play
from oncall_lab.jobs.scenario import DUMPS, PIPELINES, PROGRAMS
from oncall_lab.jobs.simulation import shown, write_job
from oncall_lab.simulation import scenario_of

ROOT = Path(__file__).parents[3]
HANGS = [kind for kind, name in CLASSES.items() if name.startswith("H")]
MINUTE = 60 * 10**9


def small(program: str, **values: Any) -> JobScenario:
    """A job of 8 ranks that plays in a fraction of a second."""
    micro_batches = 8 if program in PIPELINES else 1
    known = {"ranks": 8, "group": 4, "steps": 6, "layers": 2, "gpus_per_host": 4}
    return JobScenario(**{"program": program, "micro_batches": micro_batches, **known, **values})


def together(played: Played) -> list[list[Operation]]:
    """The members' operations of each collective."""
    found = defaultdict(list)
    for operations in played.operations:
        for one in operations:
            if not one.parts:
                found[one.group.name, one.number].append(one)
    return list(found.values())


def dumps(folder: Path) -> list[dict[str, Any]]:
    paths = sorted((folder / "fr").iterdir(), key=lambda path: int(path.name.split("_")[-1]))
    return [pickle.loads(path.read_bytes()) for path in paths]


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_runs_to_its_end(program: str) -> None:
    played = play(small(program))
    assert np.isfinite(played.steps).all()
    assert (np.diff(played.steps, axis=0) > 0).all()


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_member_ends_before_the_last_has_come(program: str) -> None:
    played = play(small(program))
    for members in together(played):
        assert len(members) == len(members[0].group.members)
        assert len({one.task.end_ns for one in members}) == 1
        assert members[0].task.end_ns > max(one.task.start_ns for one in members)
    for operations in played.operations:
        for one in operations:
            assert one.created_ns <= one.task.start_ns <= one.task.end_ns
        created = [one.created_ns for one in operations]
        assert created == sorted(created)


@pytest.mark.parametrize("program", ["context_parallel", *PIPELINES])
def test_nothing_is_received_before_it_was_sent(program: str) -> None:
    ends: dict[Any, list[Operation]] = defaultdict(list)
    for rank, operations in enumerate(play(small(program)).operations):
        numbers: dict[Any, int] = defaultdict(int)
        for one in operations:
            for way, peer, _ in one.parts:
                link = (rank, peer) if way == "send" else (peer, rank)
                numbers[link] += 1
                ends[link, numbers[link]].append(one)
    assert all(len(pair) == 2 for pair in ends.values())
    for one, other in ends.values():
        assert min(one.task.end_ns, other.task.end_ns) > max(one.task.start_ns, other.task.start_ns)


def test_the_host_runs_ahead_until_it_reads_a_result() -> None:
    played = play(small("ddp", sync_every=5, load_ns=0))
    ahead = [one.task.start_ns - one.created_ns for one in played.operations[0]]
    assert max(ahead) > 60e6  # a forward and more


def test_equal_scenarios_give_equal_dumps(tmp_path: Path) -> None:
    for name, seed in (("one", 3), ("same", 3), ("other", 4)):
        write_job(small("hsdp", seed=seed), tmp_path / name)
    one, same, other = (dumps(tmp_path / name) for name in ("one", "same", "other"))
    assert one == same
    assert one != other


def test_a_dump_has_the_keys_of_a_real_one(tmp_path: Path) -> None:
    real = pickle.loads((ROOT / "fixtures/flight_recorder/healthy/rank_0").read_bytes())
    write_job(small("ddp"), tmp_path)
    mine = dumps(tmp_path)[0]
    assert list(mine) == list(real)
    assert [*mine["entries"][0]] == [*real["entries"][0]]
    assert {type(value) for value in mine["pg_status"]} == {str}
    status, theirs = mine["pg_status"]["0"], next(iter(real["pg_status"].values()))
    assert list(status) == list(theirs)


@pytest.mark.parametrize("timing", [True, False])
def test_a_call_in_flight_is_started_only_with_timing(tmp_path: Path, timing: bool) -> None:
    hang = JobFault("never_calls", (5,), step=3)
    write_job(small("ddp", timing=timing, faults=(hang,)), tmp_path)
    entries = [entry for dump in dumps(tmp_path) for entry in dump["entries"]]
    states = {entry["state"] for entry in entries if not entry["retired"]}
    assert states <= ({"scheduled", "started"} if timing else {"scheduled"})
    assert any("duration_ms" in entry for entry in entries) is timing
    assert all(entry["retired"] for entry in entries if "duration_ms" in entry)


def test_durations_are_the_members_own(tmp_path: Path) -> None:
    slow = JobFault("slow_compute", (2,), step=1, factor=2.0)
    write_job(small("ddp", timing=True, jitter=0.0, uneven=0.0, faults=(slow,)), tmp_path)
    lasted = [
        sum(entry.get("duration_ms", 0.0) for entry in dump["entries"]) for dump in dumps(tmp_path)
    ]
    assert lasted.index(min(lasted)) == 2


@pytest.mark.parametrize("kind", HANGS)
@pytest.mark.parametrize("dump", DUMPS)
@pytest.mark.parametrize("program", ["fsdp2", "interleaved", "moe"])
def test_a_hang_begins_where_the_truth_says(
    tmp_path: Path, kind: str, dump: str, program: str
) -> None:
    scenario = small(
        program, dump=dump, earlier_steps=50, faults=(JobFault(kind, (6,), step=3, call=0.9),)
    )
    truth = write_job(scenario, tmp_path)
    assert (truth["family"], truth["culprits"]) == ("hang", [6])
    of_group: dict[int, list[dict[str, Any]]] = defaultdict(list)
    key = "p2p_seq_id" if truth["op"] in ("send", "recv") else "collective_seq_id"
    for rank, content in enumerate(dumps(tmp_path)):
        for entry in content["entries"]:
            named = entry["process_group"][0] == truth["comm"]["name"]
            if named and entry["is_p2p"] == (key == "p2p_seq_id") and entry[key] == truth["seq"]:
                of_group[rank].append(entry)
    assert (6 in of_group) is (kind != "never_calls")
    assert set(of_group) <= set(truth["comm"]["ranks"])
    if key == "collective_seq_id":
        assert set(of_group) >= set(truth["comm"]["ranks"]) - {6}
        seen = [entry for entries in of_group.values() for entry in entries]
        assert not any(entry["retired"] for entry in seen)
        state = {"completed"} if dump == "aborted" else {"scheduled"}
        assert {entry["state"] for entry in seen} == state


def test_a_mismatch_is_in_the_dumps(tmp_path: Path) -> None:
    for how in ("operation", "size", "extra"):
        fault = JobFault("mismatch", (1,), step=3, how=how)
        truth = write_job(small("zero3", faults=(fault,)), tmp_path / how)
        called = [
            (entry["profiling_name"], str(entry["input_sizes"]))
            for dump in dumps(tmp_path / how)
            for entry in dump["entries"]
            if entry["collective_seq_id"] == truth["seq"]
        ]
        assert len(set(called)) == 2
        assert called.count(called[1]) == 1


def test_the_ring_holds_the_newest(tmp_path: Path) -> None:
    write_job(small("moe"), tmp_path / "all")
    write_job(small("moe", ring_entries=20), tmp_path / "some")
    for every, some in zip(dumps(tmp_path / "all"), dumps(tmp_path / "some"), strict=True):
        assert some["entries"] == every["entries"][-20:]
        assert some["pg_status"] == every["pg_status"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_importer_reads_all_of_it(program: str) -> None:
    hang = JobFault("never_calls", (7,), step=4, call=0.5)
    incident, truth = simulate_job(small(program, earlier_steps=100, faults=(hang,)))
    with incident:
        read = incident.con.execute("SELECT count(*), count(problem) FROM recordings").fetchone()
        assert read == (8, 0)
        assert incident.con.execute("SELECT world_size FROM jobs").fetchone() == (8,)
        assert incident.rows("ops") > 100
    assert [fault.ranks for fault in truth.faults] == [(7,)]


def test_a_slow_link_slows_what_crosses_hosts() -> None:
    link = JobFault("slow_link", (0,), step=2, factor=10.0)
    sound, slow = (play(small("hsdp", faults=faults)) for faults in ((), (link,)))
    for mine, theirs in zip(together(slow), together(sound), strict=True):
        last = [max(one.task.start_ns for one in members) for members in (mine, theirs)]
        length = [m[0].task.end_ns - at for m, at in zip((mine, theirs), last, strict=True)]
        struck = mine[0].group.crosses and 0 in mine[0].group.members and mine[0].step >= 2
        assert length[0] / length[1] == pytest.approx(10 if struck else 1, rel=1e-3)


def test_a_scenario_is_read_and_simulated(tmp_path: Path) -> None:
    text = "program: serving\nranks: 8\nsteps: 9\nfaults: [{fault: stalls, ranks: 3, step: 4}]\n"
    (tmp_path / "job.yaml").write_text(text)
    line = simulate_file(tmp_path / "job.yaml", tmp_path / "out", seed=None, shards=False)
    assert "8 ranks" in line
    assert (tmp_path / "out/truth.json").is_file()
    with pytest.raises(UsageError, match="shards"):
        simulate_file(tmp_path / "job.yaml", tmp_path / "out", seed=None, shards=True)


@pytest.mark.parametrize(
    ("mapping", "problem"),
    [
        ({"program": "gpipe"}, "is none of"),
        ({"program": "ddp", "ranks": 10}, "does not divide"),
        ({"program": "interleaved", "micro_batches": 4}, "micro_batches"),
        ({"program": "ddp", "dump": "aborted"}, "after a hang"),
        ({"program": "ddp", "faults": [{"fault": "stalls", "ranks": 1, "call": 0.1}]}, "call"),
        ({"program": "ddp", "faults": [{"fault": "stalls", "ranks": 16}]}, "0-15"),
    ],
)
def test_what_cannot_be_is_refused(mapping: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        scenario_of(mapping)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_drawn_case_is_what_its_number_says(number: int) -> None:
    drawn, again = case(5, number), case(5, number)
    assert drawn.scenario == again.scenario
    assert bool(drawn.scenario.faults) is (number > 0)
    assert drawn.impact is None if number < 2 else drawn.impact >= LEAST


@pytest.mark.parametrize("kind", ["mismatch", "never_ends"])
def test_the_call_that_hangs_is_made_once(kind: str) -> None:
    fault = JobFault(kind, ranks=(2,), step=3, call=0.4)
    played = play(small("ddp", faults=(fault,)))
    assert played.strike is not None
    made = [
        sum(one.group == played.strike.group for one in operations)
        for operations in played.operations
    ]
    assert len(set(made)) == 1


@pytest.mark.parametrize(
    ("program", "fault", "recorded", "expected"),
    [
        ("ddp", JobFault("never_calls", ranks=(2,), step=3), {"timing": True}, "full"),
        ("ddp", JobFault("never_calls", ranks=(2,), step=3), {"timing": False}, "weak"),
        ("ddp", JobFault("mismatch", ranks=(2,), step=3), {"timing": False}, "full"),
        ("ddp", JobFault("never_ends", ranks=(2,), step=3), {"timing": True}, "group"),
        ("ddp", JobFault("slow_link", ranks=(2,), step=3), {"timing": True}, "full"),
        ("ddp", JobFault("slow_link", ranks=(2,), step=0), {"timing": True}, "weak"),
        ("ddp", JobFault("stalls", ranks=(2,), step=0, every=1), {}, "full"),
        ("ddp", JobFault("stalls", ranks=(2,), step=4, every=1), {}, "weak"),
        ("ddp", JobFault("stalls", ranks=(2,), step=0, every=1), {"ring_entries": 6}, "weak"),
        ("interleaved", JobFault("slow_host", ranks=(0,), step=0), {}, "weak"),
        ("ddp", JobFault("slow_host", ranks=(0,), step=0), {}, "full"),
    ],
)
def test_the_truth_says_what_the_dumps_can_show(
    program: str, fault: JobFault, recorded: dict[str, Any], expected: str
) -> None:
    job = small(program, faults=(fault,), dump_at=1.0, **recorded)
    assert shown(job, play(job)) == expected
