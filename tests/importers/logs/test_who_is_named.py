# ruff: noqa: E501 - lines of logs as programs print them
"""Whom logs blame, where several hosts, ranks, starts or sides could be meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oncall.analysis.faults.log_causes import log_causes
from oncall.analysis.faults.network_setup import network_setup
from oncall.evidence.incident import Incident
from oncall.evidence.relations import Relation
from oncall.importers.logs import importer

FAILED = "E0614 08:30:35.000000 77 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 3 (pid: 93) of binary: /usr/bin/python3\n"
RESTART = (
    "I0614 08:30:36.000000 77 torch/distributed/elastic/agent/server/api.py:889] [default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"
    "I0614 08:30:36.100000 77 torch/distributed/elastic/agent/server/api.py:699] [default] Restarting worker group\n"
)
STEPS = "".join(
    f"[rank0]:[titan] 2025-06-14 08:4{n}:00,105 - root - INFO - step: {n}  loss:  4.2  tps: 8,192\n"
    for n in range(4)
)
USING = "{host}:90:90 [0] NCCL INFO Bootstrap : Using {nic}:{address}<0>\n"
CONNECT = "{host}:90:95 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to {address}<45120> failed : Connection timed out\n"
TIMED_OUT = "[E socket.cpp:957] [c10d] The client socket has timed out after 300s while trying to connect to ({peer}, 23456).\n"
WAITED = (
    "Rendezvous joined; waiting for 4 nodes.\ntorch.distributed.DistStoreError: Socket Timeout\n"
)
VERSION = "{host}:90:90 [0] NCCL INFO NCCL version {version}+cuda12.4\n"
DIFFER = "{host}:90:95 [0] init.cc:862 NCCL WARN Mismatched NCCL version detected : rank {one} version {its} rank {other} version {theirs}\n"
PEER_GONE = "[rank{rank}]: torch.distributed.DistBackendError: NCCL error: remote process exited\n"
SIGNALLED = "W0429 06:22:41.000000 61 torch/distributed/elastic/agent/server/api.py:719] Received Signals.SIGTERM death signal, shutting down workers\n"
HOST = "  host      : {host}\n  rank      : {rank} (local_rank: 0)\n  exitcode  : -6 (pid: 71)\n"
BARRIER = (
    "F1019 04:42:00.000950   18901 client.h:77] Terminating process because the JAX distributed service detected fatal errors. absl::Status: DEADLINE_EXCEEDED: Barrier timed out. Id: save\n"
    "# of tasks that reached the barrier: 5/7.\n"
    "The first task at the barrier: /job:jax_worker/replica:0/task:1. Some timed out task names:\n"
    "/job:jax_worker/replica:0/task:3\n/job:jax_worker/replica:0/task:6\n"
)
BEATS = "E1019 04:42:00.000902   18901 x.cc:1] UNAVAILABLE: Task /job:jax_worker/replica:0/task:2 heartbeat timeout.\n"
REGISTER = (
    "I1102 20:00:00.000004  4101 distributed.py:132] Connecting to JAX distributed service on tpu-0.tpu:8476\n"
    "jaxlib._jax.XlaRuntimeError: DEADLINE_EXCEEDED: Deadline Exceeded\n"
    "RPC: /tensorflow.CoordinationService/RegisterTask\n"
)
NO_ROOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 640.00 MiB. GPU 5 has a total capacity of 79.10 GiB\n"
GLOO_TIMED_OUT = "".join(
    f"[rank{rank}]: RuntimeError: {what}\n"
    for rank, what in (
        (
            0,
            "[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation to complete",
        ),
        (3, "Application timeout caused pair closure"),
        (
            1,
            "[gloo/transport/tcp/unbound_buffer.cc:129] Timed out waiting 8000ms for send operation to complete",
        ),
    )
)
LOST = "[rank{rank}]: RuntimeError: [gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:12722.\n"
LEFT = "W0614 08:30:34.000000 77 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 91 closing signal SIGTERM\n"
SUMMARY = """============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 91)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  host      : localhost
  rank      : 3 (local_rank: 3)
  exitcode  : 1 (pid: 93)
