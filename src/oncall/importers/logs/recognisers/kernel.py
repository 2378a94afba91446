"""Lines of the kernel inside a job's log: Xid, SXid, a lost GPU, links that go down.

A kernel's own log is read by `host_text`; both judge lines by the same table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from oncall.evidence.codes.kernel_lines import known_line, lost_gpu
from oncall.importers.logs.line import Found, Line, Recogniser, event

_CAUSED = re.compile(r"caused by previous Xid (\d+)")
_LINKS = {"link_down": "down", "cable_unplugged": "down", "link_up": "up"}


def read(line: Line) -> Sequence[Found]:
    """What one line of the kernel says."""
    text = line.text[max(0, line.text.find("NVRM:")) :]
    known = known_line(text) or lost_gpu(text, line.above(2))
    if known is None:
        return []
    kind, _, number = known.code.rpartition("_")
    if kind in ("xid", "sxid"):
        caused = _CAUSED.search(text)
        return [
            event(
                kind,
                number,
                device=known.device,
                text=text.partition(f": {number}, ")[2] or text,
                number=int(caused[1]) if caused else None,
            )
        ]
    if known.code == "gpu_lost":
        return [event("xid", "79", device=known.device, text="the GPU has fallen off the bus")]
    if known.code in _LINKS:
        return [event("port", _LINKS[known.code], device=known.device, text=text)]
    return []


KERNEL = Recogniser(
    "kernel",
    ("NVRM: Xid", "SXid (", "fallen off the bus", ": Link ", " Link ", "able unplugged"),
    read,
)
