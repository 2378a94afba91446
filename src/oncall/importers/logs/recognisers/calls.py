"""Collectives as NCCL and RCCL print them with NCCL_DEBUG_SUBSYS=COLL."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oncall.importers.logs.calls import Call
from oncall.importers.logs.line import Found, Line, Recogniser

# Of these every rank states the same count.
_CALL = re.compile(
    r"(?P<op>AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|AllToAll): "
    r"opCount (?P<seq>[0-9a-f]{1,15}) sendbuff \S{1,20} recvbuff \S{1,20} "
    r"count (?P<count>\d{1,18}) datatype (?P<type>\d{1,3}) op \d{1,3} root (?P<root>-?\d{1,7}) "
    r"comm (?P<comm>\w{1,20}) \[nranks=(?P<size>\d{1,7})\]"
    r"(?: stream \S{1,20} task \d{1,9} globalrank (?P<rank>\d{1,7}))?"
)


def read(line: Line) -> Sequence[Found]:
    """The call that one line prints."""
    found = _CALL.search(line.text)
    if found is None:
        return []
    said = f"{found['op']} of {int(found['count']):,} elements of type {found['type']}"
    rank = int(found["rank"]) if found["rank"] else None
    call = Call(int(found["size"]), found["comm"], int(found["seq"], 16), said, rank)
    return [Found("calls", {"call": call})]


CALLS = Recogniser("calls", (": opCount ",), read)
