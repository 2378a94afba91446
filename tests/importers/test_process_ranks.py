"""Ranks within communicators become ranks of the job."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncall.importers.process_ranks import Members, Process, number


def process(rank: int, per_host: int = 4) -> Process:
    return Process(f"gpu{rank // per_host:03d}", 1000 + rank, rank % per_host)


def members(ranks: list[int]) -> Members:
    return Members(len(ranks), {place: process(rank) for place, rank in enumerate(ranks)})


@given(st.permutations(range(8)))
def test_other_communicators_are_mapped_onto_the_one_that_spans_the_job(order: list[int]) -> None:
    found = number({1: members(list(range(8))), 2: members(order[:3])})
    assert found.world == 1 and found.note is None
    assert [found.ranks[2, place] for place in range(3)] == order[:3]


@given(st.permutations(range(12)))
def test_without_it_ranks_follow_host_and_gpu(order: list[int]) -> None:
    found = number({i: members(order[i : i + 3]) for i in range(0, 12, 3)})
    assert found.world is None and found.note is not None
    assert {found.processes[process(rank)] for rank in range(12)} == set(range(12))
    assert all(found.processes[process(rank)] == rank for rank in range(12))


def test_hosts_sort_by_their_numbers() -> None:
    hosts = ["10.0.0.10", "10.0.0.9"]
    pairs = {n: Members(1, {0: Process(host, 1)}) for n, host in enumerate(hosts)}
    assert number(pairs).processes == {Process("10.0.0.9", 1): 0, Process("10.0.0.10", 1): 1}


def test_a_process_in_no_communicator_has_no_rank() -> None:
    assert number({}, [Process("10.0.0.9", 1)]).processes == {}


def test_a_small_communicator_is_not_the_job_if_the_job_is_stated_to_be_larger() -> None:
    only = {1: Members(4, {2: process(6)}, alone=True)}
    assert number(only, world_size=32).world is None
    assert number(only).world == 1


def test_a_process_with_several_gpus_is_not_guessed_at() -> None:
    one = Process("gpu001", 7)
    found = number({1: Members(2, {0: one, 1: one}), 2: Members(2, {0: one, 1: process(5)})})
    assert (2, 0) not in found.ranks
