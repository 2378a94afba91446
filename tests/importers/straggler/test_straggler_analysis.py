"""Straggler-analysis traces as evidence: tasks that their recorder named."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.sql import rows

from oncall.core.errors import BadInput
from oncall.evidence.incident import Incident
from oncall.importers.detect import load
from oncall_lab.pipeline import PipelineScenario, simulate_pipeline

HEADER = "dp_rank,stage,rank,step,optype,start_ts,duration,seq_id,mc,mb_id,gmc"
META = (
    "trial_name: x\ndp_size: 1\npp_size: 2\ntp_size: 1\ndsp_size: 1\nvpp_size: {}\nworld_size: 2\n"
)
REAL = Path(__file__).parents[3].parent / "shared" / "data" / "straggler_analysis"

# Two stages, one micro-batch, a step whose clock begins anew.
STEP = """\
0,0,0,{0},params-all-gather,0.000,0.010,0,0,-1,-1
0,0,0,{0},forward-compute,0.010,0.100,0,0,0,0
0,0,0,{0},forward-send,0.110,0.001,0,-1,-1,-1
0,1,1,{0},forward-recv,0.010,0.101,0,-1,-1,-1
0,1,1,{0},forward-compute,0.111,0.100,0,0,0,1
0,1,1,{0},backward-compute,0.211,0.200,0,0,0,1
0,1,1,{0},backward-send,0.411,0.001,0,-1,-1,-1
0,0,0,{0},backward-recv,0.111,0.301,0,-1,-1,-1
0,0,0,{0},backward-compute,0.412,0.200,0,0,0,0
0,0,0,{0},gc,0.612,0.000,0,-1,0,-1
0,0,0,{0},embedding-grads-all-reduce,0.612,0.010,0,-1,-1,-1
0,0,0,{0},optimizer,0.622,0.010,0,-1,-1,-1
0,0,0,{0},no-such-thing,0.632,0.001,0,-1,-1,-1
"""


def write(folder: Path, *rows: str, name: str = "trace-x.csv", chunks: int = 1) -> Path:
    (folder / "meta-x.yaml").write_text(META.format(chunks))
    path = folder / name
    text = "\n".join((HEADER, *(row.strip() for row in rows))) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def tasks(incident: Incident, *names: str) -> list[tuple[Any, ...]]:
    return rows(
        incident,
        "SELECT rank, task, chunk, micro_batch, peer FROM stage_tasks "
        f"WHERE task IN {(*names, '')} ORDER BY started_ns, task",
    )


@pytest.mark.parametrize("name", ["trace-x.csv", "trace-x.csv.gz"])
def test_a_trace_fills_job_ranks_groups_and_tasks(
    tmp_path: Path, incident: Incident, name: str
) -> None:
    write(tmp_path, STEP.format(7), name=name)
    load([tmp_path], incident)
    assert rows(
        incident,
        "SELECT world_size, tp, pp, dp, cp, micro_batches, chunks, schedule, "
        "distributed_optimizer, origin FROM jobs",
    ) == [(2, 1, 2, 1, 1, 1, 1, None, True, "meta-x.yaml")]
    assert rows(incident, "SELECT rank, node FROM ranks ORDER BY rank") == [(0, None), (1, None)]
    assert rows(
        incident, "SELECT role, list(rank ORDER BY comm_rank) FROM comms GROUP BY role ORDER BY 1"
    ) == [("embedding", [0, 1]), ("pp", [0, 1])]
    assert rows(
        incident,
        "SELECT iteration, task, stage, micro_batch, peer, ended_ns - started_ns, own_ns, calls, "
        "source FROM stage_tasks WHERE rank = 0 ORDER BY started_ns, task",
    ) == [
        (7, "parameters", 0, None, None, 10_000_000, None, 0, "recorded"),
        (7, "forward", 0, 0, None, 100_000_000, 100_000_000, 0, "recorded"),
        (7, "forward_send", 0, 0, 1, 1_000_000, None, 0, "recorded"),
        (7, "backward_recv", 0, 0, 1, 301_000_000, None, 0, "recorded"),
        (7, "backward", 0, 0, None, 200_000_000, 200_000_000, 0, "recorded"),
        (7, "embedding", 0, None, None, 10_000_000, None, 0, "recorded"),
        (7, "garbage", 0, None, None, 0, None, 0, "recorded"),
        (7, "optimizer", 0, None, None, 10_000_000, None, 0, "recorded"),
        (7, "other", 0, None, None, 1_000_000, None, 0, "recorded"),
    ]


def test_parquet_is_recognised_by_its_columns_whatever_its_name(
    tmp_path: Path, incident: Incident
) -> None:
    trace = write(tmp_path, STEP.format(7))
    duckdb.execute(f"COPY (FROM '{trace}') TO '{tmp_path}/steps.parquet'")
    trace.unlink()
    load([tmp_path / "steps.parquet"], incident)
    assert incident.rows("stage_tasks") == 13
    assert rows(incident, "SELECT world_size FROM jobs") == [(2,)]


def test_steps_whose_clocks_begin_anew_are_laid_one_after_another(
    tmp_path: Path, incident: Incident
) -> None:
    write(tmp_path, STEP.format(7), STEP.format(12))
    load([tmp_path], incident)
    assert rows(
        incident,
        "SELECT iteration, min(started_ns), max(ended_ns) FROM stage_tasks GROUP BY 1 ORDER BY 1",
    ) == [(7, 0, 633_000_000), (12, 633_000_000, 1_266_000_000)]
    ((note,),) = rows(incident, "SELECT note FROM recordings")
    assert "one after another" in note


def test_steps_on_one_clock_keep_their_times(tmp_path: Path, incident: Incident) -> None:
    write(
        tmp_path,
        "0,0,0,1,forward-compute,100.5,0.1,0,0,0,0",
        "0,0,0,2,forward-compute,102.5,0.1,0,0,0,0",
    )
    load([tmp_path], incident)
    assert rows(incident, "SELECT started_ns FROM stage_tasks ORDER BY 1") == [
        (100_500_000_000,),
        (102_500_000_000,),
    ]
    ((note,),) = rows(incident, "SELECT note FROM recordings")
    assert "one after another" not in note


def test_interleaved_moves_know_their_chunk_and_empty_ones_are_left_out(
    tmp_path: Path, incident: Incident
) -> None:
    """Stage 0 of two, two chunks: it notes a receive for the model's first chunk, too."""
    write(
        tmp_path,
        "0,0,0,1,forward-recv,0.00,0.00,0,-1,-1,-1",
        "0,0,0,1,forward-compute,0.00,0.10,0,0,0,0",
        "0,0,0,1,forward-send,0.10,0.01,0,-1,-1,-1",
        "0,0,0,1,forward-recv,0.10,0.20,1,-1,-1,-1",
        "0,0,0,1,forward-compute,0.30,0.10,1,1,0,2",
        "0,0,0,1,forward-send,0.40,0.01,1,-1,-1,-1",
        "0,0,0,1,backward-recv,0.05,0.01,0,-1,-1,-1",
        "0,1,1,1,forward-compute,0.50,0.10,1,1,0,3",
        "0,1,1,1,forward-send,0.60,0.00,0,-1,-1,-1",
        chunks=2,
    )
    load([tmp_path], incident)
    assert rows(incident, "SELECT schedule, chunks FROM jobs") == [("interleaved", 2)]
    assert tasks(incident, "forward_recv", "forward_send", "backward_recv") == [
        (0, "forward_recv", 1, 0, 1),
        (0, "forward_send", 0, 0, 1),
        (0, "forward_send", 1, 0, 1),
    ]
    ((note,),) = rows(incident, "SELECT note FROM recordings")
    assert "3 sends and receives" in note


