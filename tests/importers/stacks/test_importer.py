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


def spy(pid: int, frame: str, command: str = "python train.py") -> str:
    return f'Process {pid}: {command}\nThread {pid} (active): "MainThread"\n    {frame}\n'


def ranks_of(folder: Path, dumps: dict[str, str]) -> list[tuple[object, object]]:
    for name, text in dumps.items():
        (folder / name).write_text(text)
    with Incident.empty() as incident:
        detect.load([folder], incident)
        incident.require(["main_threads"])
        return incident.con.execute("SELECT pid, rank FROM main_threads ORDER BY 1").fetchall()


def test_local_ranks_of_one_host_are_ranks(tmp_path: Path) -> None:
    frame = "main (train.py:3)"
    dumps = {f"{n}.txt": spy(4711 + n, frame, f"python t.py --local-rank={n}") for n in range(3)}
    assert ranks_of(tmp_path, dumps) == [(4711, 0), (4712, 1), (4713, 2)]


def test_numbers_of_files_are_ranks_if_each_is_of_another_process(tmp_path: Path) -> None:
    dumps = {f"pyspy_{n}.txt": spy(4711 + n, "main (train.py:3)") for n in (0, 1, 5)}
    assert ranks_of(tmp_path, dumps) == [(4711, 0), (4712, 1), (4716, 5)]


def test_two_looks_at_one_process_are_no_two_ranks(tmp_path: Path) -> None:
    dumps = {f"look_{n}.txt": spy(4711, f"main (train.py:{n + 1})") for n in range(2)}
    assert ranks_of(tmp_path, dumps) == [(4711, None)]


def test_a_process_is_the_rank_that_the_log_names_it_with(tmp_path: Path) -> None:
    dumps = {
        "stacks.txt": spy(811, "main (train.py:3)"),
        "job.log": "(Worker_TP1 pid=811) ERROR 08-11 20:51:22 [multiproc_executor.py:822] "
        "RuntimeError: no such file\n",
    }
    assert ranks_of(tmp_path, dumps) == [(811, 1)]


def test_a_servers_log_with_dumps_stays_a_log(tmp_path: Path) -> None:
    titles = ("scheduler_DP0_TP0", "scheduler_DP1_TP1")
    log = "[2026-06-05 08:28:02] Scheduler hit an exception: watchdog\n" + "".join(
        f"[2026-06-05 08:28:03] Pyspy dump for PID {700 + n}:\n"
        + spy(700 + n, "event_loop (scheduler.py:3)", title)
        for n, title in enumerate(titles)
    )
    assert ranks_of(tmp_path, {"server.log": log}) == [(700, 0), (701, 1)]
    with Incident.empty() as incident:
        detect.load([tmp_path], incident)
        assert incident.con.execute("SELECT kind FROM recordings").fetchall() == [("log",)]
