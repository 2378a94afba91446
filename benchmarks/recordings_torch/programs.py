"""Programs as people run them, each a few layers wide: one object a rank, `step` trains once."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from trouble import Trouble

WIDTH = 192
LAYERS = 4


def layer() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU())


def batch() -> torch.Tensor:
    return torch.randn(16, WIDTH)


class Ddp:
    """DistributedDataParallel in several buckets."""

    micro_batches = 1

    def __init__(self, trouble: Trouble) -> None:
        self.trouble = trouble
        network = nn.Sequential(*[layer() for _ in range(LAYERS)])
        self.model = nn.parallel.DistributedDataParallel(network, bucket_cap_mb=0.3)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def step(self, step: int) -> torch.Tensor:
        for micro in range(self.micro_batches):
            last = micro == self.micro_batches - 1
            self.model.require_backward_grad_sync = last
            self.trouble.compute(step, 1 / self.micro_batches)
            loss = self.model(batch()).square().mean()
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


class DdpAccumulating(Ddp):
    """Four micro-batches a step; gradients are reduced in the last (`no_sync`)."""

    micro_batches = 4


class Fsdp:
    """FSDP2: parameters of each layer are gathered before its use, prefetched, and scattered."""

    def mesh(self) -> object:
        return init_device_mesh("cpu", (dist.get_world_size(),))

    def __init__(self, trouble: Trouble) -> None:
        from torch.distributed.fsdp import fully_shard

        self.trouble = trouble
        mesh = self.mesh()
        self.model = nn.Sequential(*[layer() for _ in range(LAYERS)])
        for one in self.model:
            fully_shard(one, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def step(self, step: int) -> torch.Tensor:
        self.trouble.compute(step, 0.5)
        loss = self.model(batch()).square().mean()
        self.trouble.compute(step, 0.5)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


class Hsdp(Fsdp):
    """FSDP2 within halves of the job, replicated across them."""

    def mesh(self) -> object:
        return init_device_mesh(
            "cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("replicate", "shard")
        )


class FsdpTensorParallel:
    """FSDP2 across, DTensor within pairs: a mesh of two dimensions."""

    def __init__(self, trouble: Trouble) -> None:
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

        self.trouble = trouble
        mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        blocks = [
            nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))
            for _ in range(LAYERS)
        ]
        for block in blocks:
            parallelize_module(block, mesh["tp"], plan)
            fully_shard(block, mesh=mesh["dp"])
        self.model = nn.Sequential(*blocks)
        fully_shard(self.model, mesh=mesh["dp"])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def step(self, step: int) -> torch.Tensor:
        self.trouble.compute(step, 0.5)
        loss = self.model(batch()).square().mean()
        self.trouble.compute(step, 0.5)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


class TensorParallel:
    """DTensor: two ranks share each layer, data parallel across."""

    def __init__(self, trouble: Trouble) -> None:
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

        self.trouble = trouble
        mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
        self.dp = mesh["dp"].get_group()
        blocks = [
            nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))
            for _ in range(LAYERS)
        ]
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        self.model = nn.Sequential(*[parallelize_module(b, mesh["tp"], plan) for b in blocks])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def step(self, step: int) -> torch.Tensor:
        x = batch()
        for block in self.model:
            self.trouble.compute(step, 1 / LAYERS)
            x = block(x)
        loss = x.square().mean()
        loss.backward()
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad.to_local(), group=self.dp)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


class Experts:
    """Mixture of experts: tokens go to experts and back by all-to-all, gradients by all-reduce."""

    def __init__(self, trouble: Trouble) -> None:
        self.trouble = trouble
        size = dist.get_world_size()
        whole = dist.new_group(list(range(size)), group_desc="dp")
        halves = [list(range(size // 2)), list(range(size // 2, size))]
        groups = [dist.new_group(half, group_desc="ep") for half in halves]
        self.dp, self.ep = whole, groups[dist.get_rank() >= size // 2]

    def exchange(self) -> None:
        tokens = torch.randn(96, WIDTH)  # for two, three or four experts
        dist.all_to_all_single(torch.empty_like(tokens), tokens, group=self.ep)

    def step(self, step: int) -> torch.Tensor:
        for _ in range(LAYERS):  # dispatch and combine, forward and backward
            self.exchange()
            self.trouble.compute(step, 0.5 / LAYERS)
            self.exchange()
        for _ in range(LAYERS):
            self.exchange()
            self.trouble.compute(step, 0.5 / LAYERS)
            self.exchange()
            dist.all_reduce(torch.randn(WIDTH, WIDTH), group=self.dp)
        return torch.ones(1)


class Pipeline:
    """1F1B over half as many stages as ranks, data parallel across two replicas."""

    chunks = 1

    def __init__(self, trouble: Trouble) -> None:
        from torch.distributed.pipelining import (
            PipelineStage,
            Schedule1F1B,
            ScheduleInterleaved1F1B,
        )

        self.trouble = trouble
        stages = dist.get_world_size() // 2
        mesh = init_device_mesh("cpu", (2, stages), mesh_dim_names=("dp", "pp"))
        self.dp, group = mesh["dp"].get_group(), mesh["pp"].get_group()
        self.place, self.stages = dist.get_rank(group), stages
        self.now = 0
        self.parts = [Part(self) for _ in range(self.chunks)]
        held = [
            PipelineStage(
                part,
                self.place + at * stages,
                stages * self.chunks,
                torch.device("cpu"),
                group=group,
            )
            for at, part in enumerate(self.parts)
        ]
        self.schedule = (
            Schedule1F1B(held[0], 8, loss_fn=square)
            if self.chunks == 1
            else ScheduleInterleaved1F1B(held, 8, loss_fn=square)
        )
        self.losses: list[torch.Tensor] = []

    def step(self, step: int) -> torch.Tensor:
        self.now = step
        x = torch.randn(16, WIDTH)
        first, last = self.place == 0, self.place == self.stages - 1
        if first and last:
            self.schedule.step(x, target=x)
        elif first:
            self.schedule.step(x)
        elif last:
            self.schedule.step(target=x)
        else:
            self.schedule.step()
        for part in self.parts:
            for parameter in part.parameters():
                dist.all_reduce(parameter.grad, group=self.dp)
                parameter.grad = None
        return torch.ones(1)


class Interleaved(Pipeline):
    """Interleaved 1F1B, two chunks a rank."""

    chunks = 2


class Part(nn.Module):
    """One stage; it computes as long forward as backward."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.pipeline = [pipeline]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pipeline = self.pipeline[0]
        pipeline.trouble.compute(pipeline.now, 1 / 8 / pipeline.chunks)
        return self.layer(x)


