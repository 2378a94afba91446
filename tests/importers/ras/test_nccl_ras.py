"""What NCCL RAS says, as evidence: JSON, text, events, files and a live server."""

from __future__ import annotations

import json
import os
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from oncall.cli.commands import app
from oncall.core.errors import BadInput
from oncall.evidence.coverage import NUMBERED_BY_HOST
from oncall.evidence.incident import Incident
from oncall.importers.ras import importer as nccl_ras
from oncall.importers.ras.client import fetch

SHARED = Path(__file__).parents[3].parent / "shared" / "data" / "nccl_docs"
shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the recordings are not on this machine")

HEAD = """NCCL version 2.27.5 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12090

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.01s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
"""
WORLD = "    0         1         4         8        32        32   RUNNING  MISMATCH\n"
AHEAD = """
Errors
======

Warnings
========

#0-0 (00ab27a079b828ff) MISMATCH
  Communicator ranks have different AllGather operation counts
  30 ranks have launched up to operation 640
  2 ranks have launched up to operation 641
  Rank 12 -- GPU 4 managed by process 812 on node 10.0.0.2
  Rank 13 -- GPU 5 (NVML 7) managed by process 813 on node 10.0.0.2

"""


def rank(number: int, counts: dict[str, int] | None = None, **status: Any) -> dict[str, Any]:
    return {
        "rank": number,
        "host": f"10.0.0.{number // 2}",
        "pid": 100 + number,
        "cuda_dev": number % 2,
        "nvml_dev": number % 2,
        "status": {"init_state": 0, "async_error": 0} | status,
        "collective_counts": counts or {"AllReduce": 5, "AllGather": 2},
    }


def poll(*comms: dict[str, Any], at: str = "2026-01-02 03:04:05") -> str:
    return json.dumps({"nccl_version": "2.29.1", "timestamp": at, "communicators": list(comms)})


def comm(name: str, ranks: list[dict[str, Any]], missing: list[dict[str, Any]] = []) -> Any:  # noqa: B006
    size = len(ranks) + len(missing)
    return {"hash": name, "size": size, "ranks": ranks, "missing_ranks": missing}


@contextmanager
def read(tmp_path: Path, *texts: str) -> Iterator[Incident]:
    paths = []
    for i, text in enumerate(texts):
        paths.append(tmp_path / f"{i}.out")
        paths[-1].write_text(text)
    with Incident.empty() as incident:
        nccl_ras.read(paths, incident, "j")
        yield incident


def rows(incident: Incident, sql: str) -> list[tuple[Any, ...]]:
    return incident.con.execute(sql).fetchall()


# ----------------------------------------------------------------------- JSON


def test_json_counts_are_summed_over_functions(tmp_path: Path) -> None:
    ranks = [rank(0), rank(1, {"AllReduce": 4, "AllGather": 2})]
    with read(tmp_path, poll(comm("0xffffffffffffffff", ranks))) as incident:
        assert rows(incident, "SELECT comm, rank, launched, state FROM launches ORDER BY rank") == [
            (2**64 - 1, 0, 7, "running"),
            (2**64 - 1, 1, 6, "running"),
        ]
        assert rows(incident, "SELECT rank, node, gpu, pid FROM ranks ORDER BY rank") == [
            (0, "10.0.0.0", 0, 100),
            (1, "10.0.0.0", 1, 101),
        ]
        assert rows(incident, "SELECT DISTINCT at_ns FROM launches") == [(1767323045 * 10**9,)]
        assert rows(incident, "SELECT world_size FROM jobs") == [(2,)]


def test_states_of_ranks(tmp_path: Path) -> None:
    ranks = [
        rank(0),
        rank(1, init_state=7),
        rank(2, finalize_called=True),
        rank(3, abort_flag=True),
        rank(4, async_error=3),
    ]
    missing = [
        {"rank": 5, "host": "h", "pid": 1, "status": {"unresponsive": True}},
        {"rank": 6, "host": "h", "pid": 2, "status": {"considered_dead": True}},
        {"rank": 7, "host": "h", "pid": 3, "status": {"unresponsive": False}},
    ]
    with read(tmp_path, poll(comm("0x1", ranks, missing))) as incident:
        assert [
            state for (state,) in rows(incident, "SELECT state FROM launches ORDER BY rank")
        ] == [
            "running",
            "init",
            "finalize",
            "abort",
            "error",
            "unresponsive",
            "dead",
            "nocomm",
        ]
        assert rows(incident, "SELECT count(launched) FROM launches") == [(5,)]
        assert rows(incident, "SELECT count(*), min(size) FROM comms") == [(8, 8)]


