"""Programs of training without stages: DDP, FSDP2, ZeRO-3, HSDP, experts, rings, and RL."""

from __future__ import annotations

from oncall_lab.jobs.program import Builder

_OPTIMIZER = 0.15  # of a forward


def finish(b: Builder) -> None:
    """Optimizer, loss, log, and now and then an evaluation or a checkpoint."""
    s = b.scenario
    number = s.earlier_steps + b.step + 1
    b.compute(_OPTIMIZER * s.forward_ns)
    if number % s.sync_every == 0:
        b.call("world", "all_reduce", 4)
        b.sync()
    if b.rank == 0 and number % s.log_every == 0:
        b.host(s.log_ns)
    if s.evaluate_every and number % s.evaluate_every == 0:
        for _ in range(4):
            b.compute(s.forward_ns * b.sample(b.rank, 9))
        b.call("world", "all_reduce", 8)
        b.sync()
    if s.checkpoint_every and number % s.checkpoint_every == 0:
        b.sync()
        if b.rank == 0:
            b.host(s.checkpoint_ns)
        b.call("world", "all_reduce_barrier", 1)
        b.sync()


def ddp(b: Builder) -> None:
    """Buckets of gradients are reduced while the backward goes on; `no_sync` before the last."""
    s = b.scenario
    for part in range(s.micro_batches):
        forward = s.forward_ns * b.sample(b.rank, part)
        for _ in range(s.layers):
            b.compute(forward / s.layers)
        last, tags = part == s.micro_batches - 1, []
        for _ in range(s.layers):
            b.compute(2 * forward / s.layers)
            if last:
                tags.append(b.call("world", "all_reduce", s.model_bytes / s.layers, wait=False))
        for tag in tags:
            b.wait(tag)
    finish(b)


def sharded(b: Builder) -> None:
    """FSDP2, ZeRO-3, HSDP: the next layer's parameters are gathered while this one computes;
    gradients are reduced and scattered, then reduced among replicas, behind the backward."""
    s = b.scenario
    role = "shard" if s.program == "hsdp" else "world"
    names = {"zero3": ("allgather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced")}
    gather, scatter = names.get(s.program, ("_all_gather_base", "_reduce_scatter_base"))
    nbytes = s.model_bytes / s.layers
    for part in range(s.micro_batches):
        forward, tags = s.forward_ns * b.sample(b.rank, part), []
        for length in (forward, 2 * forward):
            here = b.call(role, gather, nbytes, wait=False)
            for layer in range(s.layers):
                ahead = here
                if layer + 1 < s.layers:
                    ahead = b.call(role, gather, nbytes, wait=False, after=())
                b.wait(here)
                b.compute(length / s.layers)
                here = ahead
                if length > forward:
                    scattered = b.call(role, scatter, nbytes, wait=False)
                    tags.append(scattered)
                    if s.program == "hsdp" and part == s.micro_batches - 1:
                        shard = nbytes / s.group
                        after = (scattered,)
                        tags.append(
                            b.call("replicate", "all_reduce", shard, wait=False, after=after)
                        )
        for tag in tags:
            b.wait(tag)
    finish(b)


def moe(b: Builder) -> None:
    """Tokens go to their experts and back, forward and backward; hot experts compute longer."""
    s = b.scenario
    local = b.groups["expert"].local(b.rank) if "expert" in b.groups else 0
    for part in range(s.micro_batches):
        forward = s.forward_ns * b.sample(b.rank, part)
        for length in (forward, 2 * forward):
            for layer in range(s.layers):
                piece = length / s.layers / 2
                hot = layer % s.group == local
                load = b.shared("routing", b.rank, layer).normal(1, s.uneven / 2)
                nbytes = s.model_bytes / 32 / s.layers
                b.compute(piece)
                b.call("expert", "all_to_all", nbytes)
                b.compute(piece * max(0.3, load) * (1 + s.imbalance * hot))
                b.call("expert", "all_to_all", nbytes)
    tags = [b.call("world", "_reduce_scatter_base", s.model_bytes / 2, wait=False)]
    tags.append(b.call("data", "all_reduce", s.model_bytes / 4, wait=False))
    tags.append(b.call("world", "_all_gather_base", s.model_bytes / 2, wait=False))
    for tag in tags:
        b.wait(tag)
    finish(b)


def context_parallel(b: Builder) -> None:
    """Ring attention: blocks of keys go round while each rank computes on the one it has."""
    s = b.scenario
    ring = b.groups["ring"].members
    size, place = len(ring), ring.index(b.rank)
    parts = (("send", ring[(place + 1) % size]), ("recv", ring[place - 1]))
    # Without a zigzag of the sequence, later ranks have more to attend to.
    share = 1 + s.imbalance * (2 * place / (size - 1) - 1)
    for part in range(s.micro_batches):
        forward = s.forward_ns * b.sample(b.rank // size, part) * share
        for length in (forward, 2 * forward):
            for _ in range(s.layers):
                for block in range(size):
                    nbytes = s.model_bytes / 64 / size
                    tag = None
                    if block < size - 1:
                        tag = b.passing("ring", parts, nbytes, batched=True)
                    b.compute(length / s.layers / size)
                    if tag is not None:
                        b.wait(tag)
    tags = [
        b.call("world", "all_reduce", s.model_bytes / s.layers, wait=False) for _ in range(s.layers)
    ]
    for tag in tags:
        b.wait(tag)
    finish(b)


def reinforcement(b: Builder) -> None:
    """Each replica generates answers of its own length; all meet, then train as DDP does."""
    s = b.scenario
    replica = b.rank // s.group
    tokens = int(b.shared("tokens", replica).lognormal(3.2, 0.1 + 2 * s.uneven))
    for token in range(min(tokens, 120)):
        b.compute(s.forward_ns / 8)
        b.call("tensor", "all_reduce", 2**20)
        if token % 8 == 7:
            b.sync()
    b.call("world", "_all_gather_base", 2**22)
    b.sync()
    ddp(b)


_PREFILL = 0.15  # share of engine steps that read a prompt
_IDLE = 0.1  # share of engine steps before which no request was there


def serving(b: Builder) -> None:
    """One engine step: a batch of requests, layer by layer with small all-reduces."""
    s = b.scenario
    replica = b.rank // s.group
    rng = b.shared("requests", replica)
    prefill, idle, wait = rng.random() < _PREFILL, rng.random() < _IDLE, rng.exponential()
    batch = float(rng.lognormal(0, 0.3 + s.uneven)) * (6 if prefill else 1)
    if idle:
        b.host(s.gap_ns * wait)
    for _ in range(2 * s.layers):
        b.compute(s.forward_ns / 8 / s.layers * batch)
        b.call("tensor", "all_reduce", 2**18 * batch)
    b.call("tensor", "_all_gather_base", 2**19)
    b.sync()
    if b.rank % s.group == 0:
        b.host(s.forward_ns / 40)  # the scheduler
