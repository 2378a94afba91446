"""Files of stacks become evidence; logs that hold some stay logs."""

from __future__ import annotations

from pathlib import Path

from oncall.evidence.incident import Incident
from oncall.importers import detect

FIXTURES = Path(__file__).parents[3] / "fixtures" / "stacks"


def rows(*paths: Path) -> list[tuple[object, ...]]:
    with Incident.empty() as incident:
        detect.load(paths, incident)
        incident.require(["main_threads"])
        return incident.con.execute(
            "SELECT process, rank, node, activity FROM main_threads ORDER BY process"
        ).fetchall()


def test_a_file_a_rank() -> None:
    found = rows(FIXTURES / "loader")
    assert [(rank, activity) for _, rank, _, activity in found] == [
        (0, "backward"),
        (1, "backward"),
        (2, "data loader"),
        (3, "backward"),
    ]


def test_one_file_of_all_ranks_with_native_frames() -> None:
    found = rows(FIXTURES / "checkpoint.txt")
    assert [(rank, activity) for _, rank, _, activity in found] == [
        (0, "collective"),
        (1, "collective"),
        (2, "checkpoint"),
        (3, "collective"),
    ]


def test_ranks_of_a_pipeline_that_wait_for_transfers() -> None:
    """Recorded by benchmarks/recordings_torch: rank 2 never gets its batch, rank 3 is the stage
    behind it."""
    found = rows(FIXTURES / "pipeline")
    assert [(rank, activity) for _, rank, _, activity in found] == [
        (0, "collective"),
        (1, "collective"),
        (2, "user code"),
        (3, "collective"),
    ]


def test_a_log_that_ends_with_stacks_stays_a_log(tmp_path: Path) -> None:
    log = tmp_path / "rank3.log"
    log.write_text(
        "".join(f"iteration {n}/900 | loss 2.0\n" for n in range(50))
        + "Timeout (0:05:00)!\nThread 0x00007f02 (most recent call first):\n"
        '  File "/app/loader.py", line 9 in __next__\n  File "/app/train.py", line 20 in <module>\n'
    )
    with Incident.empty() as incident:
        detect.load([log], incident)
        ((kind,),) = incident.con.execute("SELECT kind FROM recordings").fetchall()
        stacks = incident.con.execute(
            "SELECT rank, is_main, frames[1] FROM thread_stacks"
        ).fetchall()
    assert kind == "log"
    assert stacks == [(3, True, "__next__ at /app/loader.py:9")]


def test_launchers_and_loader_workers_are_no_ranks(tmp_path: Path) -> None:
    dump = tmp_path / "stacks.txt"
    dump.write_text(
        'Process 1: torchrun\nThread 1 (idle): "MainThread"\n'
        "    _monitor_workers (torch/distributed/elastic/agent/server/local_elastic_agent.py:3)\n"
        'Process 2: python\nThread 2 (idle): "MainThread"\n'
        "    _worker_loop (torch/utils/data/_utils/worker.py:3)\n"
        'Process 3: python\nThread 3 (idle): "MainThread"\n    main (train.py:3)\n'
    )
    assert [process for process, *_ in rows(dump)] == ["process 3"]
