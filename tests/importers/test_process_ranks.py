"""Ranks within communicators become ranks of the job."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncall.importers.process_ranks import Members, Process, number


def process(rank: int, per_host: int = 4) -> Process:
    return Process(f"gpu{rank // per_host:03d}", 1000 + rank, rank % per_host)


def members(ranks: list[int]) -> Members:
    return Members(len(ranks), {place: process(rank) for place, rank in enumerate(ranks)})


@given(st.permutations(range(12)))
def test_without_it_ranks_follow_host_and_gpu(order: list[int]) -> None:
    found = number({i: members(order[i : i + 3]) for i in range(0, 12, 3)})
    assert found.world is None and found.note is not None
    assert {found.processes[process(rank)] for rank in range(12)} == set(range(12))
    assert all(found.processes[process(rank)] == rank for rank in range(12))


def test_a_small_communicator_is_not_the_job_if_the_job_is_stated_to_be_larger() -> None:
    only = {1: Members(4, {2: process(6)}, alone=True)}
    assert number(only, world_size=32).world is None
    assert number(only).world == 1


def test_a_process_with_several_gpus_is_not_guessed_at() -> None:
    one = Process("gpu001", 7)
    found = number({1: Members(2, {0: one, 1: one}), 2: Members(2, {0: one, 1: process(5)})})
    assert (2, 0) not in found.ranks
