"""Whose timeout is missing, in groups of a mesh as the watchdog names them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

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
