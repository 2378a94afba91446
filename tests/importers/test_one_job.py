"""Recordings of two jobs in one folder: what fits is joined, what does not is listed."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from oncall.evidence.incident import Incident
from oncall.importers.detect import load
from oncall.importers.one_job import (
    Identity,
    OneKind,
    differences,
    files_of_others,
    jobs_of,
    keep_one_recorder,
    rows_so_far,
)

NOW = 1_796_000_000 * 10**9
MINUTE, HOUR, DAY = 60 * 10**9, 3600 * 10**9, 24 * 3600 * 10**9

DUMPS = Identity(
    "flight_recorder", 8, frozenset({"n1"}), frozenset({(0, 100), (1, 101)}), NOW, NOW + MINUTE
)
LOG = replace(DUMPS, kind="log", first_ns=NOW - HOUR, last_ns=NOW + 2 * MINUTE)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(LOG, id="all agrees"),
        pytest.param(replace(LOG, world_size=64), id="a program of several worlds"),
        pytest.param(replace(LOG, hosts=frozenset({"n2"})), id="the log of another node"),
        pytest.param(Identity("log"), id="nothing is known"),
        pytest.param(
            replace(LOG, first_ns=NOW - 9 * HOUR, last_ns=NOW - 8 * HOUR), id="another time zone"
        ),
    ],
)
def test_what_mostly_agrees_is_of_one_job(other: Identity) -> None:
    assert differences(DUMPS, other) == []
    assert len(jobs_of([DUMPS, other])) == 1


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (replace(LOG, first_ns=NOW - 8 * DAY, last_ns=NOW - 7 * DAY), ["7 d earlier"]),
        (replace(LOG, first_ns=NOW + 2 * DAY, last_ns=NOW + 3 * DAY, world_size=64),
         ["2 d later", "64 ranks, not 8"]),
        (Identity("log", 64), ["64 ranks, not 8"]),
        (replace(LOG, world_size=64, hosts=frozenset({"n2"}), processes=frozenset({(0, 7)})),
         ["64 ranks, not 8", "other hosts", "other processes of the same ranks"]),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_of_another_job(other: Identity, why: list[str]) -> None:
    assert differences(DUMPS, other) == why
    assert len(jobs_of([DUMPS, other])) == 2


def dumps(fr: SimpleNamespace, folder: Path, age_ns: dict[int, int]) -> None:
    """A dump of each rank with one operation, that many ns old."""
    world = {"0": ("default_pg", sorted(age_ns))}
    for rank, ago_ns in age_ns.items():
        called_ns = fr.entry(1, 1)["time_created_ns"] - ago_ns
        ended = {"time_discovered_completed_ns": called_ns + 1000}
        fr.write(folder, rank, fr.dump([fr.entry(1, 1, time_created_ns=called_ns, **ended)], world))


def a_log(day: str, ranks: int) -> str:
    step = "[default0]: iteration {}/ 900 | elapsed time per iteration (ms): 900.0 | lm loss: 2.0"
    lines = [f"{day} 04:40:00 INFO world_size={ranks}, rank=0"]
    lines += [f"{day} 04:{50 + minute}:00 {step.format(minute)}" for minute in range(5)]
    return "\n".join(lines)


@pytest.mark.parametrize(("day", "used"), [("2025-12-20", "log"), ("2025-08-20", "dumps")])
def test_of_two_jobs_in_a_folder_the_newer_is_read(
    fr: SimpleNamespace, tmp_path: Path, day: str, used: str
) -> None:
    """The dumps are of 2025-10-09."""
    dumps(fr, tmp_path / "train", {0: 0, 1: 0})
    (tmp_path / "train" / "train.log").write_text(a_log(day, 64))
    with Incident.empty() as incident:
        load([tmp_path / "train"], incident)
        sizes = incident.con.execute("SELECT world_size FROM jobs").fetchall()
        left = "SELECT problem FROM recordings WHERE problem IS NOT NULL"
        problems = [problem for (problem,) in incident.con.execute(left).fetchall()]
        operations = incident.rows("ops")
    assert sizes == ([(64,)] if used == "log" else [(2,)])
    assert bool(operations) is (used == "dumps")
    assert len(problems) == (2 if used == "log" else 1)
    assert all(one.startswith("not used: of another job (") for one in problems)
    assert all("the newest is diagnosed (--job " in one for one in problems)


ONE = replace(LOG, hosts=frozenset(), processes=frozenset({(0, "n1"), (1, "n1")}))
LATER = replace(ONE, first_ns=NOW + 3 * HOUR, last_ns=NOW + 4 * HOUR)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        pytest.param(replace(ONE, world_size=None), "", id="one of another rank"),
        pytest.param(LATER, "", id="a later start of as many"),
        pytest.param(replace(LATER, world_size=None, processes=frozenset()), "", id="unknown"),
        pytest.param(replace(ONE, world_size=64), "", id="a rank that speaks of another world"),
        pytest.param(
            replace(LATER, world_size=64, processes=frozenset()),
            "8 ranks, not 64",
            id="other size, later",
        ),
        pytest.param(
            replace(ONE, world_size=64, processes=frozenset({(0, "n9")})),
            "8 ranks, not 64; other processes of the same ranks",
            id="two at a time, on other hosts",
        ),
        pytest.param(
            replace(ONE, first_ns=NOW - 8 * DAY, last_ns=NOW - 7 * DAY),
            "6 d 23 h",
            id="another week",
        ),
    ],
)
def test_which_logs_are_of_one_job(other: Identity, why: str) -> None:
    first, second = Path("a.log"), Path("b.log")
    left_out = files_of_others({first: ONE, second: other}, None)
    assert len(left_out) == bool(why)
    assert all(why in problem for problem in left_out.values())


@pytest.mark.parametrize(("chosen", "size"), [(None, 8), ("old.log", 64)])
def test_of_two_logs_the_newer_is_read_unless_the_other_is_chosen(
    tmp_path: Path, chosen: str | None, size: int
) -> None:
    (tmp_path / "old.log").write_text(a_log("2026-03-03", 64))
    (tmp_path / "new.log").write_text(a_log("2026-03-11", 8))
    with Incident.empty() as incident:
        load([tmp_path], incident, chosen)
        assert incident.con.execute("SELECT world_size FROM jobs").fetchall() == [(size,)]
        steps = incident.con.execute("SELECT DISTINCT path FROM logged_steps").fetchall()
        left = "SELECT path, problem FROM recordings WHERE problem IS NOT NULL"
        ((path, problem),) = incident.con.execute(left).fetchall()
    assert len(steps) == 1
    assert path.endswith("old.log" if chosen is None else "new.log")
    assert problem.startswith("not used: of another job (8 d ")
    assert ("--job old.log chooses" in problem) is (chosen is None)


def test_a_time_that_is_only_the_file_s_is_none(fr: SimpleNamespace, tmp_path: Path) -> None:
    """Of a dump written the moment that its only operation is stamped, it is not known."""
    dumps(fr, tmp_path / "train", {0: 0, 1: 0})
    stamp_ns = fr.entry(1, 1)["time_created_ns"] + 1000
    for path in (tmp_path / "train").iterdir():
        os.utime(path, ns=(stamp_ns, stamp_ns))
    (tmp_path / "train" / "train.log").write_text(a_log("2025-12-20", 2))
    with Incident.empty() as incident:
        load([tmp_path / "train"], incident)
        assert incident.rows("ops") == 2
        assert not incident.is_empty("logged_steps")


def test_a_dump_that_a_former_job_left_is_not_used(fr: SimpleNamespace, tmp_path: Path) -> None:
    dumps(fr, tmp_path / "train", {0: 0, 1: 7 * DAY})
    with Incident.empty() as incident:
        load([tmp_path / "train"], incident)
        seen = incident.con.execute("SELECT DISTINCT rank FROM ops").fetchall()
        left = "SELECT problem FROM recordings WHERE problem IS NOT NULL"
        ((problem,),) = incident.con.execute(left).fetchall()
    assert seen == [(0,)]
    assert problem == "not used: of another job (7 d earlier); the newest job is diagnosed"


def recorded(incident: Incident, kind: str, comm: int, ranks: range, **says: object) -> OneKind:
    """Four rounds of the ranks in a communicator, as a recorder of that kind has them."""
    since = rows_so_far(incident)
    each = [(rank, seq) for rank in ranks for seq in range(4)]
    made = {"job": "j", "comm": comm, "kind": "coll", "op": "AllReduce"}
    made |= {"rank": [rank for rank, _ in each], "seq": [seq for _, seq in each]}
    incident.append("ops", made | {"enqueued_ns": [NOW + seq for _, seq in each]} | says)
    incident.append("comms", {"job": "j", "comm": comm, "rank": list(ranks), "size": len(ranks)})
    incident.append("recordings", {"job": "j", "path": f"{kind}.0", "kind": kind})
    return OneKind(kind, (Path(f"{kind}.0"),), since, rows_so_far(incident))


def test_of_two_recorders_of_the_same_operations_the_one_that_knows_their_end_counts() -> None:
    with Incident.empty() as incident:
        dumps = recorded(incident, "flight_recorder", 1, range(2), done=True)
        calls = recorded(incident, "megatrace", 2, range(4))
        incident.con.execute("UPDATE recordings SET note = 'cut' WHERE kind = 'megatrace'")
        keep_one_recorder(incident, [dumps, calls])
        ranks = "SELECT comm, list(DISTINCT rank ORDER BY rank) FROM {} GROUP BY comm ORDER BY comm"
        for table in ("ops", "comms"):  # of ranks 2 and 3 nothing else is known
            assert incident.con.execute(ranks.format(table)).fetchall() == [
                (1, [0, 1]),
                (2, [2, 3]),
            ]
        notes = incident.con.execute("SELECT kind, note FROM recordings ORDER BY kind").fetchall()
        assert notes[0] == ("flight_recorder", None)
        assert notes[1][1].startswith("cut; its calls are not used; flight_recorder has")


def test_calls_guessed_from_what_ran_give_way_to_those_that_a_recorder_knows() -> None:
    """A profile without descriptions counts from its own beginning, in the same communicator."""
    with Incident.empty() as incident:
        dumps = recorded(incident, "flight_recorder", 1, range(2), done=True, bytes=4)
        profile = recorded(incident, "kineto", 1, range(2), done=True)
        keep_one_recorder(incident, [profile, dumps])
        kept = "SELECT count(*), count(bytes) FROM ops"
        assert incident.con.execute(kept).fetchall() == [(8, 8)]