def square(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output - target).square().mean()


class Ring:
    """Context parallel: keys go round a ring of all ranks while each block is computed."""

    def __init__(self, trouble: Trouble) -> None:
        self.trouble = trouble
        rank, size = dist.get_rank(), dist.get_world_size()
        self.next, self.previous, self.size = (rank + 1) % size, (rank - 1) % size, size

    def step(self, step: int) -> torch.Tensor:
        keys = torch.randn(64, WIDTH)
        for _ in range(self.size):
            coming = torch.empty_like(keys)
            works = dist.batch_isend_irecv(
                [
                    dist.P2POp(dist.isend, keys, self.next),
                    dist.P2POp(dist.irecv, coming, self.previous),
                ]
            )
            self.trouble.compute(step, 1 / self.size)
            for work in works:
                work.wait()
            keys = coming
        dist.all_reduce(torch.randn(WIDTH, WIDTH))
        return torch.ones(1)


class Reinforcement(Ddp):
    """Every tenth step answers are generated first, each rank for its own time, and gathered."""

    def step(self, step: int) -> torch.Tensor:
        if step % 10 == 0:
            time.sleep(0.3 + 0.5 * torch.rand(1).item() * ((dist.get_rank() + step) % 3) / 2)
            rewards = torch.randn(8)
            dist.all_gather([torch.empty(8) for _ in range(dist.get_world_size())], rewards)
            for parameter in self.model.parameters():
                dist.broadcast(parameter.data, 0)
        return super().step(step)


PROGRAMS = {
    "ddp": Ddp,
    "ddp_accumulating": DdpAccumulating,
    "fsdp": Fsdp,
    "hsdp": Hsdp,
    "fsdp_tensor_parallel": FsdpTensorParallel,
    "tensor_parallel": TensorParallel,
    "experts": Experts,
    "pipeline": Pipeline,
    "interleaved": Interleaved,
    "ring": Ring,
    "reinforcement": Reinforcement,
}