def test_a_receive_that_the_recorder_left_out_shifts_the_others(
    tmp_path: Path, incident: Incident
) -> None:
    write(
        tmp_path,
        "0,0,0,1,forward-compute,0.00,0.10,0,0,0,0",
        "0,0,0,1,forward-recv,0.10,0.20,0,-1,-1,-1",
        "0,0,0,1,forward-compute,0.30,0.10,1,1,0,2",
        "0,1,1,1,forward-compute,0.10,0.10,0,0,0,1",
        chunks=2,
    )
    load([tmp_path], incident)
    assert tasks(incident, "forward_recv") == [(0, "forward_recv", 1, 0, 1)]


def test_a_send_that_no_computation_claims_has_no_micro_batch(
    tmp_path: Path, incident: Incident
) -> None:
    write(
        tmp_path,
        *(f"0,0,0,1,forward-compute,0.{n}0,0.05,{n},0,{n},0" for n in range(4)),
        "0,0,0,1,forward-send,0.10,0.01,0,-1,-1,-1",
        "0,1,1,1,forward-compute,0.50,0.05,0,0,0,1",
    )
    load([tmp_path], incident)
    assert tasks(incident, "forward_send") == [(0, "forward_send", None, None, 1)]


def test_ranks_of_one_stage_form_its_tensor_group(tmp_path: Path, incident: Incident) -> None:
    trace = write(tmp_path, *(f"0,0,{r},1,forward-compute,0.0,0.1,0,0,0,0" for r in (0, 1)))
    meta = tmp_path / "meta-x.yaml"
    meta.write_text(meta.read_text().replace("tp_size: 1", "tp_size: 2"))
    load([trace, meta], incident)
    assert rows(incident, "SELECT role, rank, comm_rank, size FROM comms ORDER BY rank") == [
        ("tp", 0, 0, 2),
        ("tp", 1, 1, 2),
    ]


