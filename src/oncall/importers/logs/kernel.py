"""Lines of the kernel inside a job's log: Xid, SXid, a lost GPU, links that go down."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oncall.importers.logs.line import Found, Line, Recogniser, event

_PCI = r"(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?)"
_XID = re.compile(rf"NVRM: Xid \((?:PCI:)?{_PCI}\): (?P<number>\d+)(?:, (?P<text>.*))?")
_SXID = re.compile(rf"SXid \((?:PCI:)?{_PCI}\): (?P<number>\d+), (?P<text>.*)")
_LOST = re.compile(rf"NVRM:.*GPU {_PCI}")
_GONE = re.compile(r"fallen off the bus")
_CAUSED = re.compile(r"caused by previous Xid (\d+)")
_LINK = re.compile(
    r"mlx5_core (?P<pci>[\w:.]+) (?P<name>\w+): (?:Port: \d+ )?Link (?P<what>\w+)|"
    r"(?P<other>\w+): (?:NIC )?Link is (?P<state>[Dd]own|[Uu]p)"
)


def read(line: Line) -> Sequence[Found]:
    """What one line of the kernel says."""
    text = line.text
    if found := _XID.search(text):
        caused = _CAUSED.search(text)
        return [
            event(
                "xid",
                found["number"],
                device=found["pci"].lower(),
                text=found["text"] or text,
                number=int(caused[1]) if caused else None,
            )
        ]
    if found := _SXID.search(text):
        return [event("sxid", found["number"], device=found["pci"].lower(), text=found["text"])]
    if _GONE.search(text):
        above = next((at for one in (text, *line.above(2)) if (at := _LOST.search(one))), None)
        device = above["pci"].lower() if above else None
        return [event("xid", "79", device=device, text="the GPU has fallen off the bus")]
    if found := _LINK.search(text):
        down = (found["what"] or found["state"]).lower() == "down"
        device = found["name"] or found["other"]
        return [event("port", "down" if down else "up", device=device, text=text)]
    return []


KERNEL = Recogniser(
    "kernel", ("NVRM: Xid", "SXid (", "fallen off the bus", ": Link ", " Link "), read
)
