"""What a thread does, by its frames: the newest one that tells decides."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

COLLECTIVE, DEVICE, RENDEZVOUS = "collective", "device", "rendezvous"
# Blocked until others come, or until the GPU has done what was launched.
WAITING = frozenset({COLLECTIVE, DEVICE, RENDEZVOUS})
# Kernels are launched ahead: a rank that waits for others may be blocked in any of these.
COMPUTING = frozenset({"forward", "backward", "optimizer"})
# Occupied with something of its own, which the others do not wait for in there.
OCCUPIED = frozenset({"data loader", "checkpoint", "compilation", "import", "debugger", "storage"})
# What is left where no frame tells: the program's own code, or a lock in it.
OTHER = frozenset({"user code", "lock"})
UNKNOWN = "unknown"
KERNEL = "the kernel"  # only the kernel's frames are known
# Processes beside the ranks: launchers, and the workers of data loaders.
_BESIDE = re.compile(
    r"torch/distributed/elastic/(?:agent/|multiprocessing/api\.py)|deepspeed/launcher/"
    r"|accelerate/commands/|torch/utils/data/_utils/worker\.py|multiprocessing/resource_tracker"
    r"|torch/_inductor/compile_worker"
)

# The order is that of one frame: a frame of a checkpoint library may be named `barrier`.
_REVEALING = tuple(
    (activity, re.compile(pattern))
    for activity, pattern in (
        ("debugger", r"\b(?:pdb|bdb|ipdb|debugpy|pydevd)\w*(?:\.py|/)|^breakpoint\b"),
        ("rendezvous", r"\b(?:_store_based_barrier|init_process_group|_rendezvous_helper"
         r"|next_rendezvous)\b|rendezvous\.py|c10d::(?:TCPStore|PrefixStore|FileStore)::"),
        ("collective", r"distributed_c10d\.py|_functional_collectives|torch/distributed/nn/"
         r"|deepspeed/comm/|/p2p_communication\.py|pipe/p2p\.py|^_wait_batch_p2p at|mpi4py|horovod"
         r"|^(?:\w+\.)?(?:all_reduce|all_gather\w*|reduce_scatter\w*|all_to_all\w*|barrier"
         r"|broadcast(?:_object_list|_data|_coalesced)?|batch_isend_irecv) at"
         r"|c10d::(?:Work|Reducer|ProcessGroup|verify_params|Logger)|c10d::ops::|\bnccl[A-Z]\w+"
         r"|at \S*libnccl|gloo::|_verify_param_shape_across_processes|_sync_module_states"),
        ("data loader", r"dataloader|data_loader|DataLoader|torch/utils/data/|data/_utils"
         r"|webdataset|streaming/base|datasets/iterable_dataset|nvidia/dali|megatron/\S*data_iter"),
        ("checkpoint", r"save_checkpoint|load_checkpoint|checkpoint(?:ing|er)?/|torch/serialization"
         r"|torch\.save|save_pretrained|dist_checkpointing|safetensors|torch/distributed/checkpoint"
         r"|checkpointing\.py"),
        ("compilation", r"torch/_(?:inductor|dynamo|functorch)/|triton/(?:compiler|runtime/jit)"
         r"|cpp_extension\.py|(?:torch)?inductor/codecache"),
        ("import", r"<frozen importlib|^_find_and_load|importlib/_bootstrap"),
        ("device", r"(?:cuda|cu)(?:Stream|Device|Event|Ctx)Synchronize|hip\w+Synchronize"
         r"|torch/cuda/(?:__init__|streams)\.py:|^synchronize at torch/|cudaMemcpy\b|cuMemcpy\w*"
         r"|at::native::_local_scalar_dense"),
        ("optimizer", r"torch/optim/|/optimizer/|/optimizers/|clip_grad|grad_scaler|amp/grad"),
        ("backward", r"^(?:\w+\.)?(?:_engine_run_backward|backward) at|torch/autograd/"
         r"|torch::autograd::Engine"),
        ("forward", r"torch/nn/modules/module\.py|^(?:\w+\.)?forward at|torch/nn/functional"),
    )
)  # fmt: skip
_KERNEL = re.compile(r"^(?:nfs|rpc_|ll_|cl_|gpfs|fuse_|ceph|lustre|ext4|xfs|io_schedule|blk_)\w*")
_LOCK = re.compile(
    r"^(?:\w+\.)?(?:acquire|wait|get|join|result|select|_wait_for_tstate_lock) at "
    r"(?:threading|queue|selectors|asyncio|concurrent|multiprocessing)|PyThread_acquire_lock"
    r"|^__lll_lock_wait|^pthread_mutex_lock"
)
# Frames of nobody's program: the interpreter, the C library, the standard library by its names.
_LIBRARY = re.compile(
    r" at (?:lib[\w+.-]*\.so|ld-linux|python3?[\d.]*$|\[)|^0x[0-9a-f]+ at |\.(?:c|cc|cpp|h|cu):\d+$"
    r"| at (?:threading|queue|selectors|socket|ssl|subprocess|contextlib|runpy|functools"
    r"|socketserver|concurrent|multiprocessing|asyncio|importlib|<frozen|<string)\b|/lib/python3"
    r"|\.so[.\d]*$| at kernel$"
)


@dataclass(frozen=True)
class Activity:
    """What a thread does, and the frame that tells it."""

    name: str
    frame: str


@lru_cache(maxsize=1 << 14)
def is_rank(frames: tuple[str, ...]) -> bool:
    """Whether the stack may be that of a rank: no launcher's, no data loader worker's."""
    return not any(_BESIDE.search(frame) for frame in frames)


@lru_cache(maxsize=1 << 14)
def activity_of(frames: tuple[str, ...]) -> Activity:
    """What a main thread with these frames, newest first, does."""
    for frame in frames:
        if frame.endswith(" at kernel") and _KERNEL.match(frame):
            return Activity("storage", frame)
        for name, pattern in _REVEALING:
            if pattern.search(frame):
                return Activity(name, frame)
    if frames and all(frame.endswith(" at kernel") for frame in frames):
        return Activity(KERNEL, frames[0])
    if any(_LOCK.search(frame) for frame in frames[:8]):
        return Activity("lock", _own(frames) or frames[0])
    own = _own(frames)
    return Activity("user code", own) if own else Activity(UNKNOWN, frames[0] if frames else "")


def _own(frames: Sequence[str]) -> str | None:
    """The newest frame of the program itself."""
    return next((frame for frame in frames if not _LIBRARY.search(frame)), None)
