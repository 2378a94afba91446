"""Names that PyTorch gives to operations and element types, in the field's own terms."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

COALESCED = "Coalesced"

# c10::ScalarType names; sub-byte types are left out, as their packing is not recorded.
DTYPE_BYTES = {
    name: size
    for size, names in {
        1: "Byte Char Bool Float8_e5m2 Float8_e5m2fnuz Float8_e4m3fn Float8_e4m3fnuz "
        "Float8_e8m0fnu",
        2: "Short UInt16 Half BFloat16",
        4: "Int UInt32 Float ComplexHalf",
        8: "Long UInt64 Double ComplexFloat",
        16: "ComplexDouble",
    }.items()
    for name in names.split()
}

_STEMS = {
    "allreduce": "AllReduce",
    "allgather": "AllGather",
    "reducescatter": "ReduceScatter",
    "alltoall": "AllToAll",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "barrier": "Barrier",
    "gather": "Gather",
    "scatter": "Scatter",
    "send": "Send",
    "recv": "Recv",
    "coalesced": COALESCED,
}
_SUFFIXES = "base|oop|out|coalesced|into|tensor|single|sparse|anysource|v"
_OPERATION = re.compile(rf"({'|'.join(_STEMS)})(?:{_SUFFIXES})*")
_POINT_TO_POINT = re.compile(r"(send|recv)(?:\w*) (?:(\d+)->(\d+)|(\d+)<-(\d+))$")


@dataclass(frozen=True)
class CallName:
    """What a profiling name says: the operation and, for P2P, the peer's rank in the group."""

    op: str
    p2p: bool
    peer: int | None
    backend: str


@lru_cache(maxsize=65536)
def parse_call(profiling_name: str) -> CallName:
    """`nccl:_all_gather_base` is AllGather; `nccl:recv 1<-0` is Recv from peer 0.

    An unknown operation keeps its own spelling, without the backend.
    """
    backend, colon, call = profiling_name.partition(":")
    if not colon:
        backend, call = "", profiling_name
    match = _POINT_TO_POINT.match(call)
    if match:
        send = match[1] == "send"
        peer = match[3] if send else match[5]
        return CallName(_STEMS[match[1]], True, int(peer) if peer else None, backend)
    op = operation(call)
    return CallName(op, op in ("Send", "Recv"), None, backend)


def operation(call: str) -> str:
    """The operation a call's name stands for; its own spelling if it is not known."""
    letters = re.sub("[^a-z]", "", call.lower())
    if letters == "allreducebarrier":
        return "Barrier"
    match = _OPERATION.fullmatch(letters)
    return _STEMS[match[1]] if match else call
