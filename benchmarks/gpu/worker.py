"""One rank of what is timed: a small transformer under DDP, or a loop of all-reduces.

    worker.py nccl|gloo     # reads lines `transformer STEPS` or `all_reduce STEPS`

Between blocks it waits for a line, so that two such jobs take turns on the same GPUs. Rank 0
answers each line with the median step and the mean one in seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median

import torch
import torch.distributed as dist
from torch import nn

SKIPPED = 5  # of a block: the GPU's clocks rise, the caches fill
# Width, layers, words, batch, tokens: 42 million parameters on a GPU, next to nothing on a CPU.
SIZES = {"nccl": (512, 8, 32_000, 16, 512), "gloo": (64, 2, 500, 2, 32)}
REDUCED = {"nccl": 1 << 19, "gloo": 1 << 14}  # elements of two bytes


class Transformer(nn.Module):
    """A language model as people train it; the words are drawn."""

    def __init__(self, width: int, layers: int, words: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.words = nn.Linear(width, words, bias=False)
        self.words.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        said = self.words(self.layers(self.embedding(tokens)))
        return nn.functional.cross_entropy(said.flatten(0, 1).float(), tokens.flatten())


def programs(backend: str, device: torch.device) -> dict[str, Callable[[], None]]:
    width, layers, words, batch, length = SIZES[backend]
    inner = Transformer(width, layers, words).to(device, torch.bfloat16)
    model = nn.parallel.DistributedDataParallel(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    tokens = torch.randint(words, (batch, length), device=device)
    reduced = torch.zeros(REDUCED[backend], dtype=torch.bfloat16, device=device)

    def train() -> None:
        model(tokens).backward()
        optimizer.step()
        optimizer.zero_grad()

    return {"transformer": train, "all_reduce": lambda: dist.all_reduce(reduced)}


def timed_on_gpu(step: Callable[[], None], steps: int) -> list[float]:
    """Seconds of each step by the GPU's own clock: nothing waits for it between the steps."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    torch.cuda.synchronize()
    return [marks[at].elapsed_time(marks[at + 1]) / 1e3 for at in range(steps)]


def timed_on_cpu(step: Callable[[], None], steps: int) -> list[float]:
    marks = [time.perf_counter()]
    for _ in range(steps):
        step()
        marks.append(time.perf_counter())
    return [later - earlier for earlier, later in pairwise(marks)]


def summary(steps_s: Sequence[float]) -> dict[str, float]:
    counted = steps_s[SKIPPED:]
    return {"median_s": median(counted), "mean_s": sum(counted) / len(counted)}


def main() -> None:
    # NCCL and others may print: the answers have what was the standard output to themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    backend = sys.argv[1]
    on_gpu = backend == "nccl"
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group(backend)
    run = programs(backend, device)
    for line in sys.stdin:
        what, steps = line.split()
        steps_s = (timed_on_gpu if on_gpu else timed_on_cpu)(run[what], SKIPPED + int(steps))
        if dist.get_rank() == 0:
            print(json.dumps(summary(steps_s)), file=answers, flush=True)


if __name__ == "__main__":
    main()