def test_ranks_of_a_subgroup_are_found_by_process(tmp_path: Path) -> None:
    world = comm("0x1", [rank(n) for n in range(4)])
    pair = [rank(3) | {"rank": 0}, rank(1) | {"rank": 1}]
    with read(tmp_path, poll(world, comm("0x2", pair))) as incident:
        assert rows(incident, "SELECT rank FROM comms WHERE comm = 2 ORDER BY comm_rank") == [
            (3,),
            (1,),
        ]
        assert rows(incident, "SELECT note FROM recordings") == [(None,)]


def test_only_subgroups_number_ranks_by_host_and_say_so(tmp_path: Path) -> None:
    pairs = [comm("0x1", [rank(2), rank(3)]), comm("0x2", [rank(0), rank(1)])]
    for pair in pairs:
        for place, member in enumerate(pair["ranks"]):
            member["rank"] = place
    with read(tmp_path, poll(*pairs)) as incident:
        assert rows(incident, "SELECT rank, pid FROM ranks ORDER BY rank") == [
            (n, 100 + n) for n in range(4)
        ]
        assert rows(incident, "SELECT note FROM recordings") == [(NUMBERED_BY_HOST,)]


def test_several_polls_and_an_event_in_one_file(tmp_path: Path) -> None:
    first, second = (
        poll(comm("0x1", [rank(0), rank(1)]), at=f"2026-01-02 03:04:{s}") for s in (10, 40)
    )
    event = {
        "timestamp": "2026-01-02 03:05:00",
        "group": "LIFECYCLE",
        "event": "PEER_DEAD",
        "peer": {"host": "10.0.0.0", "pid": 101, "cuda_devs": [1], "nvml_devs": [1]},
    }
    with read(tmp_path, f"{first}\n{second}{json.dumps(event)}") as incident:
        assert rows(incident, "SELECT count(DISTINCT at_ns) FROM launches") == [(3,)]
        assert rows(incident, "SELECT comm, rank FROM launches WHERE state = 'dead'") == [(1, 1)]
        assert rows(incident, "SELECT node, code FROM host_events") == [("10.0.0.0", "PEER_DEAD")]
        assert rows(incident, "SELECT rows, version FROM recordings") == [(6, "2.29.1")]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "\x00\xff\x01" * 100,
        "[1, 2, 3]",
        '{"traceEvents": []}',
        '{"communicators": 7, "nccl_version": {}}',
        '{"communicators": [1, {"hash": -1}, {"hash": "0x1ffffffffffffffff"}], "timestamp": 5}',
        '{"event": 1, "peer": [], "group": 2}',
        '{"communicators": ' + "[" * 100_000,
        '{"communicators": [{"hash": "0x1", "size": ' + "9" * 5000 + "}]}",
    ],
)
def test_junk_becomes_a_recording_with_its_problem(tmp_path: Path, text: str) -> None:
    with read(tmp_path, text) as incident:
        assert rows(incident, "SELECT rows, problem IS NOT NULL FROM recordings") == [(0, True)]
        assert incident.rows("launches") == 0


def test_absurd_numbers_are_left_out_and_the_rest_is_kept(tmp_path: Path) -> None:
    ranks = [rank(0), rank(1, {"AllReduce": 2**70}), rank(10**12), rank(-1), rank(True)]
    with read(tmp_path, poll(comm("0x1", ranks) | {"size": 3})) as incident:
        assert rows(incident, "SELECT rank, launched FROM launches ORDER BY rank") == [
            (0, 7),
            (1, None),
        ]
        assert "without a sensible number" in rows(incident, "SELECT problem FROM recordings")[0][0]


