"""What NCCL RAS says as text, as evidence."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.importers.ras.answers import AHEAD, HEAD, WORLD, comm, poll, rank, read
from tests.sql import rows
from typer.testing import CliRunner

from oncall.cli.commands import app
from oncall.evidence.incident import Incident
from oncall.importers.ras import importer as nccl_ras

SHARED = Path(__file__).parents[3].parent / "shared" / "data" / "nccl_docs"
shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the recordings are not on this machine")


END = "\nErrors\n======\n\nWarnings\n========\n\n"


def diagnosed(tmp_path: Path, text: str) -> tuple[int, str]:
    (tmp_path / "ras.out").write_text(text)
    result = CliRunner().invoke(app, ["diagnose", str(tmp_path / "ras.out")])
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize(
    ("looks", "code", "said"),
    [
        # Two ranks ahead at one instant are a job in motion; thirty that stay behind are not.
        ([(640, 641)], 3, "2 of 32 ranks are in call 641"),
        ([(640, 641), (640, 641)], 1, "Inconsistent operations: ranks 12-13"),
        ([(640, 641), (700, 701)], 0, "No fault found"),
        ([(641, 640)], 1, "the job may be stopped: ranks 12-13"),
        ([(641, 640), (641, 640)], 1, "Not-entered hang: ranks 12-13"),
        ([(641, 640), (701, 700)], 0, "No fault found"),
        ([(640, 640)], 3, "their states and counts agree; one look cannot show"),
        ([(641, 640), None, (641, 640)], 1, "the job may be stopped: ranks 12-13"),
        ([(640, 640), (640, 640)], 3, "no rank launched an operation between 2 looks (30 s)"),
        ([(640, 640), (700, 700)], 0, "No fault found"),
    ],
)
def test_who_is_behind_is_seen_from_counters_alone(
    tmp_path: Path, looks: list[tuple[int, int] | None], code: int, said: str
) -> None:
    text = ""
    apart = 0 if None in looks else 30  # seconds
    for number_of_look, (most, few) in enumerate(filter(None, looks)):
        counts = [few if number in (12, 13) else most for number in range(32)]
        ranks = [rank(number, {"AllGather": count}) for number, count in enumerate(counts)]
        text += poll(comm("0x1", ranks), at=f"2026-01-02 03:04:{apart * number_of_look:02}")
    found, report = diagnosed(tmp_path, text)
    assert found == code
    assert said in report


def test_whoever_lags_beside_a_dead_process_waits_for_it(tmp_path: Path) -> None:
    ranks = [rank(number, {"AllReduce": 7 + (number > 3)}) for number in range(7)]
    dead = {"rank": 7, "host": "10.0.0.3", "pid": 107, "status": {"considered_dead": True}}
    code, report = diagnosed(tmp_path, poll(comm("0x1", ranks, [dead])))
    assert code == 1
    assert report.startswith("✖ CRITICAL Not-entered hang: Process dead, rank 7 on 10.0.0.3")


def test_a_dead_process_of_a_job_without_communicators_is_named(tmp_path: Path) -> None:
    dead = """Communicators... (0.01s)
=============

No communicator data collected!

Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 92 on node 10.0.0.9 managing GPU 2