def reported(incident: Incident) -> Sequence[Any]:
    ((*found,),) = rows(incident, "SELECT rows, problem FROM recordings")
    return found


def test_rows_without_what_they_need_are_counted(tmp_path: Path, incident: Incident) -> None:
    write(tmp_path, STEP.format(7), "0,0,x,7,gc,0.1,0.0,0,0,0,0", "0,0,0,7,gc,nan,0.0,0,0,0,0")
    load([tmp_path], incident)
    assert reported(incident) == [13, "2 of 15 rows lack a value they need"]


def test_a_packed_trace_cut_short_says_so(tmp_path: Path, incident: Incident) -> None:
    whole = gzip.compress((HEADER + "\n" + STEP.format(7) * 400).encode(), 0)
    (tmp_path / "trace.csv.gz").write_bytes(whole[: len(whole) // 2])
    load([tmp_path], incident)
    found, problem = reported(incident)
    assert found > 1000
    assert "ends before its last block" in problem


def test_several_traces_are_several_jobs(tmp_path: Path, incident: Incident) -> None:
    for name in ("trace-x.csv", "trace-y.csv"):
        write(tmp_path, STEP.format(7), name=name)
    with pytest.raises(BadInput, match="2 traces"):
        load([tmp_path], incident)
    load([tmp_path / "trace-y.csv"], incident)
    assert incident.rows("stage_tasks") == 13


@pytest.mark.skipif(not REAL.is_dir(), reason="the real trace lies outside the repository")
def test_the_real_trace(incident: Incident) -> None:
    load([REAL], incident)
    assert rows(incident, "SELECT world_size, tp, pp, dp, chunks, micro_batches FROM jobs") == [
        (8, 1, 4, 2, 1, 4)
    ]
    assert rows(incident, "SELECT count(*), count(DISTINCT iteration) FROM stage_tasks") == [
        (6784, 32)
    ]
    # Every send and receive found its micro-batch, and ends as its other side does.
    assert rows(
        incident,
        "SELECT count(*), max(abs(s.ended_ns - r.ended_ns)) < 2e6 "
        "FROM stage_tasks s JOIN stage_tasks r USING (iteration, micro_batch) "
        "WHERE s.task = 'forward_send' AND r.task = 'forward_recv' "
        "AND s.peer = r.rank AND r.peer = s.rank",
    ) == [(768, True)]


@pytest.mark.parametrize("schedule", ["1F1B", "interleaved"])
def test_what_a_simulated_trainer_tells_comes_back(
    tmp_path: Path, incident: Incident, schedule: str
) -> None:
    """Sends and receives lose their micro-batch in the trace, and find it again."""
    chunks = 2 if schedule == "interleaved" else 1
    scenario = PipelineScenario(
        schedule=schedule, chunks=chunks, tp=1, pp=4, dp=2, iterations=3, recorder="tasks"
    )
    simulated, _ = simulate_pipeline(scenario)
    names = {"forward": "forward-compute", "backward": "backward-compute", "optimizer": "optimizer"}
    names |= {f"{way}_{end}": f"{way}-{end}" for way in names for end in ("send", "recv")}
    with simulated:
        tasks = rows(
            simulated,
            "SELECT rank, iteration, task, stage, chunk, micro_batch, peer, started_ns, ended_ns "
            f"FROM stage_tasks WHERE task IN {tuple(names)} ORDER BY rank, started_ns",
        )
    lines = []
    for number, (rank, iteration, task, stage, chunk, micro_batch, _, start, end) in enumerate(
        tasks
    ):
        computes = task in ("forward", "backward")
        of = (chunk, micro_batch, chunk * 4 + stage) if computes else (-1, -1, -1)
        lines.append(
            f"{rank % 2},{stage},{rank},{iteration},{names[task]},{start / 1e9 % 1e6:.9f},"
            f"{(end - start) / 1e9:.9f},{number},{','.join(map(str, of))}"
        )
    write(tmp_path, *lines, chunks=chunks)
    load([tmp_path], incident)
    again = rows(
        incident,
        "SELECT rank, iteration, task, stage, chunk, micro_batch, peer FROM stage_tasks",
    )
    expected = [row[:7] for row in tasks]
    assert sorted(again, key=str) == sorted(
        ((*row[:4], None, None, None) if row[2] == "optimizer" else row for row in expected),
        key=str,
    )