============================================================
"""
SCHEDULER = '[2025-10-05 07:02:58{who}] Scheduler hit an exception: Traceback (most recent call last):\n  File "run.py", line 3, in capture\n'
WORKER = "(VllmWorker TP2 pid=812) ERROR 10-05 07:02:58 [run.py:3] " + NO_ROOM
DESCRIBED = "Name:             rl-trainer-5\nNode:             pool-7/10.0.0.7\n    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n"
LISTED = "NAME           READY   STATUS      RESTARTS   AGE\nrl-trainer-4   1/1     Running     0          9m\nrl-trainer-6   0/1     OOMKilled   1          9m\n"
PENDING = "2m   Warning   FailedScheduling   pod/sft-worker-6   0/9 nodes are available: 8 Insufficient nvidia.com/gpu.\n"
PORT = "[rank8]: gpu-b:90:95 [0] NCCL WARN NET/IB : mlx5_0:1 Got async event : port error\n"
SESSION = (
    "============ test session starts ============\n"
    + NO_ROOM
    + "============ 41 passed, 2 skipped in 131.22s (0:02:11) ============\n"
)
SERVED = "[2025-11-11 11:00:00 TP0] Decode batch. #running-req: 45, gen throughput (token/s): 1646.87, #queue-req: 0, \n"
BROKE = "[2025-11-11 11:02:42 TP0] ValueError: Request is disconnected from the client side\n"
REQUEUED = "slurmstepd: error: *** JOB 7781 ON g08 CANCELLED AT 2024-10-17T18:31:10 DUE TO JOB REQUEUE ***\n"
KEY = "[rank3]: KeyError: 'tokens'\n"
REFUSED = "[rank4]: socketPollConnect: connect to 10.0.0.18<51234> returned Connection refused, exceeded error retry count (35)\n"
TIMEOUT = (
    "[rank{r}]:[E614 08:50:00.000004411 ProcessGroupNCCL.cpp:685] [Rank {r}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600011 milliseconds before timing out.\n"
)


def computed(relation: Relation, incident: Incident, **params: float) -> dict[str, Any]:
    assert relation.compute is not None
    return dict(relation.compute(incident.con, **params))


def causes(folder: Path, files: dict[str, str]) -> list[dict[str, Any]]:
    for name, text in files.items():
        (folder / name).write_text(text)
    with Incident.empty() as incident:
        importer.read(sorted(folder.iterdir()), incident, "job")
        found = computed(log_causes, incident, few=0.25)
        return [
            dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)
        ]


@pytest.mark.parametrize(
    ("files", "cause", "named"),
    [
        pytest.param(
            {
                "a.log": USING.format(host="d1", nic="eth0", address="10.0.0.1")
                + CONNECT.format(host="d1", address="169.254.1.2"),
                "b.log": USING.format(host="d3", nic="idrac", address="169.254.1.2"),
            },
            "wrong_interface",
            ["d3"],
            id="the host that chose an address of its own link",
        ),
        pytest.param(
            {"a.log": CONNECT.format(host="d1", address="169.254.1.2")},
            "wrong_interface",
            ["d1"],
            id="the host that cannot connect, where nobody says who chose the address",
        ),
        pytest.param(
            {
                "llm-worker-1.log": WAITED,
                "llm-worker-3.log": TIMED_OUT.format(peer="llm-master-0"),
            },
            "init_hang",
            ["llm-worker-3"],
            id="the one pod that cannot reach the master, by its whole name",
        ),
        pytest.param(
            {f"worker-{n}.log": TIMED_OUT.format(peer="master-0") for n in range(3)},
            "init_hang",
            ["master-0"],
            id="the master that several cannot reach",
        ),
        pytest.param(
            {f"worker{n}.txt": REGISTER for n in (1, 2, 3)},
            "init_hang",
            ["tpu-0.tpu"],
            id="the coordinator that several cannot reach",
        ),
        pytest.param({"a.log": PENDING}, "init_hang", [None], id="a pod without a node is no node"),
        pytest.param({"job.log": BARRIER}, "not_joined", [3, 6], id="tasks that a barrier lacks"),
        pytest.param(
            {"job.log": GLOO_TIMED_OUT},
            "not_joined",
            [2],
            id="the rank without a timeout, where another's closes the pair that one waits for",
        ),
        pytest.param({"job.log": BEATS}, "not_joined", [2], id="the task whose heartbeats ended"),
        pytest.param(
            {
                "a.log": "".join(
                    VERSION.format(host=host, version=version)
                    for host, version in (("g1", "2.21.5"), ("g2", "2.21.5"), ("g3", "2.20.5"))
                )
                + DIFFER.format(host="g1", one=16, its=22005, other=0, theirs=22105)
            },
            "version",
            ["g3"],
            id="the host whose version is another",
        ),
        pytest.param(
            {
                "a.log": "".join(
                    DIFFER.format(host="g1", one=16, its=22005, other=rank, theirs=22105)
                    for rank in range(3)
                )
            },
            "version",
            [16],
            id="the rank whose version is another",
        ),
        pytest.param(
            {
                "a3-spot-0.log": PEER_GONE.format(rank=0) + HOST.format(host="a3-spot-0", rank=0),
                "a3-spot-2.log": SIGNALLED,
            },
            "terminated",
            ["a3-spot-2"],
            id="the host that alone was signalled, by the name of its file",
        ),
        pytest.param(
            {"node0.log": SIGNALLED, "node1.log": SIGNALLED + PEER_GONE.format(rank=8)},
            "terminated",
            [None],
            id="nobody where every host was signalled",
        ),
        pytest.param(
            {"a.log": SCHEDULER.format(who=" TP5") + NO_ROOM},
            "oom_gpu",
            [5],
            id="the tensor rank before a traceback",
        ),
        pytest.param(
            {"a.log": SCHEDULER.format(who=" PP1 TP5") + NO_ROOM},
            "oom_gpu",
            [None],
            id="no rank where stages have tensor ranks of their own",
        ),
        pytest.param({"a.log": WORKER}, "oom_gpu", [2], id="vLLM's worker"),
        pytest.param({"kubectl.txt": DESCRIBED}, "oom_host", ["pool-7"], id="the node of a pod"),
        pytest.param({"pods.txt": LISTED}, "oom_host", [None], id="a pod listed without its node"),
        pytest.param({"a.log": STEPS + REFUSED + KEY}, "error", [3], id="it trained: a peer died"),
        pytest.param(
            {"a.log": STEPS + REFUSED}, "error", [None], id="it trained: who died is not logged"
        ),
        pytest.param({"a.log": REFUSED}, "init_hang", [None], id="it did not train"),
        pytest.param({"a.log": REFUSED + KEY}, "error", [3], id="another rank's own error"),
        pytest.param({"a.log": PORT}, "link_down", ["gpu-b"], id="a link is its host's"),
    ],
)
def test_who_is_named(tmp_path: Path, files: dict[str, str], cause: str, named: list[Any]) -> None:
    found = causes(tmp_path, files)
    assert {row["cause"] for row in found} == {cause}
    assert [row["node"] if row["rank"] is None else row["rank"] for row in found] == named


@pytest.mark.parametrize(
    ("text", "outlived"),
    [
        pytest.param(KEY + FAILED + RESTART + STEPS, [True], id="restarted, and trained on"),
        pytest.param(KEY + FAILED + RESTART, [False], id="restarted, and nothing since"),
        pytest.param(
            KEY + FAILED + RESTART + STEPS + KEY.replace("3", "2"),
            [True, False],
            id="each start has its own failure",
        ),
        pytest.param(KEY + REQUEUED + STEPS, [True], id="requeued"),
        pytest.param(
            KEY + STEPS[:0] + "Requeued SLURM job: 7781\n" + STEPS, [True], id="Lightning"
        ),
    ],
)
def test_what_an_earlier_start_failed_of_is_kept_apart(
    tmp_path: Path, text: str, outlived: list[bool]
) -> None:
    assert [row["outlived"] for row in causes(tmp_path, {"job.log": text})] == outlived


@pytest.mark.parametrize(
    ("error", "said"),
    [
        pytest.param("KeyError: 'tokens'\n", "KeyError: 'tokens'", id="of no rank"),
        pytest.param("[rank1]: KeyError: 'tokens'\n", None, id="of a rank that waited"),
        pytest.param("RuntimeError: NCCL communicator was aborted\n", None, id="a consequence"),
    ],
)
def test_the_error_that_names_no_rank_is_said_of_the_absent_one(
    tmp_path: Path, error: str, said: str | None
) -> None:
    text = "".join(TIMEOUT.format(r=r) for r in (0, 1, 3)) + error
    found = causes(tmp_path, {"job.log": text})
    assert [(row["cause"], row["rank"], row["text"]) for row in found] == [("not_joined", 2, said)]


@pytest.mark.parametrize(
    ("text", "reason", "said"),
    [
        pytest.param(LISTED, "pod", "OOMKilled, a container of pod rl-trainer-6", id="a pod"),
        pytest.param(
            "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n",
            "ray",
            "Task was killed due to the node running low on memory.",
            id="Ray's monitor, not the kernel",
        ),
        pytest.param(
            "1m Warning UnexpectedAdmissionError pod/w-4 Requested: 8, Available: 7\n",
            "unscheduled",
            "pod w-4 was not admitted by its node: Requested: 8, Available: 7",
            id="what a pod lacks",
        ),
    ],
)
def test_what_a_scheduler_ended_or_did_not_place(
    tmp_path: Path, text: str, reason: str, said: str
) -> None:
    (found,) = causes(tmp_path, {"job.log": text})
    assert (found["reason"], found["text"].endswith(said)) == (reason, True)


def test_a_restart_that_two_lines_state_is_one(tmp_path: Path) -> None:
    found = causes(tmp_path, {"job.log": KEY + FAILED + RESTART + STEPS + KEY})
    assert [row["attempt"] for row in found] == [1, 2]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        pytest.param(SESSION, [], id="tests that pass provoke what they print"),
        pytest.param(SESSION.replace("2 skipped", "1 failed"), ["oom_gpu"], id="tests that fail"),
        pytest.param(SESSION + KEY, ["error"], id="what follows the tests counts"),
        pytest.param(BROKE + 3 * SERVED, [], id="a server that answers on outlived the error"),
        pytest.param(6_000 * SERVED + BROKE + 4 * SERVED, [], id="after thousands of answers, too"),
        pytest.param(6_000 * SERVED + BROKE, ["error"], id="a server that answers no more"),
    ],
)
def test_what_is_no_fault(tmp_path: Path, text: str, left: list[str]) -> None:
    assert [row["cause"] for row in causes(tmp_path, {"job.log": text})] == left


def test_a_gpu_lacks_gpu_direct_only_if_every_adapter_of_its_host_does(tmp_path: Path) -> None:
    line = "{host}:90:95 [0] NCCL INFO GPU Direct RDMA {how} for GPU {gpu} / HCA {hca} (distance 7 > 4)\n"
    text = "".join(
        line.format(host=host, how=how, gpu=gpu, hca=hca)
        for host, gpu, hca, how in (
            *(("n13", 0, 0, "Enabled"), ("n13", 0, 1, "Disabled"), ("n13", 1, 1, "Enabled")),
            *(("n14", 0, 0, "Disabled"), ("n14", 0, 1, "Disabled"), ("n14", 1, 1, "Enabled")),
        )
    )
    (tmp_path / "job.log").write_text(text)
    with Incident.empty() as incident:
        importer.read([tmp_path / "job.log"], incident, "job")
        found = computed(network_setup, incident, on_one_node=8)
    assert list(zip(found["problem"], found["node"], strict=True)) == [("gdr_off", "n14")]


@pytest.mark.parametrize(("lost", "blamed"), [((0, 3), None), ((0,), 3)])
def test_who_lost_another_did_not_end_first(
    tmp_path: Path, lost: tuple[int, ...], blamed: int | None
) -> None:
    said = "".join(LOST.format(rank=rank) for rank in lost)
    found = causes(tmp_path, {"job.log": said + LEFT + FAILED + SUMMARY})
    assert {row["rank"] for row in found if row["cause"] == "error"} == {blamed}


XIDS = {
    "own": "NVRM: Xid (PCI:0000:9d:00): 119, pid=5, name=python3, Timeout after 6s of waiting for RPC response from GPU3 GSP!",
    "fatal": "NVRM: Xid (PCI:0000:5e:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 07 (0x004425c6 0x00000000)",
    "not": "NVRM: Xid (PCI:0000:3a:00): 145, RLW_REMAP Nonfatal XC1 i0 Link 02 (0x00000004 0x00000001)",
    "after": "NVRM: Xid (PCI:0000:5e:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",
    "program": "NVRM: Xid (PCI:0000:3a:00): 45, pid=9, name=python3, Ch 00000003",
    "switch": "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
}


@pytest.mark.parametrize(
    ("lines", "gpu"),
    [
        (["not", "fatal", "after", "program"], "0000:5e:00.0"),
        (["switch", "not", "fatal"], "0000:5e:00.0"),
        (["fatal", "own"], "0000:9d:00.0"),
        (["program", "not"], "0000:3a:00.0"),
        (["after", "not"], "0000:5e:00.0"),
    ],
)
def test_of_several_xids_the_gravest_is_named(tmp_path: Path, lines: list[str], gpu: str) -> None:
    """In either order of their lines."""
    for text in (lines, lines[::-1]):
        (tmp_path / "job.log").write_text("training\n" + "".join(f"{XIDS[one]}\n" for one in text))
        with Incident.empty() as incident:
            importer.read([tmp_path / "job.log"], incident, "job")
            incident.require(["log_causes"])
            found = incident.con.execute("SELECT cause, gpu FROM log_causes").fetchall()
        assert found == [("xid", gpu)]


def _only_cause(path: Path, text: str) -> tuple[Any, ...]:
    path.write_text(text)
    with Incident.empty() as incident:
        importer.read([path], incident, "job")
        incident.require(["log_causes"])
        (found,) = incident.con.execute("SELECT rank, node, text FROM log_causes").fetchall()
    return tuple(found)


def test_a_launcher_says_on_which_host_a_rank_ran(tmp_path: Path) -> None:
    """An agent, which knows its processes, before srun, whose tasks are agents."""
    agent = "  host      : gpu-07\n  rank      : 5 (local_rank: 5)\n  exitcode  : 1 (pid: 82)\n"
    srun = "srun: error: gpu-09: task 5: Exited with exit code 1\n"
    error = "[rank5]: KeyError: 'ids'\n"
    path = tmp_path / "job.log"
    assert _only_cause(path, error + agent + srun)[:2] == (5, "gpu-07")
    assert _only_cause(path, error + srun)[:2] == (5, "gpu-09")


def test_an_error_is_stated_with_what_it_led_to(tmp_path: Path) -> None:
    """Under `srun -l`, too, whose prefix stands before blank lines and frames."""
    text = """24: RuntimeError: PytorchStreamWriter failed writing file data/41: file write failed
