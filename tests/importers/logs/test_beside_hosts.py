# ruff: noqa: E501 - lines of logs as programs print them
"""A folder as an engineer fills it: a job's log, and beside it what its hosts' kernels and tools
print. Which finding is the story, which follows from it, and what stands for itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from oncall.core.diagnosis import Diagnosis
from oncall.evidence.incident import Incident
from oncall.importers import detect
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.diagnose import diagnose

XID = "[Wed Mar 11 04:41:18 2026] NVRM: Xid (PCI:0000:9b:00): 79, pid={pid}, name=python, GPU has fallen off the bus.\n"
OTHER = "[Wed Mar 11 03:00:01 2026] systemd[1]: Started Daily apt upgrade.\n"
INIT = (
    "[2026-03-11 02:00:0{r}] gpu00{h}:{pid}:{pid} [{d}] init.cc:88 NCCL INFO ncclCommInitRank comm 0x55e8f{r} "
    "rank {r} nranks 4 cudaDev {d} nvmlDev {d} busId {bus} commId 0x71d0be44c19e2f05 - Init COMPLETE\n"
)
START = "".join(
    INIT.format(r=r, h=1 + r // 2, pid=4000 + r, d=r % 2, bus=("18000", "9b000")[r % 2])
    for r in range(4)
)
OOM = (
    "[rank3]: Traceback (most recent call last):\n"
    '[rank3]:   File "train.py", line 88, in <module>\n'
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 14.06 GiB. GPU 1 has a total capacity of 79.25 GiB\n"
)
CUDA = "[2026-03-11 04:41:20,100] [rank{r}]: RuntimeError: CUDA error: unspecified launch failure\n"
TIMEOUT = (
    "[rank{r}]:[E311 04:5{m}:00.000004411 ProcessGroupNCCL.cpp:685] [Rank {r}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600011 milliseconds before timing out.\n"
)


def diagnosed(folder: Path, files: Mapping[str, str]) -> Diagnosis:
    for name, text in files.items():
        path = folder / "case" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with Incident.empty() as incident:
        detect.load([folder / "case"], incident)
        return diagnose(incident, load_rulebooks([shipped_folder()]))


def roots(found: Diagnosis) -> dict[str, list[str]]:
    """Findings that no other explains, and the consequences of each."""
    return {
        one.verdict: [each.verdict for each in found.findings if each.explained_by == one.id]
        for one in found.faults
        if one.explained_by is None
    }


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (OOM, {"GPU_XID": [], "OOM_GPU": []}),
        (CUDA.format(r=3), {"GPU_XID": [], "GPU_ERROR": []}),
        (CUDA.format(r=1), {"GPU_XID": ["GPU_ERROR"]}),
        (CUDA.format(r=1).replace("04:41:20", "03:30:00"), {"GPU_XID": [], "GPU_ERROR": []}),
        ("".join(TIMEOUT.format(r=r, m=1) for r in range(3)), {"GPU_XID": ["NOT_JOINED"]}),
        ("".join(TIMEOUT.format(r=r, m=1) for r in range(4)), {"GPU_XID": ["ALL_WAITING"]}),
    ],
    ids=["memory", "another host", "its own host", "before it", "its rank waited", "all wait"],
)
def test_a_hosts_fault_explains_its_own_failures_and_who_waits(
    tmp_path: Path, log: str, expected: dict[str, list[str]]
) -> None:
    files = {"job.log": START + log, "gpu001.dmesg.txt": OTHER + XID.format(pid=4001)}
    assert roots(diagnosed(tmp_path, files)) == expected


def test_a_later_failure_is_reported_by_itself(tmp_path: Path) -> None:
    """The first log's ranks fail within a minute; the second is of another start, or another job."""
    second = (
        (OOM + CUDA.format(r=3))
        .replace("04:41:20", "09:00:00")
        .replace("[rank3]:", "[2026-03-11 09:00:00] [rank3]:")
    )
    files = {
        "a.log": CUDA.format(r=1),
        "b.log": CUDA.format(r=0).replace("04:41:20", "04:42:10"),
        "c.log": second,
    }
    found = diagnosed(tmp_path, files).faults
    said = {one.case["attempt"]: (one.verdict, one.explained_by) for one in found}
    assert said == {1: ("GPU_ERROR", None), 2: ("OOM_GPU", None)}


