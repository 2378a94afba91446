"""Faults and habits of a training job: what a rank does otherwise, and when."""

from __future__ import annotations

import argparse
import gc
import os
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist


class Trouble:
    """The faults of this rank; a rank that is no culprit only has the job's habits."""

    def __init__(self, chosen: argparse.Namespace, rank: int) -> None:
        self.chosen, self.rank = chosen, rank
        self.mine = rank in chosen.ranks
        self.compute_s = chosen.compute
        self.lock = threading.Lock()
        self.heap: list[object] = []

    def _is(self, fault: str) -> bool:
        return self.mine and self.chosen.fault == fault

    def _struck(self, fault: str, step: int) -> bool:
        return self._is(fault) and step == self.chosen.step

    def _strikes(self) -> None:
        """Now the fault begins: from outside, the recorder stops, kills or starves the process."""
        (self.chosen.out / f"struck{self.rank}").touch()

    def load_batch(self, step: int) -> None:
        """The data loader."""
        fresh = step >= self.chosen.step
        if step == self.chosen.step and not self._is("save_stuck"):
            self._strikes()
        if self._struck("loader_stuck", step):
            next_batch_from_storage()
        if self._struck("worker_exception", step):
            batch_of_workers(self.rank)
        if self._struck("read_stuck", step):
            read_shard(self.chosen.out / f"shard{self.rank}")
        if self._struck("ended", step):
            os._exit(0)
        if self._struck("exception", step):
            raise ValueError(f"sample 7741 of shard {self.rank} has length 0")
        if self._struck("out_of_data", step):
            self.finished()
        if self._struck("exit", step):
            os._exit(3)
        if self._is("slow_loader") and fresh and step % 4 == 0:
            time.sleep(5 * self.compute_s)
        if self._struck("stopped", step) or self._struck("killed", step):
            time.sleep(3)
        if self._is("throttled") and step == self.chosen.step:
            threading.Thread(target=hold_the_interpreter, args=(0.02,), daemon=True).start()

    def compute(self, step: int, part: float = 1.0) -> None:
        """The device's computation; `part` of a step's."""
        wanted = self.compute_s * part
        if self.chosen.habit == "uneven_lengths":
            wanted *= 0.5 + torch.rand(1).item()
        if self._is("slow_compute") and step >= self.chosen.step:
            wanted *= 2.0
        if self.chosen.fault == "starved":  # a neighbour on its core: real work, not a sleep
            spin(wanted)
        else:
            time.sleep(wanted)
        if self._is("garbage") and step >= self.chosen.step:
            self.collect(step)
        if self._struck("deadlock", step):
            self.lock.acquire()
            save_metrics(self.lock)

    def collect(self, step: int) -> None:
        """Leak objects until a collection of all generations takes long."""
        if not self.heap:
            self.heap.extend({"n": n} for n in range(1_500_000))
        if step % 5 == 0:
            gc.collect()

    def all_reduce_metrics(self, step: int, mean: torch.Tensor) -> None:
        """The call that a rank skips, or makes otherwise."""
        due = step >= self.chosen.step
        if self._is("skip") and due:
            return
        if self._is("other_op") and due:
            dist.broadcast(mean, 0)
        elif self._is("other_size") and due:
            dist.all_reduce(torch.ones(7))
        else:
            dist.all_reduce(mean)
        if self._is("extra") and due:
            dist.all_reduce(torch.ones(3))

    def after_step(self, step: int) -> None:
        """Evaluations, checkpoints, and what goes wrong in them."""
        habit = self.chosen.habit
        if habit == "evaluation" and step % 20 == 19:
            for _ in range(4):
                time.sleep(0.2)
                dist.all_reduce(torch.ones(2))
        if habit == "checkpoint" and step % 20 == 19:
            if self._is("save_stuck") and step >= self.chosen.step:
                self._strikes()
                save_checkpoint(10**6)
            if self.rank == 0:
                save_checkpoint(1.0)
            dist.barrier()
        if habit == "long_checkpoint" and step == self.chosen.step:
            (self.chosen.out / f"struck{self.rank}").touch()
            if self.rank == 0:
                save_checkpoint(60.0)
            dist.barrier()
        if habit == "monitored" and step % 10 == 9:
            dist.monitored_barrier(wait_all_ranks=True)
        if habit == "logging" and self.rank == 0 and step % 5 == 4:
            time.sleep(0.03)

    def finished(self) -> None:
        """The epoch of this rank is over: it waits in the barrier after the loop."""
        dist.barrier()


def next_batch_from_storage() -> None:
    time.sleep(10**6)


class Samples(torch.utils.data.Dataset):
    """One of them is damaged."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 5:
            raise RuntimeError(f"shard {self.rank}: checksum of sample 5 differs")
        return torch.ones(4)


def batch_of_workers(rank: int) -> None:
    """A loader's worker process fails; its exception is raised anew in the training process."""
    for _ in torch.utils.data.DataLoader(Samples(rank), batch_size=2, num_workers=1):
        pass


def read_shard(place: Path) -> bytes:
    """A read that does not return, as of a file server that is gone."""
    os.mkfifo(place)
    with place.open("rb") as shard:
        return shard.read()


def save_checkpoint(seconds: float) -> None:
    time.sleep(seconds)


def save_metrics(lock: threading.Lock) -> None:
    with lock:
        Path("/dev/null").write_text("")


def spin(seconds: float) -> None:
    """Compute for that much CPU time."""
    end = time.thread_time() + seconds
    one = torch.ones(64, 64)
    while time.thread_time() < end:
        one @ one


def hold_the_interpreter(seconds: float) -> None:
    """A busy Python thread: the training thread gets the interpreter back only now and then."""
    import sys

    sys.setswitchinterval(seconds)
    while True:
        sum(range(1000))