24:
24: During handling of the above exception, another exception occurred:
24:
24: Traceback (most recent call last):
24:   File "/opt/save.py", line 301, in write
24:     os.fsync(stream.fileno())
24: OSError: [Errno 28] No space left on device
 3: RuntimeError: another one
"""
    _, _, said = _only_cause(tmp_path / "job.log", text)
    assert said == (
        "PytorchStreamWriter failed writing file data/41: file write failed; then OSError: "
        "[Errno 28] No space left on device (save.py:301)"
    )


def test_a_file_of_a_host_does_not_place_the_rank_that_a_line_names(tmp_path: Path) -> None:
    """Nor does an address in it make every number in a file's name a host."""
    (of_beats,) = causes(
        tmp_path, {"worker-0.log": BEATS + "E1019 04:42:01.000902 1 x.cc:1] out\n"}
    )
    assert (of_beats["rank"], of_beats["node"]) == (2, None)
    gone = "{} NCCL WARN NET/IB : Got completion from peer 10.1.2.3<4> with status=12 opcode=0\n"
    lines = gone.format("gpu7:1:2 [0]") + "Last error:\n" + gone.format("")
    (tmp_path / "worker-0.log").unlink()
    (of_peer,) = causes(tmp_path, {"118833.log": lines})
    assert of_peer["node"] == "gpu7"
