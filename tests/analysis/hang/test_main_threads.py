"""Which stacks are of one process, and whether it moved."""

from __future__ import annotations

from oncall.evidence.incident import Incident

NATIVE = ["write at libc.so.6", "_save at torch/serialization.py:1312", "<module> at train.py:9"]


def main_threads(**columns: object) -> list[tuple[object, ...]]:
    with Incident.empty() as made:
        made.append("thread_stacks", {"job": "j", "is_main": True, "thread": "1", **columns})
        made.require(["main_threads"])
        return made.con.execute(
            "SELECT process, rank, looks, moved FROM main_threads ORDER BY process"
        ).fetchall()


def test_two_processes_with_one_rank_stay_two() -> None:
    found = main_threads(
        rank=[0, 0], node=["gpu1", "gpu2"], pid=[5, 5], frames=[["f at x.py:1"]] * 2
    )
    assert found == [
        ("rank 0 (gpu1 process 5)", 0, 1, None),
        ("rank 0 (gpu2 process 5)", 0, 1, None),
    ]


def test_a_process_of_which_one_look_knows_less_stays_one() -> None:
    found = main_threads(rank=[0, 0], node=["gpu1", None], pid=[5, None], frames=[NATIVE] * 2)
    assert found == [("rank 0", 0, 2, False)]


def test_stacks_with_and_without_native_frames_are_not_compared() -> None:
    assert main_threads(rank=[0, 0], frames=[NATIVE, NATIVE[1:]]) == [("rank 0", 0, 2, None)]
    moved = [NATIVE, NATIVE[1:], ["load at train.py:3", *NATIVE[2:]]]
    assert main_threads(rank=[0] * 3, frames=moved) == [("rank 0", 0, 3, True)]
