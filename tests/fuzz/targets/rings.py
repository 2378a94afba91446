"""Files that training processes write: rings and verbs files, as a collector reads them."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from oncall.core.errors import BadInput
from oncall.node.common.declaration import default_options
from oncall.node.common.source import Collected, Source, read_clock
from oncall.node.dpa.dpa_pages import FrameKind, read_page, split_frames
from oncall.node.rings.rings import RingSource
from oncall.node.traffic.recent_traffic import RecentTraffic, TrafficOptions
from oncall.node.verbs.verbs import VerbsOptions, VerbsSource
from oncall.node.verbs.verbs_process import Limits

from ..registry import file_of, target

sys.path.insert(0, str(Path(__file__).parents[3] / "fixtures"))
sys.path.insert(0, str(Path(__file__).parents[2] / "dpa"))

_HOUR_NS = 3600 * 10**9


def _rings() -> list[bytes]:
    from ring_writer import RingWriter, operations

    from oncall.node.rings.ring_layout import Operation

    found = []
    with tempfile.TemporaryDirectory() as folder:
        for transfers, unfinished in ((0, 0), (2, 3)):
            ring = RingWriter(Path(folder), records=256, communicators=3, transfers=4)
            ring.communicator(0, 0xC0FFEE)
            ring.communicator(1, 0xBEEF)
            ring.append(operations(1, 10, transfers=transfers, unfinished=unfinished))
            ring.append(operations(11, 5, 1, sequence=1, op=Operation.SEND, peer=1))
            ring.close(in_order=not unfinished)
            found.append(ring.path.read_bytes())
    return found


@target(_rings)
def ring_files(data: bytes) -> None:
    """A ring, drained and asked how its process stands; what is wrong with it is a problem said."""
    with file_of(data, "1-1.ring") as path:
        _collect_all(RingSource(path.parent, "gpu017", _HOUR_NS, {}))


def _verbs() -> list[bytes]:
    from verbs_writer import VerbsWriter

    with tempfile.TemporaryDirectory() as folder:
        return [VerbsWriter(Path(folder)).path.read_bytes()]


@target(_verbs)
def verbs_files(data: bytes) -> None:
    """The same of a verbs file."""
    defaults = default_options()
    recent = RecentTraffic(defaults.of(TrafficOptions).memory_bytes)
    options = defaults.of(VerbsOptions)
    limits = Limits(options.window, options.timeout_ns, options.all_epochs)
    with file_of(data, "1-1.verbs") as path:
        every_ns = options.every_ns
        _collect_all(VerbsSource(path.parent, "gpu017", every_ns, limits, _HOUR_NS, recent))


def _collect_all(source: Source) -> None:
    now = read_clock()
    try:
        for _ in range(3):
            found = source.collect(now)
            assert isinstance(found, Collected)
            source.current_state(now)
    finally:
        source.close()


def _frames() -> list[bytes]:
    from dpa_frames import batch, frame, page

    pages = [page(), page(batch(1, 0x11, 5, 1, 2, 3), batch(1, 0x12, 9, 7, flags=2))]
    return [*map(frame, pages), b"".join(map(frame, pages)), frame(b"no NIC here", kind=2)]


@target(_frames)
def dpa_frames(data: bytes) -> None:
    """What the poller of a NIC's measurement writes into its pipe."""
    try:
        frames, _ = split_frames(data, "poller")
        for frame in frames:
            if frame.kind is FrameKind.PAGE:
                read_page(frame.payload, "poller")
    except BadInput:
        pass
