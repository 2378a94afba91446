# ruff: noqa: E501 - lines of logs as programs print them
"""Job logs as files: what is recognised, what lies beside, and what hostile ones cost."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
from tests.sql import rows

from oncall.core.errors import BadInput
from oncall.evidence.incident import Incident
from oncall.importers import detect
from oncall.importers.logs import importer
from oncall.importers.logs.clock import Clock
from oncall.importers.logs.following import as_file
from oncall.importers.logs.prefixes import peeled
from oncall.importers.logs.reading import Log
from oncall.importers.logs.recognisers.order import NEEDLES
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.diagnose import diagnose

FIXTURE = Path(__file__).parents[3] / "fixtures" / "logs" / "slurm-4711.out"
TIMEOUT = (
    "[rank{r}]:[E314 02:55:00.000004411 ProcessGroupNCCL.cpp:685] [Rank {r}] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, "
    "Timeout(ms)=600000) ran for 600011 milliseconds before timing out.\n"
)


def headline(*paths: Path) -> tuple[str | None, list[int]]:
    """The verdict of the first finding and the ranks that it blames."""
    with Incident.empty() as incident:
        detect.load(list(paths), incident, "job")
        found = diagnose(incident, load_rulebooks([shipped_folder()])).faults
        ranks = (
            [int(one.where["rank"]) for one in found[0].blame if "rank" in one.where]
            if found
            else []
        )
        return (found[0].verdict if found else None), ranks


def sentence(*paths: Path) -> str:
    with Incident.empty() as incident:
        detect.load(list(paths), incident, "job")
        return diagnose(incident, load_rulebooks([shipped_folder()])).faults[0].story[-1].say


def test_the_first_error_is_named_and_not_the_seven_that_waited_for_it() -> None:
    assert headline(FIXTURE) == ("FIRST_ERROR", [5])


def test_gzip_and_standard_input_read_alike(tmp_path: Path) -> None:
    packed = tmp_path / "slurm-4711.out.gz"
    packed.write_bytes(gzip.compress(FIXTURE.read_bytes()))
    assert headline(packed) == ("FIRST_ERROR", [5])
    with as_file(io.BytesIO(FIXTURE.read_bytes())) as place:
        assert headline(place) == ("FIRST_ERROR", [5])
    assert not place.exists()


def test_one_file_a_rank_gives_the_rank(tmp_path: Path) -> None:
    (tmp_path / "rank13_stderr.log").write_text(
        "Traceback (most recent call last):\nKeyError: 'x'\n"
    )
    (tmp_path / "rank12_stderr.log").write_text(
        "iteration 1/ 5 | elapsed time per iteration (ms): 5\n"
    )
    assert headline(tmp_path) == ("FIRST_ERROR", [13])


def test_what_a_loaders_worker_raised_is_reported_and_not_that_it_was_raised_anew(
    tmp_path: Path,
) -> None:
    (tmp_path / "rank0.log").write_text(
        "Traceback (most recent call last):\n"
        '  File "train.py", line 9, in <module>\n'
        "RuntimeError: Caught OSError in DataLoader worker process 3.\n"
        "Original Traceback (most recent call last):\n"
        '  File "data.py", line 7, in __getitem__\n'
        "    raise OSError('shard 3 is damaged')\n"
        "OSError: shard 3 is damaged\n"
    )
    said = sentence(tmp_path)
    assert "shard 3 is damaged (in DataLoader worker process 3) (train.py:9) (rank0.log:3)" in said


def test_processes_that_torchrun_names_are_ranks_and_have_lines(tmp_path: Path) -> None:
    lines = [f"[default{rank}]: iteration 1/ 5 | lm loss: 2.0 |\n" for rank in (2, 0, 1)]
    (tmp_path / "train.log").write_text("".join(lines))
    with Incident.empty() as incident:
        detect.load([tmp_path], incident, "job")
        assert rows(incident, "SELECT rank, local_rank FROM ranks ORDER BY rank") == [
            (rank, rank) for rank in range(3)
        ]
        incident.append("ops", {"job": "job", "rank": [0, 1], "seq": 1})
        incident.require(["processes"])
        seen = rows(incident, "SELECT rank, observed FROM processes ORDER BY rank")
        assert seen == [(0, True), (1, True), (2, False)]  # a log shows no operation


def test_the_folders_of_torchrun_give_the_rank(tmp_path: Path) -> None:
    for local in range(4):
        folder = tmp_path / "none_abc" / "attempt_0" / str(local)
        folder.mkdir(parents=True)
        error = "ValueError: bad sample" if local == 2 else TIMEOUT.format(r=local)
        (folder / "stderr.log").write_text(f"{error}\n")
    assert headline(*sorted(tmp_path.rglob("*.log"))) == ("FIRST_ERROR", [2])


def test_a_log_of_torchruns_folder_may_go_on_after_the_last_step(tmp_path: Path) -> None:
    path = tmp_path / "none_abc" / "attempt_0" / "0" / "stderr.log"
    path.parent.mkdir(parents=True)
    step = (
        " [2026-03-14 02:{n:02}:00] iteration {n:8}/ 500 | elapsed time per iteration (ms): 9.5 |"
    )
    said = [step.format(n=n) for n in range(1, 20)]
    path.write_text("\n".join([*said, "[2026-03-14 02:49:00] something else", ""]))
    with Incident.empty() as incident:
        detect.load([path], incident, "job")
        assert rows(incident, "SELECT rank FROM log_events WHERE kind = 'silence'") == [(0,)]


def test_the_store_that_waits_for_clients_states_the_size(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text(
        "[rank0]: torch.distributed.DistStoreError: Timed out after 901 seconds waiting for "
        "clients. 15/16 clients joined.\n"
    )
    with Incident.empty() as incident:
        detect.load([path], incident, "job")
        assert rows(incident, "SELECT world_size FROM jobs") == [(16,)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[Rank 3/16] step 10 loss 2.1", "of 16 ranks"),
        ("train.py: rank 3 of 16 ready, world_size=16", "of 16 ranks"),
        ("Initializing distributed: GLOBAL_RANK: 3, MEMBER: 4/16", "of 16 ranks"),
        ("+ torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend c10d train.py", "of 16 ranks"),
        ("export MASTER_PORT=29500 WORLD_SIZE=16", "of 16 ranks"),
        ("  min_nodes        : 2\n  max_nodes        : 2\n  nproc_per_node   : 8", "of 16 ranks"),
        ("  min_nodes        : 1\n  max_nodes        : 2\n  nproc_per_node   : 8", "4 ranks"),
        ("[tp rank 3/16] local", "4 ranks"),
        (
            "gpu-1:7:7 [0] NCCL INFO comm 0x55e8f1 rank 3 nranks 16 cudaDev 3 nvmlDev 3 busId 18000 commId 0x71d0 - Init COMPLETE",
            "of 16 ranks",
        ),
        ("srun: error: gpu-1: tasks 0-15: Aborted (core dumped)", "of at least 16 ranks"),
        ("[rank15]: Saved checkpoint to /fs/7", "of at least 16 ranks"),
    ],
)
def test_how_many_ranks_a_job_has_is_read_or_not_claimed(
    line: str, expected: str, tmp_path: Path
) -> None:
    """Four of sixteen printed a timeout."""
    log = tmp_path / "job.log"
    log.write_text(line + "\n" + "".join(TIMEOUT.format(r=rank) for rank in range(4)))
    said = sentence(log)
    assert expected in said
    assert ("left no text" in said) == ("of" in expected)
    assert "All" not in said


def test_the_first_unmet_call_is_found_without_clocks(tmp_path: Path) -> None:
    """Rank 3 is silent. Ranks 1 and 5 wait for it; 0 and 2 for ranks 1 and 3; most for 0 and 2."""
    said = (
        "[rank{r}]:[E ProcessGroupNCCL.cpp:523] [Rank {p}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=5, OpType=_ALLGATHER_BASE, NumelIn=8, NumelOut={n}, Timeout(ms)=600000) ran for 600100 milliseconds before timing out.\n"
        "[rank{r}]:[E ProcessGroupNCCL.cpp:1537] [PG {g} Rank {p}] Timeout at NCCL work: 5, last enqueued NCCL work: 6, last completed NCCL work: 4.\n"
    )
    wide = [(rank, "2 (dp_0)", rank // 2, 64) for rank in range(4, 16, 2)]
    narrow = [(rank, "3 (dp_1)", rank // 2, 64) for rank in (1, 5)]
    pairs = [(rank, f"{4 + rank} (tp_{rank})", 0, 16) for rank in (0, 2, 7, 9, 11, 13, 15)]
    log = tmp_path / "job.log"
    log.write_text("".join(said.format(r=r, g=g, p=p, n=n) for r, g, p, n in wide + narrow + pairs))
    with Incident.empty() as incident:
        detect.load([log], incident, "job")
        diagnose(incident, load_rulebooks([shipped_folder()]))
        found = rows(incident, "SELECT process_group, cause, reason, rank FROM log_causes")
        assert found == [("3 (dp_1)", "not_joined", "no_timeout", 3)]


def test_megatrons_timers_say_how_far_ranks_differ(tmp_path: Path) -> None:
    step = " iteration {n:8}/     90 | consumed samples: 7680 | elapsed time per iteration (ms): {ms} | lm loss: 2.1 |\n"
    timers = (
        "(min, max) time across ranks (ms):\n"
        "    forward-backward ...............................: (1201.11, 7377.30)\n"
        "    optimizer ......................................: (40.56, 49.92)\n"
    )
    log = tmp_path / "job.log"
    setup = timers.replace("forward-backward", "train/valid/test-data-iterators-setup")
    slow = [step.format(n=n, ms="2000.0" if n < 30 else "9000.0") + timers for n in range(60)]
    log.write_text(setup.replace("7377", "99377") + "".join(slow))
    assert "differ most in forward-backward 1201.11 to 7377.30 ms; none" in sentence(log)


def test_megatrons_timers_of_each_rank_name_the_slow_one(tmp_path: Path) -> None:
    def report(step: int) -> str:
        times = "".join(f"     rank {r:2d}: {3273.6 if r == 5 else 1900.0 + r}\n" for r in range(8))
        return (
            f" iteration {step}/ 100 | elapsed time per iteration (ms): {9691.4 / step} |\n"
            f"times across ranks (ms):\n    forward-compute:\n{times}    optimizer:\n"
        )

    log = tmp_path / "job.log"
    log.write_text("".join(map(report, range(1, 7))))
    assert headline(log) == ("SLOW_RANK", [5])


def test_ranks_hosts_and_sizes_come_from_nccl(tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    path.write_text(
        "".join(
            f"gpu{n // 2}:7{n}:90 [{n % 2}] NCCL INFO ncclCommInitRank comm 0x55e{n} rank {n} nranks 4 "
            f"cudaDev {n % 2} nvmlDev {n % 2} busId 9{n}000 commId 0x71d0be - Init COMPLETE\n"
            for n in range(4)
        )
        + "gpu1:72:99 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_3:1 Got async error event: port error\n"
    )
    with Incident.empty() as incident:
        detect.load([path], incident, "job")
        assert rows(incident, "SELECT world_size FROM jobs") == [(4,)]
        assert rows(incident, "SELECT rank, node, pci_bus FROM ranks ORDER BY rank")[2] == (
            2,
            "gpu1",
            "0000:92:00.0",
        )
        assert rows(incident, "SELECT rank, device FROM log_events WHERE kind = 'port'") == [
            (2, "mlx5_3")
        ]


def test_each_start_of_a_job_is_an_attempt(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text(
        "[rank1]: KeyError: 'a'\nWorker group FAILED. 3/3 attempts left; will restart worker group\n"
        "[rank2]: ValueError: b\n"
    )
    with Incident.empty() as incident:
        detect.load([path], incident, "job")
        found = diagnose(incident, load_rulebooks([shipped_folder()])).faults
    assert sorted((one.case["attempt"], one.blame[0].where["rank"]) for one in found) == [
        (1, 1),
        (2, 2),
    ]


def test_a_log_that_says_nothing_is_inconclusive(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text("[rank0]:[W P.cpp:1] [PG ID 0 PG GUID 0 Rank 0]  using GPU 0 as device\n")
    with Incident.empty() as incident:
        detect.load([path], incident, "job")
        assert diagnose(incident, load_rulebooks([shipped_folder()])).result == "inconclusive"


def test_steps_to_a_normal_end_are_healthy(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text(
        "".join(
            f" iteration {n}/ 20 | elapsed time per iteration (ms): 2000.0 |\n"
            for n in range(1, 21)
        )
    )
    with Incident.empty() as incident:
        detect.load([path], incident, "job")
        assert diagnose(incident, load_rulebooks([shipped_folder()])).result == "none"


@pytest.mark.parametrize("name", ["README.md", "notes.json", "train.py", "run.yaml"])
def test_what_quotes_a_log_is_none(name: str) -> None:
    assert not importer.recognises(Path(name), TIMEOUT.format(r=1).encode())


def test_what_a_sentence_quotes_is_not_what_the_job_says(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    quoted = 'sample 7 | prompt: Why does my job print "{}"? | completion: It means\n'
    log.write_text(
        quoted.format("NVRM: Xid (PCI:0000:1a:00): 79, GPU has fallen off the bus.")
        + quoted.format(TIMEOUT.format(r=1).strip())
        + "step 10/10 loss 2.1 time: 1.2 s\ntraining is done\n"
    )
    assert headline(log) == (None, [])


def test_binary_files_are_none(tmp_path: Path) -> None:
    assert not importer.recognises(tmp_path / "core.log", b"\x7fELF\x00\x00" + TIMEOUT.encode())
    path = tmp_path / "notes.txt"
    path.write_text("nothing of a job")
    with pytest.raises(BadInput, match="not a recording"):
        detect.load([path], Incident.empty(), "job")


def test_a_log_beside_dumps_is_read_with_them(fr, tmp_path: Path) -> None:
    for rank in range(2):
        fr.write(tmp_path, rank, fr.dump([fr.entry(0, 1)], {"0": ("default_pg", range(2))}))
    (tmp_path / "train.log").write_text("[rank1]: KeyError: 'a'\n")
    with Incident.empty() as incident:
        detect.load([tmp_path], incident)
        assert {kind for (kind,) in rows(incident, "SELECT kind FROM recordings")} == {
            "flight_recorder",
            "log",
        }
        assert rows(
            incident,
            "SELECT count(DISTINCT job) FROM (SELECT job FROM ops UNION SELECT job FROM log_events)",
        ) == [(1,)]


def test_hostile_text_is_read_within_bounds(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    long = b"x" * (10 << 20) + b"KeyError: " + b"y" * (10 << 20)
    path.write_bytes(
        b"[rank1]: KeyError: \xff\xfe\x1b]0;evil\x07\x1b[2J\x00 \xed\xa0\x80\n"
        + long
        + b"\r\r\r\n"
        + TIMEOUT.format(r=99999999999999999999).encode()
        + TIMEOUT.format(r=3).replace("12", "9" * 30).encode()
        + b"[rank2]: ValueError: end\n"
    )
    with Incident.empty() as incident:
        detect.load([path], incident, "job")
        texts = rows(incident, "SELECT text FROM log_events WHERE kind = 'error'")
        assert any("end" in str(text) for (text,) in texts)
        assert all(len(str(text)) <= 600 for (text,) in texts)


def test_words_are_found_across_blocks_and_lines_are_numbered(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    filler = b"an ordinary line of training output\n"
    lines = [
        filler * 150_000,
        b"[rank1]: KeyError: 'a'\n",
        filler * 150_000,
        b"[rank2]: KeyError: 'b'\n",
    ]
    path.write_bytes(b"".join(lines))
    found = [candidate.number for candidate in Log(path, NEEDLES).candidates()]
    assert found == [150_001, 300_002]


@pytest.mark.parametrize("digits", ["9" * 12, "9" * 5000])
@pytest.mark.parametrize(
    "line",
    [
        "[rank{n}]: RuntimeError: boom",
        "process {n} terminated with exit code {n}",
        "RANK {n} PID {n} RUNNING AT gpu1\nEXIT CODE: {n}",
        "failed (exitcode: {n}) local_rank: {n} (pid: {n}) of binary: python",
        "  rank      : {n} (local_rank: {n})\n  exitcode  : {n} (pid: {n})",
        "Out of memory: Killed process {n} (python3)",
        "gpu1:{n}:{n} [{n}] NCCL WARN Duplicate GPU detected : rank {n} and rank {n}",
        "gpu1:7:7 [0] NCCL INFO comm 0x1 rank {n} nranks {n} cudaDev 0 busId 9000 - Init COMPLETE",
        "NCCL WARN NET/IB: Got completion from peer 10.0.0.1<1> with status={n} opcode=0 len=0",
        "iteration {n}/ {n} | elapsed time per iteration (ms): {n}",
        "srun: error: gpu1: task {n}: Exited with exit code {n}",
    ],
)
def test_numbers_of_any_length_are_read_or_passed_over(
    tmp_path: Path, line: str, digits: str
) -> None:
    path = tmp_path / "job.log"
    path.write_text("step 1 | loss 2.1\n" + line.replace("{n}", digits) + "\n")
    headline(path)


def test_a_log_that_begins_with_a_hole_is_a_log(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(b"\0" * 12_000 + b"[rank4]: KeyError: 'tokens'\n" * 3)
    with Incident.empty() as incident:
        detect.load([path], incident, "job")
        assert rows(incident, "SELECT DISTINCT rank FROM log_events") == [(4,)]


def test_files_of_all_processes_are_of_these_ranks(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"process_{number}.log").write_text(f"KeyError: 'of {number}'\n")
    with Incident.empty() as incident:
        detect.load([tmp_path], incident, "job")
        found = rows(incident, "SELECT rank, text FROM log_events ORDER BY rank")
    assert found == [(number, f"'of {number}'") for number in range(3)]


def test_a_number_of_one_process_is_no_rank(tmp_path: Path) -> None:
    (tmp_path / "process_2.log").write_text("KeyError: 'a'\n")
    with Incident.empty() as incident:
        detect.load([tmp_path], incident, "job")
        assert rows(incident, "SELECT rank FROM log_events") == [(None,)]


def test_json_lines_state_time_and_pod(tmp_path: Path) -> None:
    line = (
        '{"message":"[rank3]: KeyError: \\"a\\"","kubernetes":{"pod_name":"w-0"},'
        '"time":"2026-05-14T03:11:10.5Z"}\n'
    )
    (tmp_path / "export.json").write_text(line * 2)
    with Incident.empty() as incident:
        detect.load([tmp_path], incident, "job")
        found = rows(incident, "SELECT DISTINCT rank, node, text, at_ns FROM log_events")
    assert found == [(3, "w-0", '"a"', 1_778_728_270_500_000_000)]


def test_json_of_another_kind_is_no_log(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    path.write_text('{"loss": 1.0, "rank": "KeyError: 1"}\n' * 3)
    with Incident.empty() as incident, pytest.raises(BadInput):
        detect.load([path], incident, "job")


@pytest.mark.parametrize("stamp", ["2026-11-27T12:00:00.5+09:00", "2026-11-26 22:00:00,5-05:00"])
def test_an_offset_from_utc_is_taken_off(stamp: str) -> None:
    assert peeled(1, f"{stamp} INFO step 0 loss 2.1", Clock(0)).at_ns == 1_795_748_400_500_000_000


@pytest.mark.parametrize(
    ("line", "node"),
    [
        ("2026-11-27T10:00:01.5+00:00 node07 kernel: said", "node07"),
        ("2026-11-27T11:00:01.5+0100 node07 slurmstepd[1234]: said", "node07"),
        ("<34>1 2026-11-27T10:00:01.5Z node07 kernel - - - said", "node07"),
        ('<165>1 2026-11-27T10:00:01.5Z node07 app 12 ID47 [a b="c"] said', "node07"),
        ("Fri 2026-11-27 10:00:01.5 UTC node07 systemd[1]: said", "node07"),
        ("11/27/2026 10:00:01.5 - INFO - __main__ - said", None),
        ("[27/11/2026 10:00:01.5] said", None),
        ("27.11.2026 10:00:01,5 said", None),
        ("1795773601.5 said", None),
        ("[1795773601500] said", None),
        ("logs/a.err:12:2026-11-27 10:00:01,5 said", None),
    ],
)
def test_stamps_of_every_form_are_one_moment(line: str, node: str | None) -> None:
    found = peeled(1, line, Clock(0))
    assert (found.text, found.node, found.at_ns) == ("said", node, 1_795_773_601_500_000_000)


def test_a_number_at_the_begin_is_no_moment() -> None:
    assert peeled(1, "1795773601 tokens in all", Clock(0)).at_ns is None


def test_standard_input_is_called_so() -> None:
    with pytest.raises(BadInput, match=r"^standard input: empty"), as_file(io.BytesIO(b"")):
        pass
    with (
        pytest.raises(BadInput, match=r"^standard input: not a recording"),
        as_file(io.BytesIO(b"\1hello")) as place,
        Incident.empty() as incident,
    ):
        detect.load([place], incident)
