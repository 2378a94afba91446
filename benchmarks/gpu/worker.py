"""One rank of what is timed: a small transformer under DDP, or a loop of all-reduces.

    worker.py nccl|gloo     # reads lines `transformer STEPS` or `all_reduce STEPS`

Between blocks it waits for a line, so that two such jobs take turns on the same GPUs. Rank 0
answers each line with the median step and the mean one, in seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from statistics import mean, median

import torch
import torch.distributed as dist
from torch import nn

SKIPPED = 5  # of a block: the GPU's clocks rise, the caches fill
# Width, layers, words, batch, tokens: 42 million parameters on a GPU, next to nothing on a CPU.
SIZES = {"nccl": (512, 8, 16_000, 16, 512), "gloo": (64, 2, 500, 2, 32)}
REDUCED = 1 << 19  # elements of two bytes


def programs(backend: str, device: torch.device) -> dict[str, Callable[[], object]]:
    """A step of each: forward, backward with DDP's all-reduces and the optimizer; an all-reduce."""
    width, layers, words, batch, length = SIZES[backend]
    layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    inner = nn.Sequential(nn.Embedding(words, width), encoder, nn.Linear(width, words))
    model = nn.parallel.DistributedDataParallel(inner.to(device, torch.bfloat16))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    tokens = torch.randint(words, (batch, length), device=device)
    reduced = torch.zeros(REDUCED, dtype=torch.bfloat16, device=device)

    def train() -> None:
        said = model(tokens).flatten(0, 1)
        nn.functional.cross_entropy(said, tokens.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return {"transformer": train, "all_reduce": lambda: dist.all_reduce(reduced)}


def timed(step: Callable[[], object], steps: int, on_gpu: bool) -> list[float]:
    """Seconds of each step, by the GPU's own clock where there is one: nothing waits for it."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1) if on_gpu]
    marks: list[float] = []
    for at in range(steps + 1):
        if on_gpu:
            events[at].record()
        marks.append(time.perf_counter())
        step()
    if on_gpu:
        torch.cuda.synchronize()
        return [one.elapsed_time(other) / 1e3 for one, other in pairwise(events)]
    return [later - earlier for earlier, later in pairwise(marks)]


def main() -> None:
    # NCCL and others may print: the answers have what was the standard output to themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    backend, rank = sys.argv[1], int(os.environ["RANK"])
    on_gpu = backend == "nccl"
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    step = programs(backend, device)
    for line in sys.stdin:
        what, steps = line.split()
        took_s = timed(step[what], SKIPPED + int(steps), on_gpu)[SKIPPED:]
        if rank == 0:
            said = {"median_s": median(took_s), "mean_s": mean(took_s)}
            print(json.dumps(said), file=answers, flush=True)


if __name__ == "__main__":
    main()
