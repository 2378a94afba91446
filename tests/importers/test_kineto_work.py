"""What a rank did itself in each step, as a trace shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.importers.test_kineto import (
    BASE_NS,
    annotation,
    call,
    document,
    event,
    kernel,
    launch,
    write,
)

from oncall.evidence.incident import Incident
from oncall.importers.detect import load


def own(at_us: float, for_us: float, name: str = "gemm", rows: int = 1) -> dict[str, Any]:
    """A kernel that computes."""
    said = {"grid": [rows, 1, 1], "block": [128, 1, 1], "stream": 7, "correlation": 1}
    return event("kernel", name, at_us, for_us, **said)


def work(folder: Path, *documents: dict[str, Any]) -> list[tuple[Any, ...]]:
    for number, one in enumerate(documents):
        write(folder, one, f"window{number}.json")
    with Incident.empty() as incident:
        load([folder], incident)
        return incident.con.execute(
            "SELECT iteration, kind, name, count, spent_ns FROM profiled_work ORDER BY ALL"
        ).fetchall()


def test_a_step_of_a_device_lasts_from_one_begin_to_the_next(tmp_path: Path) -> None:
    steps = [annotation(f"ProfilerStep#{n}", 100 * n, 100, number=n) for n in (1, 2)]
    on_device = [
        event(
            "gpu_user_annotation",
            f"ProfilerStep#{n}",
            100 * n + 49.999,
            60.002,
            **{"External id": n},
        )
        for n in (1, 2)
    ]
    ran = [own(150, 20), own(170, 10), own(180, 5, rows=2), call(5, 120), kernel(190, 30, 5)]
    ran += [own(250, 10), launch(1, 130)]
    found = work(tmp_path, document([*steps, *on_device, *ran]))
    first = {(kind, name): (times, spent) for step, kind, name, times, spent in found if step == 1}
    assert first["kernel", "gemm [1,1,1] [128,1,1]"] == (2, 30_000)
    assert first["kernel", "gemm [2,1,1] [128,1,1]"] == (1, 5_000)
    assert first["launch", None] == (1, 5_000)
    assert first["wait", None] == (None, 30_000)
    assert first["idle", None] == (None, 35_000)  # 185 to 190, and 220 to 250
    assert first["step", None] == (None, 100_000)


def test_operators_count_without_what_they_hold_or_wait_for(tmp_path: Path) -> None:
    ran = [
        event("cpu_op", "aten::linear", 0, 100, **{"Input Dims": [[2, 4]]}),
        event("cpu_op", "aten::addmm", 10, 60),
        event("cpu_op", "_c10d_functional::wait_tensor", 72, 20),
        event("user_annotation", "gloo:all_reduce", 60, 30),
        event("cpu_op", "aten::relu", 100, 7, tid=2),
        event("user_annotation", "enumerate(DataLoader)#_Iter.__next__", 110, 40),
    ]
    found = work(tmp_path, document(ran))
    assert [row for row in found if row[1] == "operator"] == [
        (0, "operator", "aten::addmm", 1, 60_000),
        (0, "operator", "aten::linear [[2,4]]", 1, 20_000),
        (0, "operator", "aten::relu", 1, 7_000),
    ]
    said = {kind: spent for _, kind, _, _, spent in found}
    assert (said["wait"], said["loader"], said["idle"]) == (20_000, 40_000, 3_000)


def test_steps_that_each_window_counts_are_counted_on(tmp_path: Path) -> None:
    ran = [call(1, 0), *(own(at, 5) for at in (10, 110, 210))]
    ran += [annotation("Optimizer.step#SGD.step", at, 10) for at in (20, 120, 220)]
    windows = [document(ran), document(ran, baseTimeNanoseconds=BASE_NS + 10**9)]
    found = work(tmp_path, *windows)
    assert [step for step, kind, *_ in found if kind == "step"] == [0, 1, 2, 3]
