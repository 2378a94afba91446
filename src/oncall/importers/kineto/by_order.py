"""Traces whose calls nothing describes: those of PyTorch before 2.3, and of gloo.

The order in which the device, or gloo's thread, ran the operations is the order of the calls, and
NCCL runs those of one communicator on one stream.
"""

from __future__ import annotations

import numpy as np

from oncall.importers.kineto.trace import Call, Kernel, Trace

_UNNAMED = "; those of one stream are taken for one communicator"


def describe_by_order(trace: Trace) -> None:
    """Give a trace without described calls one call for each NCCL kernel, else for each operation
    of gloo, in their order. Sends and receives stay out: whom they reach is not recorded."""
    ran = trace.kernels or trace.gloo
    ran = sorted((one for one in ran if one.op not in (None, "SendRecv", "Send", "Recv")), key=_at)
    if trace.calls or not ran:
        return
    only = str(trace.config[0].get("pg_name", "")) if len(trace.config) == 1 else None
    launched = dict(
        np.frombuffer(trace.launches, dtype=np.int64).reshape(-1, 3)[:, [0, 2]].tolist()
    )
    streams: dict[int | None, str] = {}
    trace.kernels = []
    for number, one in enumerate(ran, start=1):
        # Streams are called in the order of their first kernels: their numbers are a process's own.
        group = (
            only
            if only is not None
            else streams.setdefault(one.stream, f"stream {len(streams) + 1}")
        )
        called_ns = launched.get(one.correlation or -1, one.started_ns)
        trace.kernels.append(one._replace(external_id=number))
        trace.calls.append(
            Call(
                external_id=number,
                thread=0,
                at_ns=called_ns,
                until_ns=called_ns,
                op=one.op or "",
                group=group,
                description="",
                group_size=0,
                members=(),
                seq=None,
                peer=None,
                dtype=None,
                elements=None,
            )
        )
    what = "NCCL kernels" if one.stream is not None else "gloo's operations"
    trace.notes.append(
        f"it describes no call: {what} are taken for the calls, in the order they ran"
        + ("" if only is not None else _UNNAMED)
    )


def _at(kernel: Kernel) -> int:
    return kernel.started_ns
