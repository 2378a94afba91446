"""Which processes of this node are which ranks, as the rings of those that live say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from oncall.core.errors import BadInput
from oncall.node.common.source import Instant
from oncall.node.rings.living_files import LivingFiles
from oncall.node.rings.ring import RingReader


@dataclass(frozen=True)
class LivingRank:
    """A training process: its rank in its job, and its number as this process sees it. `gpu` is
    its index on the node, NULL as long as the process has not recorded it."""

    job: str
    rank: int
    pid: int
    gpu: int | None


class LivingRanks:
    """The ranks whose rings lie in `folder`, held open. Rings that cannot be read are passed over:
    source `rings` says why."""

    def __init__(self, folder: Path) -> None:
        self._rings = LivingFiles(folder, ".ring", RingReader)

    def now(self, now: Instant) -> Iterator[LivingRank]:
        """Those whose process lives and is to be seen from here."""
        self._rings.look(now.monotonic_ns)
        for ring in self._rings:
            with suppress(BadInput, OSError):
                header, pid = ring.header, ring.pid_here
                if pid and header.rank is not None:
                    yield LivingRank(header.job, header.rank, pid, header.gpu)

    def close(self) -> None:
        self._rings.close()
