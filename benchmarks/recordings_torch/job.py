"""One rank of a small real training job (gloo on CPUs, or NCCL), healthy or with a fault.

    torchrun --nproc_per_node 4 job.py --out DIR --program ddp --fault loader --ranks 2

It trains until the recorder ends it. While it runs, the file `DIR/dump` makes every rank that
still can write its Flight Recorder, as the watchdog's thread does on GPUs; an exception makes the
rank write it before it ends. What happens in a fault is in `trouble.py`, the programs are in
`programs.py`.
"""

from __future__ import annotations

import argparse
import datetime
import os
import threading
import time
from pathlib import Path

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist
from programs import PROGRAMS
from trouble import Trouble


def write_dump(out: Path, rank: int) -> None:
    """Write this rank's Flight Recorder, as a whole or not at all."""
    place = out / "fr" / f"comm_lib_trace_rank_{rank}"
    place.parent.mkdir(parents=True, exist_ok=True)
    part = out / f".part{rank}"
    # NCCL's recorder is another one: the first has the events of gloo's operations alone.
    dump = c10d._dump_nccl_trace if dist.get_backend() == "nccl" else c10d._dump_fr_trace
    part.write_bytes(dump(includeCollectives=True, includeStackTraces=True, onlyActive=False))
    part.replace(place)


def dump_when_asked(out: Path, rank: int) -> None:
    """Wait for the recorder's request, on a thread of its own."""
    while not (out / "dump").exists():
        time.sleep(0.02)
    write_dump(out, rank)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--program", choices=sorted(PROGRAMS), required=True)
    parser.add_argument("--fault", default="none")
    parser.add_argument("--habit", default="none", help="what a healthy job does beside training")
    parser.add_argument("--ranks", type=int, nargs="*", default=[], help="the culprits")
    parser.add_argument("--step", type=int, default=30, help="the step that the fault begins in")
    parser.add_argument("--compute", type=float, default=0.05, help="seconds a step computes")
    parser.add_argument("--timeout", type=float, default=600, help="of collectives, seconds")
    parser.add_argument("--profile", type=int, default=0, help="first of ten profiled steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", choices=("gloo", "nccl"), default="gloo")
    return parser.parse_args()


def main() -> None:
    chosen = options()
    torch.set_num_threads(1)
    torch.manual_seed(chosen.seed)
    if chosen.backend == "nccl":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.set_default_device(f"cuda:{torch.cuda.current_device()}")
    patience = datetime.timedelta(seconds=chosen.timeout)
    dist.init_process_group(chosen.backend, timeout=patience)
    rank = dist.get_rank()
    (chosen.out / f"pid{rank}").write_text(str(os.getpid()))
    threading.Thread(target=dump_when_asked, args=(chosen.out, rank), daemon=True).start()
    trouble = Trouble(chosen, rank)
    try:
        train(chosen, rank, trouble)
    except BaseException:
        write_dump(chosen.out, rank)
        raise


def train(chosen: argparse.Namespace, rank: int, trouble: Trouble) -> None:
    """Steps, with a line from rank 0 for every fifth, as people's loops write them."""
    program = PROGRAMS[chosen.program](trouble)
    began = time.time()
    for step in range(10**6):
        trouble.load_batch(step)
        profiler = profiled(chosen, step)
        loss = program.step(step)
        if step % 5 == 4:
            mean = loss.detach().clone().reshape(1)
            trouble.all_reduce_metrics(step, mean)
            if rank == 0:
                took = (time.time() - began) / 5
                loss_text = f"loss {mean.item() / dist.get_world_size():.4f}"
                print(
                    f"{stamp()} [INFO] step {step + 1} | {loss_text} | step time {took:.3f} s",
                    flush=True,
                )
            began = time.time()
        if profiler is not None and step == chosen.profile + 9:
            profiler.stop()
            place = chosen.out / "profile" / f"rank{rank}.json"
            place.parent.mkdir(exist_ok=True)
            profiler.export_chrome_trace(str(place))
        trouble.after_step(step)


def stamp() -> str:
    """The time as Python's logging writes it."""
    now = datetime.datetime.now(datetime.UTC)
    return now.strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]


_profiler: list[torch.profiler.profile] = []


def profiled(chosen: argparse.Namespace, step: int) -> torch.profiler.profile | None:
    """The profiler of steps `profile` to `profile + 9`."""
    if not chosen.profile or not chosen.profile <= step < chosen.profile + 10:
        return None
    if not _profiler:
        _profiler.append(
            torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CPU],
                schedule=torch.profiler.schedule(wait=0, warmup=0, active=10),  # names the steps
            )
        )
        _profiler[0].start()
    elif step > chosen.profile:
        _profiler[0].step()
    return _profiler[0]


if __name__ == "__main__":
    main()
