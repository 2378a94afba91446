"""Record real PyTorch jobs with known faults: a folder a case, with `truth.json`.

    python record.py OUT [--set first|blind|more | --seed N --count N [--wide]] [--only WORD ...]
        [--python TORCH_PYTHON]

TORCH_PYTHON is a Python with torch (no GPU needed) and py-spy, apart from the project's own. Each
case holds what a user would: `fr` (Flight Recorder dumps), `logs` (torchrun's, of each rank),
`stacks` (py-spy of each process), `profile` (torch.profiler, slow and healthy jobs only).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from cases import SETS, Case, drawn

HERE = Path(__file__).parent


def record(case: Case, out: Path, python: Path) -> None:
    """Run the job of one case and keep what it left; nothing if it ended before its fault began."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    job = start(case, out, python)
    burners: list[subprocess.Popen[bytes]] = []
    try:
        wait_for(out / "struck0", job, case.patience_s)
        began = (out / "struck0").exists()
        burners = strike(case, out, python)
        ended = wait_for_end(job, case.after_s)
        (out / "dump").touch()
        if not ended:
            wait_for_dumps(case, out)
            take_stacks(case, out, python)
    finally:
        for one in burners:
            one.kill()
        stop(job, out)
    if began:
        keep(case, out)
    else:
        shutil.rmtree(out)


def start(case: Case, out: Path, python: Path) -> subprocess.Popen[bytes]:
    torchrun = [str(python), "-m", "torch.distributed.run", "--standalone"]
    torchrun += [
        "--nproc_per_node",
        str(case.world),
        "--log-dir",
        str(out / "torchrun"),
        "--tee",
        "3",
    ]
    with (out / "torchrun.log").open("wb") as log:
        return subprocess.Popen(
            [*torchrun, *program(case, out)],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **settings(case)},
            start_new_session=True,
        )


def program(case: Case, out: Path) -> list[str]:
    """What every rank runs, without the Python before it."""
    job = [str(HERE / "job.py"), "--out", str(out), "--program", case.program]
    job += ["--fault", case.fault, "--habit", case.habit, "--step", str(case.step)]
    job += ["--compute", str(case.compute_s), "--timeout", str(case.timeout_s)]
    job += ["--profile", str(case.profile), "--seed", str(case.seed)]
    return [*job, "--ranks", *map(str, case.ranks)]


def settings(case: Case) -> dict[str, str]:
    """The environment that a rank runs in, beside the recorder's own."""
    return {
        "OMP_NUM_THREADS": "1",
        "TORCH_FR_BUFFER_SIZE": str(case.buffer),
        "TORCH_NCCL_TRACE_BUFFER_SIZE": str(case.buffer),
        **({"TORCH_DISTRIBUTED_DEBUG": "DETAIL"} if case.detail else {}),
    }


def wait_for(mark: Path, job: subprocess.Popen[bytes], patience_s: float) -> None:
    end = time.monotonic() + patience_s
    while not mark.exists() and job.poll() is None and time.monotonic() < end:
        time.sleep(0.05)