Warnings
========
"""
    code, report = diagnosed(tmp_path, HEAD.split("Communicators...")[0] + dead)
    assert code == 1
    assert "Process dead: GPU 2 on 10.0.0.9" in report
    assert "rank" not in report.split("Not seen")[0].split("No other")[1]


@pytest.mark.parametrize("torn", [HEAD[:60], HEAD + WORLD, "{"])
def test_a_file_whose_newest_answer_is_torn_is_not_healthy(tmp_path: Path, torn: str) -> None:
    sound = HEAD + WORLD.replace("MISMATCH", "OK") + END
    if torn == "{":
        ranks = [[rank(n, {"AllReduce": count}) for n in range(2)] for count in (7, 9)]
        sound = "".join(poll(comm("0x1", found)) for found in ranks)
    code, report = diagnosed(tmp_path, sound + torn)
    assert code == 3
    assert "not every answer of NCCL RAS could be read" in report


def test_two_texts_in_good_order_do_not_show_that_the_job_moves(tmp_path: Path) -> None:
    sound = HEAD + WORLD.replace("MISMATCH", "OK") + END
    code, report = diagnosed(tmp_path, sound * 2)
    assert code == 3
    assert "all 32 ranks answer NCCL RAS, and their states and counts agree" in report


def test_the_listed_minority_may_be_ahead(tmp_path: Path) -> None:
    with read(tmp_path, HEAD + WORLD + AHEAD) as incident:
        ahead = rows(incident, "SELECT rank FROM launches WHERE launched = 641 ORDER BY rank")
        assert ahead == [(12,), (13,)]
        assert rows(incident, "SELECT count(*) FROM launches WHERE launched = 640") == [(30,)]
        assert rows(incident, "SELECT count(*), min(size) FROM comms") == [(32, 32)]
        assert rows(incident, "SELECT rank, node, gpu, pid FROM ranks ORDER BY rank") == [
            (12, "10.0.0.2", 4, 812),
            (13, "10.0.0.2", 7, 813),
        ]
        assert rows(incident, "SELECT world_size FROM jobs") == [(32,)]
        assert rows(incident, "SELECT version FROM recordings") == [("2.27.5",)]


def test_functions_that_differ_are_summed(tmp_path: Path) -> None:
    more = """  Communicator ranks have different AllReduce operation counts
  31 ranks have launched up to operation 9
  Rank 5 has not launched any operations -- GPU 5 managed by process 85 on node 10.0.0.1
"""
    with read(tmp_path, HEAD + WORLD + AHEAD.rstrip() + "\n" + more) as incident:
        launched = dict(rows(incident, "SELECT rank, launched FROM launches"))
        assert launched[5] == 640
        assert launched[12] == 650
        assert launched[0] == 649


def test_groups_of_which_none_is_named_are_not_assigned(tmp_path: Path) -> None:
    block = AHEAD.split("  30 ranks")[0]
    block += (
        "  18 ranks have launched up to operation 7\n  14 ranks have launched up to operation 6\n"
    )
    with read(tmp_path, HEAD + WORLD + block) as incident:
        assert rows(incident, "SELECT count(*), count(launched) FROM launches") == [(32, 0)]
        assert "18 at 7, 14 at 6" in rows(incident, "SELECT note FROM recordings")[0][0]


def test_no_more_of_the_unnamed_are_said_to_wait_than_the_text_counts(tmp_path: Path) -> None:
    """Of 32 ranks, 30 are counted: of the other two the text says nothing."""
    few = AHEAD.replace("30 ranks", "28 ranks")
    with read(tmp_path, HEAD + WORLD + few) as incident:
        counted = "SELECT launched, count(*) FROM launches GROUP BY launched ORDER BY launched"
        assert rows(incident, counted) == [(641, 2), (None, 30)]
        assert "28 at 640" in rows(incident, "SELECT note FROM recordings")[0][0]


SUBGROUP = """
#1-3 (0000000000000aaa) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 9
  Rank 2 has launched up to operation 8 -- GPU 6 managed by process 86 on node 10.0.0.1
"""
OF_SUBGROUP = WORLD.replace("MISMATCH", "OK") + WORLD.replace(
    " 0         1 ", " 1         8 "
).replace("32        32", " 4        32")


def test_a_subgroup_alone_in_text_has_no_rank_for_the_unnamed(tmp_path: Path) -> None:
    with read(tmp_path, HEAD + OF_SUBGROUP + SUBGROUP) as incident:
        found = rows(
            incident, "SELECT rank, launched FROM launches WHERE comm = 2730 ORDER BY rank"
        )
        assert found == [(0, 8), (None, 9), (None, 9), (None, 9)]
        assert rows(incident, "SELECT comm_rank, size FROM comms") == [(2, 4)]
        assert rows(incident, "SELECT node, gpu FROM ranks") == [("10.0.0.1", 6)]


def test_who_is_behind_is_named_though_those_that_wait_are_not(tmp_path: Path) -> None:
    one = HEAD + OF_SUBGROUP + SUBGROUP + END
    code, said = diagnosed(tmp_path, one)
    assert code == 3
    assert "most likely rank 0: others made calls that nothing shows it to have made; one" in said
    code, said = diagnosed(tmp_path, one + one)
    assert code == 1 and "Not-entered hang: rank 0 on 10.0.0.1" in said
    assert "Ranks waiting: 3 of 32" in said and "3 ranks are blocked because of it" in said


def test_dead_and_unresponsive_processes(tmp_path: Path) -> None:
    text = """
Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 91 on node 10.0.0.9 managing GPU 1

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 92 on node 10.0.0.9 managing GPU 2

