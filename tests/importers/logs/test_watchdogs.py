"""Whose timeout is missing, in groups of a mesh as the watchdog names them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from oncall.evidence.incident import Incident
from oncall.importers.logs import importer

SHARD = "2(mesh_dp_shard)"
TIMEOUT = (
    "[rank{rank}]:[E926 20:57:00.{rank:06d}000 ProcessGroupNCCL.cpp:691] [Rank {place}] Watchdog "
    "caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=4096, "
    "NumelOut=4096, Timeout(ms)=600000) ran for 600004 milliseconds before timing out.\n"
)
STATUS = (
    "[rank{rank}]:[E926 20:57:00.{rank:06d}500 ProcessGroupNCCL.cpp:2335] [PG ID 1 PG GUID {group} "
    "Rank {place}]  failure detected by watchdog at work sequence id: {seq} PG status: last "
    "enqueued work: {enqueued}, last completed work: {done}\n"
)


def timed_out(
    ranks: Iterable[int], size: int, seq: int, op: str = "ALLTOALL", enqueued: int | None = None
) -> str:
    """The lines of ranks that timed out, each in the group of `size` neighbours that it is in."""
    text = ""
    for rank in ranks:
        about = {"rank": rank, "place": rank % size, "group": SHARD, "seq": seq, "op": op}
        count = seq + 5 if enqueued is None else enqueued
        text += TIMEOUT.format(**about) + STATUS.format(**about, enqueued=count, done=seq - 1)
    return text


def blamed(text: str, folder: Path) -> list[tuple[str, int | None]]:
    path = folder / "job.log"
    path.write_text(text)
    with Incident.empty() as incident:
        importer.read([path], incident, "job")
        incident.require(["log_causes"])
        return incident.con.execute("SELECT cause, rank FROM log_causes ORDER BY rank").fetchall()


def test_sibling_groups_of_one_name_are_apart(tmp_path: Path) -> None:
    """Rank 3 of the first of two groups; those of the second wait in a later call, for others."""
    text = timed_out([0, 1, 2, 4, 5, 6, 7], 8, 140801) + timed_out(range(8, 16), 8, 140820)
    assert blamed(text, tmp_path) == [("not_joined", 3)]


def test_the_gap_below_the_highest_place_is_who_printed_nothing(tmp_path: Path) -> None:
    assert blamed(timed_out([0, 1, 2, 4, 5], 8, 641), tmp_path) == [("not_joined", 3)]


def test_a_count_below_the_operation_that_timed_out_shows_nothing(tmp_path: Path) -> None:
    text = timed_out([0, 1, 2], 4, 641) + timed_out([3], 4, 641, enqueued=0)
    assert blamed(text, tmp_path) == [("all_waiting", None)]


ELSEWHERE = (
    "[rank{rank}]:[E926 20:57:{second:02d}.000000 ProcessGroupNCCL.cpp:691] [Rank {place}] "
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, "
    "NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran for 600004 milliseconds before timing "
    "out.\n[rank{rank}]:[E926 20:57:{second:02d}.000500 ProcessGroupNCCL.cpp:2335] [PG ID {pg} PG "
    "GUID {pg}({name}) Rank {place}]  failure detected by watchdog at work sequence id: {seq} PG "
    "status: last enqueued work: {seq}, last completed work: {done}\n"
)
SIGNAL = (
    "[rank{rank}]:[E926 20:57:30.000000 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) "
    "Rank {rank}] Received a dump signal due to a collective timeout from rank {of} and we will "
    "try our best to dump the debug info. Last enqueued NCCL work: {last}, last completed NCCL "
    "work: {last}.This is most likely caused by incorrect usages of collectives\n"
)


def waits(
    group: Iterable[int], gone: Iterable[int], name: str, pg: int, second: int, seq: int
) -> str:
    """The lines of a group's ranks that timed out at that second; the `gone` printed none."""
    lost = set(gone)
    return "".join(
        ELSEWHERE.format(
            rank=rank, place=place, name=name, pg=pg, second=second, seq=seq, done=seq - 1
        )
        for place, rank in enumerate(group)
        if rank not in lost
    )


TENSOR, DATA = range(8, 16), range(1, 33, 8)  # rank 9 is in both


def test_who_waits_in_another_group_for_a_dead_rank_is_a_victim(tmp_path: Path) -> None:
    """Rank 9 came late to the data group, whose rank 17 is dead; the tensor group waited first."""
    text = waits(TENSOR, [9], "mesh_tp", 3, 10, 897) + waits(DATA, [17], "mesh_dp", 7, 21, 55)
    assert blamed(text, tmp_path) == [("not_joined", 17)]


def test_a_victim_is_not_named_where_the_dead_rank_is_unknown(tmp_path: Path) -> None:
    """The data group's last member printed nothing: that it exists is known to nobody."""
    text = waits(TENSOR, [9], "mesh_tp", 3, 10, 897) + waits(DATA, [25], "mesh_dp", 7, 21, 55)
    assert blamed(text, tmp_path) == [("all_waiting", None)]


def test_the_victims_victims_are_no_roots_either(tmp_path: Path) -> None:
    """16-23 wait for 17, which waits with 1 and 9 for 25; for that one 24-31 wait, too."""
    text = waits(range(16, 24), [17], "mesh_tp", 4, 5, 901)
    text += waits(TENSOR, [9], "mesh_tp", 3, 10, 897)
    text += waits(range(24, 32), [25], "mesh_tp", 5, 12, 899)
    text += waits(DATA, [25], "mesh_dp", 7, 21, 55)
    assert blamed(text, tmp_path) == [("not_joined", 25)]


def test_a_rank_that_lags_because_it_waits_elsewhere_is_a_victim(tmp_path: Path) -> None:
    """Its count in the default group is lower, and it printed that it waits in the data group."""
    text = waits([0, 2, 3, 4, 5, 6, 7, 8], [], "default_pg", 0, 10, 897)
    text += waits(DATA, [17], "mesh_dp", 7, 21, 55)
    text += "".join(SIGNAL.format(rank=rank, of=0, last=896) for rank in (9, 25))
    assert blamed(text, tmp_path) == [("not_joined", 17)]


@pytest.mark.parametrize(
    "last_words",
    [
        "[rank17]: RuntimeError: CUDA error: an illegal memory access was encountered\n",
        "[rank17]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n",
    ],
)
def test_a_dead_rank_that_said_why_is_the_root_of_all_groups(
    tmp_path: Path, last_words: str
) -> None:
    text = waits(TENSOR, [9], "mesh_tp", 3, 10, 897) + waits(DATA, [17], "mesh_dp", 7, 21, 55)
    (found,) = blamed(text + last_words, tmp_path)
    assert found[1] == 17
    assert found[0] != "not_joined"


def test_ranks_that_wait_for_one_another_in_two_groups_are_not_named(tmp_path: Path) -> None:
    text = waits([0, 1, 2, 3], [3], "mesh_tp", 3, 10, 40) + waits(
        [3, 4, 5, 2], [2], "mesh_dp", 7, 10, 50
    )
    assert blamed(text, tmp_path) == [("all_waiting", None)]
