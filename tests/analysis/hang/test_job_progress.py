"""Whether a job moves: recordings of a step in progress, of a hang, and of a watchdog's abort."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from oncall.analysis.hang.departures import following
from oncall.evidence import Incident
from oncall.importers import detect, flight_recorder
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.diagnose import diagnose
from oncall.views import words

HANG = [book for book in load_rulebooks([shipped_folder()]) if book.name == "hang"]
S, MS = 10**9, 10**6
FIXTURES = Path(__file__).parents[3] / "fixtures"
START = 1_700_000_000 * S
RANKS = 8
TIMEOUT_MS = 600_000

NOBODY = "most likely rank 5: 7 of 8 ranks are in AllReduce 21; it is at 20; "


def entry(seq: int, called_ns: int, **state: Any) -> dict[str, Any]:
    """One AllReduce on the default group; retired unless `state` says otherwise."""
    return {
        "record_id": seq,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": called_ns,
        "input_sizes": [[1024]],
        "input_dtypes": ["Float"],
        "output_sizes": [[1024]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": called_ns + 40 * MS,
        "retired": True,
        "timeout_ms": TIMEOUT_MS,
        "is_p2p": False,
    } | state


def recorded(folder: Path, last: Callable[[int], Sequence[dict[str, Any]]]) -> Incident:
    """Eight ranks after twenty steps of 100 ms, with what `last` adds to each. Each calls 10 ms
    after the one before it: for a tenth of the time seven wait."""
    for rank in range(RANKS):
        starts = [(seq, START + seq * 100 * MS) for seq in range(1, 21)]
        entries = [
            entry(seq, at + rank * 10 * MS, time_discovered_completed_ns=at + 80 * MS)
            for seq, at in starts
        ]
        members = str(list(range(RANKS)))
        dump = {
            "version": "2.10",
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": members}},
            "pg_status": {},
            "entries": [*entries, *last(rank)],
        }
        (folder / f"dump_{rank}").write_bytes(pickle.dumps(dump, protocol=2))
    incident = Incident.empty()
    flight_recorder.read(sorted(folder.iterdir()), incident, "job")
    return incident


def state_of(incident: Incident) -> str | None:
    incident.require(["job_progress"])
    found = incident.con.execute("SELECT state FROM job_progress").fetchone()
    return found and found[0]


NOW = START + 22 * 100 * MS
WAITING = {"state": "started", "retired": False, "time_discovered_completed_ns": None}


def test_waits_that_the_dump_shows_to_be_short_are_a_step_in_progress(tmp_path: Path) -> None:
    def last(rank: int) -> list[dict[str, Any]]:
        seen = {"time_discovered_started_ns": NOW}
        return [] if rank == 5 else [entry(21, NOW - 50 * MS, **WAITING, **seen)]

    with recorded(tmp_path, last) as incident:
        assert state_of(incident) == "moving"
        assert diagnose(incident, HANG).result == "none"


def test_the_same_wait_minutes_later_is_a_hang(tmp_path: Path) -> None:
    def last(rank: int) -> list[dict[str, Any]]:
        seen = {"time_discovered_started_ns": NOW + 600 * S}
        return [] if rank == 5 else [entry(21, NOW - 50 * MS, **WAITING, **seen)]

    with recorded(tmp_path, last) as incident:
        assert state_of(incident) == "stopped"


@pytest.mark.parametrize(("missing", "state"), [(5, "unclear"), (None, "stopped")])
def test_once_all_have_called_only_the_transfer_is_left(
    tmp_path: Path, missing: int | None, state: str
) -> None:
    """90 s are a checkpoint of the rank that is missing, but no transfer."""

    def last(rank: int) -> list[dict[str, Any]]:
        seen = {"time_discovered_started_ns": NOW + 90 * S}
        return [] if rank == missing else [entry(21, NOW - 50 * MS, **WAITING, **seen)]

    with recorded(tmp_path, last) as incident:
        assert state_of(incident) == state


def test_what_the_watchdog_aborted_did_not_complete(tmp_path: Path) -> None:
    def last(rank: int) -> list[dict[str, Any]]:
        ended = {"retired": False, "time_discovered_completed_ns": NOW + 600 * S}
        return [] if rank == 5 else [entry(21, NOW - 50 * MS, **ended)]

    with recorded(tmp_path, last) as incident:
        assert state_of(incident) == "stopped"
        incident.require(["unmet_calls", "hang_suspects"])
        found = (
            "SELECT u.seq, s.rank, s.reason FROM unmet_calls u JOIN hang_suspects s USING (comm)"
        )
        assert incident.con.execute(found).fetchall() == [(21, 5, "uncalled")]


@pytest.mark.parametrize("wrong", [0, 7])
def test_the_operation_of_most_ranks_is_the_one_that_is_not_met(tmp_path: Path, wrong: int) -> None:
    def last(rank: int) -> list[dict[str, Any]]:
        seen = {"time_discovered_started_ns": NOW + 600 * S}
        name = "all_reduce" if rank == wrong else "reduce_scatter"
        return [entry(21, NOW - 50 * MS, **WAITING, **seen, profiling_name=f"nccl:{name}")]

    with recorded(tmp_path, last) as incident:
        incident.require(["unmet_calls"])
        found = incident.con.execute("SELECT seq, op FROM unmet_calls").fetchall()
        assert found == [(21, "ReduceScatter")]


def open_but_on_rank_5(rank: int) -> list[dict[str, Any]]:
    open_ = WAITING | {"state": "scheduled"}
    return [] if rank == 5 else [entry(21, NOW - 50 * MS, **open_)]


def test_without_any_time_it_is_unclear(tmp_path: Path) -> None:
    with recorded(tmp_path, open_but_on_rank_5) as incident:
        assert state_of(incident) == "unclear"
        incident.require(["front"])
        rows = incident.con.execute("SELECT DISTINCT seq, missing FROM front").fetchall()
        assert rows == [(21, [5])]
        diagnosis = diagnose(incident, HANG, overrides={"hang.symptom": "-1"})
    assert not diagnosis.findings and diagnosis.result == "inconclusive"
    assert words.doubt(diagnosis).startswith(NOBODY)


def test_a_file_is_no_older_than_its_dump(tmp_path: Path) -> None:
    """That it was written shortly after the last call shows that the job ran; later says little."""
    found, went_on, silent = [], [], []
    for later_s in (1, 3, 12, 20):
        with recorded(tmp_path, open_but_on_rank_5) as incident:
            for rank in range(RANKS):  # as dumps differ
                at = [NOW + later_s * S + (rank * 5 % RANKS) * 30 * MS, rank]
                incident.con.execute("UPDATE recordings SET written_ns = ? WHERE rank = ?", at)
            log = {"kind": "log", "path": [f"log{n}" for n in range(20)]}
            incident.append("recordings", {"job": "job", "written_ns": NOW + 60 * S, **log})
            incident.require(["progress_symptoms", "job_progress"])
            weight = "SELECT weight FROM progress_symptoms WHERE name = 'file times'"
            found += incident.con.execute(weight).fetchall()
            went_on += incident.con.execute("SELECT moved FROM job_progress").fetchall()
            silent += incident.con.execute("SELECT silent FROM dump_times").fetchall()
    assert found == [(-5.2,), (0,), (0,), (0.7,)]
    assert silent == [(False,), (False,), (True,), (True,)]
    assert went_on == [(True,), (False,), (False,), (False,)]  # to dump takes seconds at times


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(lambda _: NOW + 20 * S, id="equal"),
        pytest.param(lambda rank: NOW + 20 * S + rank * 5 % RANKS * MS, id="as fast as cp"),
        pytest.param(lambda rank: NOW + 20 * S + rank * S, id="one after the other"),
        pytest.param(lambda rank: NOW + 3 * 3600 * S + rank * 5 % RANKS * S, id="hours later"),
        pytest.param(lambda _: None, id="unknown"),
    ],
)
def test_times_of_copies_say_as_little_as_none(
    tmp_path: Path, written: Callable[[int], int | None]
) -> None:
    with recorded(tmp_path, open_but_on_rank_5) as incident:
        for rank in range(RANKS):
            at = [written(rank), rank]
            incident.con.execute("UPDATE recordings SET written_ns = ? WHERE rank = ?", at)
        incident.require(["job_progress"])
        asked = "SELECT state, undated, why FROM job_progress"
        ((state, undated, why),) = incident.con.execute(asked).fetchall()
    assert (state, undated) == ("unclear", True)
    assert why.startswith("7 of 8 ranks wait at once (before: at most")


def test_without_any_time_who_to_look_at_is_said_and_nobody_is_accused(tmp_path: Path) -> None:
    """It may have stopped, but nothing shows for how long."""

    with recorded(tmp_path, open_but_on_rank_5) as incident:
        incident.con.execute("UPDATE recordings SET written_ns = NULL")
        diagnosis = diagnose(incident, HANG)
    assert not diagnosis.findings
    assert diagnosis.result == "inconclusive"
    assert words.doubt(diagnosis).startswith(NOBODY)


@pytest.mark.parametrize("together", [1, 2])
def test_what_the_watchdog_had_seen_dates_a_dump(tmp_path: Path, together: int) -> None:
    """Where a look of it finds several ends, some would be held if any had happened since."""

    def last(rank: int) -> list[dict[str, Any]]:
        open_ = WAITING | {"state": "scheduled"}
        return [] if rank == 5 else [entry(21, NOW - 50 * MS, **open_)]

    with recorded(tmp_path, last) as incident:
        later = f"ended_ns + seq % {together} * {100 * MS}"
        incident.con.execute(f"UPDATE ops SET ended_ns = {later}")
        incident.require(["job_progress"])
        undated = incident.con.execute("SELECT undated FROM job_progress").fetchall()
    assert undated == [(together == 1,)]


def test_a_barrier_without_any_time_is_rather_a_checkpoint(tmp_path: Path) -> None:
    def last(rank: int) -> Sequence[dict[str, Any]]:
        barrier = {"profiling_name": "nccl:barrier", "input_sizes": [[1]], "output_sizes": [[1]]}
        return [entry(21, NOW, **WAITING | barrier)] if rank != 3 else []

    incident = recorded(tmp_path, last)
    assert state_of(incident) == "unclear"
    incident.require(["unmet_calls", "job_progress"])
    assert incident.con.execute("SELECT stopped < 0.5 FROM job_progress").fetchone() == (True,)
    assert incident.con.execute("FROM unmet_calls").fetchall() == []


@pytest.mark.parametrize(("bytes_left", "dead"), [(None, True), (2000, False)])
def test_a_process_that_left_a_broken_dump_is_not_taken_for_dead(
    tmp_path: Path, bytes_left: int | None, dead: bool
) -> None:
    dumps = shutil.copytree(FIXTURES / "flight_recorder" / "not_entered", tmp_path / "dumps")
    broken = dumps / "rank_5"
    if bytes_left is None:
        broken.unlink()
    else:
        broken.write_bytes(broken.read_bytes()[:bytes_left])
    with Incident.empty() as incident:
        detect.load([dumps], incident)
        (finding,) = diagnose(incident, HANG).findings
        assert [one.where["rank"] for one in finding.blame] == [5]
        found = incident.con.execute("FROM progress_symptoms WHERE name = 'no data'").fetchall()
    assert bool(found) == dead


@pytest.mark.parametrize(
    ("calls", "comes"), [("abcabca", "bca"), ("aab", ""), ("abab", "ab"), ("", "")]
)
def test_what_follows_is_what_followed_before(calls: str, comes: str) -> None:
    assert "".join(following(calls)) == comes


def test_that_all_wait_for_two_calls_says_little() -> None:
    """Two groups of four, in each of which one rank has not made the last call."""
    with Incident.empty() as incident:
        sent = {"job": "j", "kind": "p2p", "seq": 1, "comm": 3, "enqueued_ns": START}
        for rank, op in ((0, "Send"), (4, "Recv")):
            incident.append("ops", sent | {"rank": rank, "op": op, "ended_ns": START + MS})
        for comm, ranks in ((1, [0, 1, 2, 3]), (2, [4, 5, 6, 7]), (3, [0, 4])):
            incident.append("comms", {"job": "j", "comm": comm, "rank": ranks, "size": len(ranks)})
            for seq in range(1, 7) if comm < 3 else []:
                called = START + seq * 100 * MS
                ended = {"ended_ns": called + MS} if seq < 6 else {"done": False}
                row = {"job": "j", "kind": "coll", "op": "AllReduce", "seq": seq, "comm": comm}
                there = ranks if seq < 6 else ranks[1:]
                incident.append("ops", row | {"rank": there, "enqueued_ns": called} | ended)
        incident.require(["progress_symptoms"])
        found = incident.con.execute(
            "SELECT weight, why FROM progress_symptoms WHERE name = 'all wait'"
        ).fetchall()
    assert found == [(0.7, "6 of 8 ranks wait at once")]