def test_a_fault_of_an_unknown_host_is_reported_without_a_rank(tmp_path: Path) -> None:
    """Both hosts have a GPU at that address, and processes of other numbers."""
    found = diagnosed(tmp_path, {"job.log": START, "dmesg.txt": OTHER + XID.format(pid=77)})
    assert [
        (one.verdict, [each.where.get("rank") for each in one.blame]) for one in found.faults
    ] == [("GPU_XID", [None])]


def test_the_process_of_an_xid_is_its_rank(tmp_path: Path) -> None:
    """The address of the GPU is in nobody's log; who process 3002 is, the stacks say."""
    stack = (
        'Process 3002: python train.py\nPython v3.12.3 (/usr/bin/python3.12)\n\nThread 3002 (active): "MainThread"\n'
        "    forward (model.py:10)\n    <module> (train.py:3)\n"
    )
    files = {
        "gpu001_rank2_pid3002.txt": stack,
        "gpu001.dmesg.txt": OTHER + XID.format(pid=3002),
    }
    found = diagnosed(tmp_path, files).faults[0]
    assert (found.verdict, [one.where.get("rank") for one in found.blame]) == ("GPU_XID", [2])


INDEX = (
    "[rank2]: Traceback (most recent call last):\n"
    '[rank2]:   File "/srv/t.py", line 7, in f\n'
    "[rank2]: IndexError: list index out of range\n"
)
CUDA_2 = "[rank2]: RuntimeError: CUDA error: unspecified launch failure\n"


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (INDEX, {"FIRST_ERROR": [], "GPU_XID": []}),
        (CUDA_2, {"GPU_XID": ["GPU_ERROR"]}),
        (CUDA_2 + "[rank2]: 2026-03-11 04:20:00,200 INFO exiting\n", {"GPU_ERROR": [], "GPU_XID": []}),
        ("2026-03-11 04:20:00,200 INFO step 7\n" + CUDA_2, {"GPU_XID": ["GPU_ERROR"]}),
    ],
    ids=["no GPU does that", "a GPU does", "before the fault, by the next stamp", "perhaps after it"],
)  # fmt: skip
def test_a_fault_explains_an_error_of_its_kind_that_may_be_later(
    tmp_path: Path, log: str, expected: dict[str, list[str]]
) -> None:
    """Its host is not known to be another. What it does not explain of the job comes first."""
    files = {"job.log": log, "gpu099.dmesg.txt": OTHER + XID.format(pid=9001)}
    found = roots(diagnosed(tmp_path, files))
    assert list(found.items()) == list(expected.items())


def test_an_error_that_others_waited_for_is_no_later_than_their_wait(tmp_path: Path) -> None:
    """They timed out at 04:51 after ten minutes; the GPU fell off the bus at 04:40, or at 04:49."""
    log = "".join(TIMEOUT.format(r=r, m=1) for r in (0, 1, 3))
    log += "[rank2]: RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED (GPU)\n"
    xid = OTHER + XID.format(pid=9001)
    early = {"job.log": log, "gpu099.dmesg.txt": xid.replace("04:41:18", "04:40:00")}
    late = {"job.log": log, "gpu099.dmesg.txt": xid.replace("04:41:18", "04:49:00")}
    assert roots(diagnosed(tmp_path / "a", early)) == {"GPU_XID": ["FIRST_ERROR"]}
    assert list(roots(diagnosed(tmp_path / "b", late))) == ["FIRST_ERROR", "GPU_XID"]


def test_a_link_that_came_up_again_did_so_on_an_unknown_host_too(tmp_path: Path) -> None:
    down = "[Wed Mar 11 03:09:10 2026] mlx5_core 0000:41:00.0 ens1f0np0: Link down\n"
    files = {"dmesg.txt": down + down.replace("03:09:10", "03:09:40").replace("down", "up")}
    assert list(roots(diagnosed(tmp_path, files))) == ["LINK_FLAPPED"]