def test_a_truncated_second_poll_keeps_the_first(tmp_path: Path) -> None:
    whole = poll(comm("0x1", [rank(0), rank(1)]))
    with read(tmp_path, whole + "\n" + whole[: len(whole) // 2]) as incident:
        assert incident.rows("launches") == 2
        assert "line 2" in rows(incident, "SELECT problem FROM recordings")[0][0]


def test_the_commas_that_nccl_2_28_leaves_out_are_put_in(tmp_path: Path) -> None:
    missing = {
        "rank": 2,
        "host": "unknown",
        "pid": -1,
        "cuda_dev": 2,
        "nvml_dev": 2,
        "status": {"unresponsive": True, "considered_dead": False},
    }
    sound = json.loads(poll(comm("0x1", [rank(0), rank(1)], [missing])))
    text = json.dumps(sound, indent=2)
    lost = text.replace('"nvml_dev": 2,\n', '"nvml_dev": 2\n').replace(
        '"unresponsive": true,\n', '"unresponsive": true\n'
    )
    assert lost.count(",") == text.count(",") - 2
    later = lost.replace("03:04:05", "03:04:35")
    with read(tmp_path, text + later) as incident:
        assert rows(
            incident, "SELECT rank, state, count(*) FROM launches GROUP BY ALL ORDER BY 1"
        ) == [
            (0, "running", 2),
            (1, "running", 2),
            (2, "unresponsive", 2),
        ]
        assert rows(incident, "SELECT problem FROM recordings") == [(None,)]
        assert rows(incident, "SELECT count(*) FROM ranks WHERE rank = 2") == [(0,)]


def test_a_job_without_communicators_is_said_to_be_one(tmp_path: Path) -> None:
    with read(tmp_path, poll()) as incident:
        assert rows(incident, "SELECT problem FROM recordings") == [
            ("NCCL RAS answered that the job has no communicator",)
        ]


# ----------------------------------------------------------------------- text

END = "\nErrors\n======\n\nWarnings\n========\n\n"


def diagnosed(tmp_path: Path, text: str) -> tuple[int, str]:
    (tmp_path / "ras.out").write_text(text)
    result = CliRunner().invoke(app, ["diagnose", str(tmp_path / "ras.out")])
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize(
    ("looks", "code", "said"),
    [
        # Two ranks ahead at one instant are a job in motion; thirty that stay behind are not.
        ([(640, 641)], 3, "2 ranks wait for others"),
        ([(640, 641), (640, 641)], 1, "Inconsistent operations: ranks 12-13"),
        ([(640, 641), (700, 701)], 0, "No fault found"),
        ([(641, 640)], 1, "the job may be stopped: ranks 12-13"),
        ([(641, 640), (641, 640)], 1, "Not-entered hang: ranks 12-13"),
        ([(641, 640), (701, 700)], 0, "No fault found"),
        ([(640, 640)], 3, "one look at counters"),
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
    assert report.startswith("✖ CRITICAL Process dead: rank 7 on 10.0.0.3")


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
    assert "no counts of operations are recorded" in report


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


def test_a_subgroup_alone_in_text_has_no_rank_for_the_unnamed(tmp_path: Path) -> None:
    table = WORLD.replace("MISMATCH", "OK") + WORLD.replace(
        " 0         1 ", " 1         8 "
    ).replace("32        32", " 4        32")
    block = """
#1-3 (0000000000000aaa) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 9
  Rank 2 has launched up to operation 8 -- GPU 6 managed by process 86 on node 10.0.0.1
"""
    with read(tmp_path, HEAD + table + block) as incident:
        found = rows(
            incident, "SELECT rank, launched FROM launches WHERE comm = 2730 ORDER BY rank"
        )
        assert found == [(0, 8), (None, 9), (None, 9), (None, 9)]
        assert rows(incident, "SELECT comm_rank, size FROM comms") == [(2, 4)]
        assert rows(incident, "SELECT node, gpu FROM ranks") == [("10.0.0.1", 6)]


def test_two_polls_of_text_keep_their_order(tmp_path: Path) -> None:
    later = (HEAD + WORLD + AHEAD).replace("640", "650").replace("641", "651")
    with read(tmp_path, HEAD + WORLD + AHEAD + later) as incident:
        assert rows(
            incident,
            "SELECT max(launched) FROM launches GROUP BY at_ns ORDER BY at_ns",
        ) == [(641,), (651,)]


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


def test_errors_are_a_state(tmp_path: Path) -> None:
    text = """
#0-0 (00ab27a079b828ff) ERROR
  Asynchronous error on 1 rank
  Rank 4 reported Remote process error -- GPU 4 managed by process 84 on node 10.0.0.1
"""
    with read(tmp_path, HEAD + WORLD.replace("MISMATCH", "ERROR") + text) as incident:
        assert rows(incident, "SELECT rank FROM launches WHERE state = 'error'") == [(4,)]


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


def test_absurd_gpus_in_text(tmp_path: Path) -> None:
    with read(tmp_path, HEAD + WORLD + AHEAD.replace("GPU 4", "GPU 4294967296")) as incident:
        assert rows(incident, "SELECT gpu FROM ranks WHERE rank = 12") == [(None,)]


def test_absurd_sizes_in_text(tmp_path: Path) -> None:
    huge = WORLD.replace("32        32", "999999999999 9")
    with read(tmp_path, HEAD + huge + AHEAD) as incident:
        assert "cannot have" in rows(incident, "SELECT problem FROM recordings")[0][0]
        assert rows(incident, "SELECT count(*) FROM launches WHERE comm IS NOT NULL") == [(0,)]


def test_recognition_is_by_content() -> None:
    assert nccl_ras.recognises(Path("x.log"), (HEAD + WORLD).encode())
    assert nccl_ras.recognises(Path("x"), poll().encode())
    assert nccl_ras.recognises(Path("ras://gpu001:28028"), b"")
    manual = b"RAS\n===\n  Communicators... (0.00s)\n  #0-0 (27a079b828ff1a75) MISMATCH\n"
    assert not nccl_ras.recognises(Path("ras.rst"), manual)
    assert not nccl_ras.recognises(Path("ras.json"), b'{"traceEvents": []}')
    assert not nccl_ras.recognises(Path("ras.json"), os.urandom(512))


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


# ----------------------------------------------------------------------- live


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    understands_json = True
    silent = False
    greets = "SERVER PROTOCOL 2"
    asked: ClassVar[list[str]] = []


class _Handler(socketserver.StreamRequestHandler):
    """NCCL's side of the protocol."""

    server: _Server

    def handle(self) -> None:
        form = "text"
        for raw in self.rfile:
            command = raw.decode().strip().upper()
            self.server.asked.append(command)
            if self.server.silent:
                continue
            if command.startswith("CLIENT PROTOCOL"):
                self._say(self.server.greets)
            elif command.startswith("TIMEOUT"):
                self._say("OK")
            elif command == "SET FORMAT JSON" and self.server.understands_json:
                form = "json"
                self._say("OK")
            elif command == "VERBOSE STATUS":
                answer = poll(comm("0x1", [rank(0), rank(1)])) if form == "json" else HEAD + WORLD
                self.wfile.write(answer.encode())
                return
            else:
                self._say(f"ERROR: Unknown command {command}")

    def _say(self, line: str) -> None:
        self.wfile.write(line.encode() + b"\n")


@contextmanager
def server(**settings: Any) -> Iterator[int]:
    with _Server(("127.0.0.1", 0), _Handler) as running:
        for name, value in settings.items():
            setattr(running, name, value)
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield running.server_address[1]
        finally:
            running.shutdown()
            thread.join()


def test_a_running_job_answers_in_json() -> None:
    with server() as port, Incident.empty() as incident:
        nccl_ras.read([Path(f"ras://127.0.0.1:{port}")], incident, "j")
        assert incident.rows("launches") == 2
        assert rows(incident, "SELECT problem FROM recordings") == [(None,)]


def test_an_older_job_is_asked_only_at_the_engineers_word() -> None:
    asked: list[str] = []
    with server(understands_json=False, asked=asked) as port:
        with pytest.raises(BadInput, match=r"older than 2\.28\.7.* --yes-risk-the-job"):
            fetch("127.0.0.1", port)
        assert asked == ["CLIENT PROTOCOL 2", "TIMEOUT 5", "SET FORMAT JSON"]
        assert fetch("127.0.0.1", port, risk_the_job=True).startswith("NCCL version 2.27.5")


@pytest.mark.parametrize("risk", [False, True])
def test_the_word_reaches_the_job_from_the_command_line(risk: bool) -> None:
    with server(understands_json=False) as port:
        options = ["--yes-risk-the-job"] if risk else []
        said = CliRunner().invoke(app, ["diagnose", f"ras://127.0.0.1:{port}", *options])
    assert ("not queried" in said.output) != risk


@pytest.mark.parametrize("answer", ["", "OK\n" * 3000, "\0" * 9000, "SERVER PROTOCOL 2"])
def test_what_ends_or_floods_the_greeting_is_refused(answer: str) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), _says(answer)) as running:
        thread = threading.Thread(target=running.handle_request)
        thread.start()
        with pytest.raises(BadInput):
            fetch("127.0.0.1", running.server_address[1], timeout_s=0.1)
        thread.join()


def _says(answer: str) -> type[socketserver.BaseRequestHandler]:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(answer.encode())

    return Handler


def test_what_is_not_ras_is_reported() -> None:
    with server(greets="220 mail ESMTP") as port, pytest.raises(BadInput, match="220 mail"):
        fetch("127.0.0.1", port)


def test_nobody_listens() -> None:
    with server() as port:
        pass
    with pytest.raises(BadInput, match="NCCL_RAS_ADDR"):
        fetch("127.0.0.1", port, timeout_s=0.1)


def test_silence_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncall.importers.ras.client._MARGIN_S", 0.1)
    with server(silent=True) as port, pytest.raises(BadInput, match="no answer"):
        fetch("127.0.0.1", port, timeout_s=0.1)