#0-0 (00ab27a079b828ff) INCOMPLETE
  Missing communicator data from 2 ranks
  Rank 30 -- GPU 1 managed by process 91 on node 10.0.0.9
  Rank 31 -- GPU 2 managed by process 92 on node 10.0.0.9
"""
    with read(tmp_path, HEAD + WORLD.replace("MISMATCH", "INCOMPLETE") + text) as incident:
        states = dict(rows(incident, "SELECT rank, state FROM launches"))
        assert (states[29], states[30], states[31]) == ("running", "unresponsive", "dead")


def test_text_of_monitoring_mode(tmp_path: Path) -> None:
    line = "[2025-12-19 13:07:07] PEER_DEAD: Process 15 on node 10.0.0.1 managing GPU 1\n"
    assert nccl_ras.recognises(Path("x"), line.encode())
    with read(tmp_path, line) as incident:
        assert incident.rows("ranks") == 0
        assert rows(incident, "SELECT rank, state, node, gpu, pid FROM launches") == [
            (None, "dead", "10.0.0.1", 1, 15)
        ]


@pytest.mark.parametrize("cut", range(0, len(HEAD + WORLD + AHEAD), 37))
def test_text_cut_anywhere_is_read_without_harm(tmp_path: Path, cut: int) -> None:
    with read(tmp_path, (HEAD + WORLD + AHEAD)[:cut]) as incident:
        assert incident.rows("recordings") == 1


def test_absurd_sizes_in_text(tmp_path: Path) -> None:
    huge = WORLD.replace("32        32", "999999999999 9")
    with read(tmp_path, HEAD + huge + AHEAD) as incident:
        assert "cannot have" in rows(incident, "SELECT problem FROM recordings")[0][0]
        assert rows(incident, "SELECT count(*) FROM launches WHERE comm IS NOT NULL") == [(0,)]


@shared
def test_documented_samples() -> None:
    with Incident.empty() as incident:
        nccl_ras.read([SHARED / "ras_text_mismatch.txt"], incident, "j")
        behind = rows(incident, "SELECT rank FROM launches WHERE launched = 6649 ORDER BY rank")
        assert [r for (r,) in behind] == [0, 2, 3, 4, 5, 7]
        assert rows(incident, "SELECT count(*) FROM launches WHERE launched = 6650") == [(26,)]
    with Incident.empty() as incident:
        nccl_ras.read([SHARED / "ras_text_incomplete.txt"], incident, "j")
        assert rows(
            incident,
            "SELECT rank, r.node, r.gpu FROM launches JOIN ranks r USING (rank) "
            "WHERE state = 'unresponsive'",
        ) == [(21, "172.16.64.213", 5)]
    with Incident.empty() as incident:
        nccl_ras.read([SHARED / "ras_text_finalize.txt"], incident, "j")
        assert rows(incident, "SELECT state, count(*) FROM launches GROUP BY state ORDER BY 2") == [
            ("finalize", 2),
            ("running", 4),
            ("nocomm", 26),
        ]
    with Incident.empty() as incident:
        nccl_ras.read([SHARED / "ras_text_healthy.txt"], incident, "j")
        assert rows(incident, "SELECT count(DISTINCT rank) FROM launches") == [(32,)]


def test_a_process_that_monitoring_reports_dead_died_when_it_says(tmp_path: Path) -> None:
    line = "[2025-12-19 13:07:07] PEER_DEAD: Process 15 on node 10.0.0.1 managing GPU 1\n"
    with read(tmp_path, "RAS Monitor Mode - watching for peer changes\n" + line) as incident:
        dead = "SELECT state, pid, make_timestamp(at_ns // 1000)::VARCHAR FROM launches"
        assert rows(incident, dead) == [("dead", 15, "2025-12-19 13:07:07")]