def wait_for_end(job: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether the job ended by itself within that time."""
    try:
        job.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def wait_for_dumps(case: Case, out: Path) -> None:
    """Until every rank that can write its dump has: the first one loads modules for a while."""
    gone = len(case.ranks) if case.fault in ("stopped", "killed") else 0
    end = time.monotonic() + 90
    while len([*out.glob("fr/*")]) < case.world - gone and time.monotonic() < end:
        time.sleep(0.05)


def process_ids(case: Case, out: Path) -> dict[int, int]:
    files = {rank: out / f"pid{rank}" for rank in range(case.world)}
    return {rank: int(file.read_text()) for rank, file in files.items() if file.exists()}


def strike(case: Case, out: Path, python: Path) -> list[subprocess.Popen[bytes]]:
    """Do to the culprits what comes from outside; returns what is to be ended later."""
    ids = process_ids(case, out)
    burners = []
    for rank in case.ranks:
        wait = time.monotonic() + 10
        while not (out / f"struck{rank}").exists() and time.monotonic() < wait:
            time.sleep(0.02)
        if case.fault == "stopped":
            os.kill(ids[rank], signal.SIGSTOP)
        if case.fault == "killed":
            os.kill(ids[rank], signal.SIGKILL)
        if case.fault == "starved":
            os.sched_setaffinity(ids[rank], {0})
            for _ in range(3):
                burner = subprocess.Popen([str(python), "-c", "while True: pass"])
                os.sched_setaffinity(burner.pid, {0})
                burners.append(burner)
    return burners


def take_stacks(case: Case, out: Path, python: Path) -> None:
    (out / "stacks").mkdir()
    for rank, process in process_ids(case, out).items():
        if rank in case.ranks and case.fault == "stopped":
            continue  # py-spy waits for a stopped process to stop
        said = subprocess.run(
            [str(python.parent / "py-spy"), "dump", "--nonblocking", "--pid", str(process)],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        if said.returncode == 0:
            (out / "stacks" / f"rank{rank}.txt").write_text(said.stdout)


def stop(job: subprocess.Popen[bytes], out: Path) -> None:
    """End the job and what it left, by the ids that it wrote."""
    for file in out.glob("pid*"):
        try:
            os.kill(int(file.read_text()), signal.SIGKILL)
        except ProcessLookupError:
            continue
    if job.poll() is None:
        job.kill()
    job.wait()


def keep(case: Case, out: Path) -> None:
    """Logs of a job that was still there end when it was looked at: not with how it was ended."""
    (out / "logs").mkdir()
    cut = (out / "dump").stat().st_mtime if (out / "stacks").exists() else None
    shutil.move(out / "torchrun.log", out / "logs" / "train.log")
    if cut is not None:
        drop_ends(out / "logs" / "train.log", cut)
    shutil.rmtree(out / "torchrun", ignore_errors=True)
    for file in [*out.glob("pid*"), *out.glob("struck*"), *out.glob(".part*"), out / "dump"]:
        file.unlink(missing_ok=True)
    (out / "truth.json").write_text(json.dumps(case.truth, indent=1) + "\n")


STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})")


def seconds_of(stamp: str) -> float:
    when = datetime.datetime.strptime(f"{stamp}+0000", "%Y-%m-%d %H:%M:%S,%f%z")
    return when.timestamp()


def drop_ends(log: Path, cut: float) -> None:
    """Without the lines that torchrun writes when the recorder ends the job, and those from when
    it began to look: a dump's symbols hold up the job for seconds."""
    ends = (
        "Sending process",
        "failed (exitcode",
        "Received",
        "FAILED",
        "-----",
        "=====",
        "Failures",
    )
    lines = log.read_text(errors="replace").splitlines()
    for at, line in enumerate(lines):
        stamp = STAMP.search(line)
        late = stamp is not None and seconds_of(stamp[1]) > cut
        ended = "torch/distributed/elastic" in line and any(word in line for word in ends[:3])
        if late or ended:
            lines = lines[:at]
            break
    log.write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--set", default="first", choices=sorted(SETS))
    parser.add_argument("--seed", type=int, help="draw a set of jobs from this seed instead")
    parser.add_argument("--count", type=int, default=40, help="how many jobs are drawn")
    parser.add_argument("--wide", action="store_true", help="of more kinds of faults and programs")
    parser.add_argument(
        "--part", default="0/1", help="such as 1/2: every second case from the second"
    )
    parser.add_argument(
        "--profiled", type=int, help="only jobs of up to so many ranks that leave a profile"
    )
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    chosen = parser.parse_args()
    part, parts = map(int, chosen.part.split("/"))
    by_name = SETS[chosen.set]
    if chosen.seed is not None:
        by_name = partial(drawn, chosen.seed, chosen.count, chosen.wide)
    cases = list(by_name())
    if chosen.profiled is not None:
        cases = [one for one in cases if one.profile and one.world <= chosen.profiled]
    for case in cases[part::parts]:
        place = chosen.out / case.name
        if (place / "truth.json").exists() or not all(word in case.name for word in chosen.only):
            continue
        began = time.monotonic()
        record(case, place, chosen.python.absolute())
        print(f"{case.name}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
