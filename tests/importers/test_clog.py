"""Logs of torchcomms' clog: calls of each rank, with starts and ends where they are logged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncall.core.diagnosis import Diagnosis
from oncall.core.symptom import Symptom, with_symptom
from oncall.evidence.incident import Incident
from oncall.importers.detect import load
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.diagnose import diagnose

REDUCE = "C1|sig|all_reduce|in_count=1024|out_count=1024|dtype=f32|red_op=sum|async_op=f|comm=world"
GATHER = "C9|sig|all_gather_single|in_count=8|out_count=32|dtype=bf16|async_op=f|comm=world"


def log(rank: int, steps: int, *more: str, size: int = 4, last: str = "") -> str:
    """A rank that reduces `steps` times, 100 ms apart; `last` is a call that does not end."""
    lines = ["V|1|base_timestamp=1714234567.890",
             f"new_comm|comm=world|rank={rank}|world_size={size}", REDUCE]  # fmt: skip
    for step in range(steps):
        at = 0.1 * step
        lines += [f"C1|Q|work_id={step + 1}|+{at:.3f}", f"C1|S|+{at + 0.001:.3f}",
                  f"C1|E|+{at + 0.005:.3f}"]  # fmt: skip
    if last:
        lines += [GATHER] if last == "C9" else []
        lines += [f"{last}|Q|work_id={steps + 1}|+{0.1 * steps:.3f}"]
        lines += [f"{last}|S|+{0.1 * steps + 0.001:.3f}"]
    return "\n".join([*lines, *more]) + "\n"


@pytest.fixture
def incident() -> Iterator[Incident]:
    with Incident.empty() as made:
        yield made


def read(folder: Path, incident: Incident, *logs: str) -> None:
    for number, text in enumerate(logs):
        (folder / f"clog_{number}.log").write_text(text)
    load([folder], incident)


def diagnosed(incident: Incident) -> Diagnosis:
    books = load_rulebooks([shipped_folder()])
    return diagnose(incident, books, overrides=with_symptom({}, Symptom.HUNG))


def test_calls_have_their_times_sizes_and_numbers(tmp_path: Path, incident: Incident) -> None:
    read(tmp_path, incident, log(0, 2, size=1))
    rows = incident.con.execute(
        "SELECT seq, op, bytes, enqueued_ns, ended_ns - started_ns, done FROM ops ORDER BY seq"
    ).fetchall()
    base_ns = 1_714_234_567_890_000_000
    assert rows == [
        (0, "AllReduce", 4096, base_ns, 4_000_000, True),
        (1, "AllReduce", 4096, base_ns + 100_000_000, 4_000_000, True),
    ]


def test_the_rank_that_never_called_is_named(tmp_path: Path, incident: Incident) -> None:
    read(tmp_path, incident, *(log(rank, 30, last="" if rank == 2 else "C1") for rank in range(4)))
    found = diagnosed(incident)
    assert [one.verdict for one in found.faults] == ["H1"]
    assert [one.where["rank"] for one in found.faults[0].blame] == [2]


def test_the_rank_that_called_something_else_is_named(tmp_path: Path, incident: Incident) -> None:
    logs = (log(rank, 30, last="C9" if rank == 1 else "C1") for rank in range(4))
    read(tmp_path, incident, *logs)
    found = diagnosed(incident)
    assert [one.verdict for one in found.faults] == ["H2"]
    assert [one.where["rank"] for one in found.faults[0].blame] == [1]


def test_without_lifecycle_nothing_is_known_of_ends(tmp_path: Path, incident: Incident) -> None:
    lines = [line for line in log(0, 3, size=1).splitlines() if "|S|" not in line]
    read(tmp_path, incident, "\n".join(line for line in lines if "|E|" not in line))
    assert incident.con.execute("SELECT DISTINCT done, ended_ns FROM ops").fetchall() == [
        (None, None)
    ]


def test_groups_that_were_split_off_are_separate(tmp_path: Path, incident: Incident) -> None:
    """All are called tp; their members are logged."""
    tp = "C5|sig|send|in_count=8|out_count=0|dtype=bf16|peer=1|async_op=t|comm=tp"
    logs = []
    for rank in range(4):
        ranks = "0,1" if rank < 2 else "2,3"
        logs.append(log(rank, 1, f"split|parent=world|child=tp|ranks={ranks}", tp,
                        "C5|Q|work_id=7|+1.000"))  # fmt: skip
    read(tmp_path, incident, *logs)
    rows = incident.con.execute(
        "SELECT rank, peer, bytes, pair_seq FROM ops WHERE op = 'Send' ORDER BY rank"
    ).fetchall()
    assert rows == [(0, 1, 16, 0), (1, 1, 16, 0), (2, 3, 16, 0), (3, 3, 16, 0)]
    ((groups,),) = incident.con.execute("SELECT count(DISTINCT comm) FROM comms").fetchall()
    assert groups == 3


def test_groups_of_one_name_without_members_are_left_out(
    tmp_path: Path, incident: Incident
) -> None:
    tp = ("C5|sig|all_reduce|in_count=8|out_count=8|dtype=f32|async_op=f|comm=tp",
          "C5|Q|work_id=7|+1.000")  # fmt: skip
    logs = (log(rank, 1, f"new_comm|comm=tp|rank={rank % 2}|world_size=2", *tp)
            for rank in range(4))  # fmt: skip
    read(tmp_path, incident, *logs)
    assert incident.rows("ops") == 4
    ((note,),) = incident.con.execute("SELECT DISTINCT note FROM recordings").fetchall()
    assert note == "1 calls on a communicator whose ranks are not logged"


def test_what_is_not_used_is_counted(tmp_path: Path, incident: Incident) -> None:
    more = ("G42|R1|C1|S|+2.001", "G42|R1|C1|E|+2.004", "C77|Q|work_id=9|+3.000", "C1|Q|wor",
            "WARN|a lifecycle event for an unknown work ID")  # fmt: skip
    read(tmp_path, incident, log(0, 1, *more, size=1))
    ((rows, note),) = incident.con.execute("SELECT rows, note FROM recordings").fetchall()
    assert rows == 1
    assert "1 calls of replayed CUDA graphs are not used" in note
    assert "1 lines name a call that the log does not describe" in note
    assert "1 lines could not be read" in note


def test_of_two_logs_of_a_rank_the_newer_counts(tmp_path: Path, incident: Incident) -> None:
    former = log(0, 5, size=1).replace("1714234567", "1714200000")
    read(tmp_path, incident, former, log(0, 2, size=1))
    assert incident.rows("ops") == 2
    problems = incident.con.execute("SELECT problem FROM recordings ORDER BY path").fetchall()
    assert problems == [("ignored: clog_1.log is a newer log of the same rank",), (None,)]
