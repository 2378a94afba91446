"""What the ring's numbers stand for: operations, element types, waits (hooks/oncall_ring.h)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from oncall.node.rings.ring_layout import Operation

# By number; 0 is none. The evidence schema's names.
OPERATIONS: Final = (
    "",
    "AllReduce",
    "AllGather",
    "ReduceScatter",
    "Broadcast",
    "Reduce",
    "AllToAll",
    "Gather",
    "Scatter",
    "Send",
    "Recv",
    "PutSignal",
    "WaitSignal",
    "Signal",
)
ROOTED: Final = (
    Operation.BROADCAST,
    Operation.REDUCE,
    Operation.GATHER,
    Operation.SCATTER,
)
PAIRED: Final = (Operation.SEND, Operation.RECV)
POINT_TO_POINT: Final = (
    *PAIRED,
    Operation.PUT_SIGNAL,
    Operation.WAIT_SIGNAL,
    Operation.SIGNAL,
)
KINDS: Final = ("coll", "p2p")  # by whether it is point-to-point

# ncclDataType_t, and how many bytes an element has.
DTYPES: Final = (
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "float8e4m3",
    "float8e5m2",
)
DTYPE_BYTES: Final[np.ndarray[Any, Any]] = np.array(
    [1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1], dtype=np.int64
)

NCCL_SUCCESS: Final = 0
NCCL_IN_PROGRESS: Final = 7
NCCL_RESULTS: Final = {
    1: "ncclUnhandledCudaError",
    2: "ncclSystemError",
    3: "ncclInternalError",
    4: "ncclInvalidArgument",
    5: "ncclInvalidUsage",
    6: "ncclRemoteError",
}

WAITS: Final = (
    "",
    "send_gpu",
    "send_peer",
    "send_wire",
    "recv_wire",
    "recv_flush",
    "recv_gpu",
)
DIRECTIONS: Final = ("recv", "send")  # by is_send
