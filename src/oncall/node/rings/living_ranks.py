"""Which processes of this node are which ranks, as the rings of those that live say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from oncall.core.errors import BadInput
from oncall.node.rings.ring import RingReader


@dataclass(frozen=True)
class LivingRank:
    """A training process: its rank in its job, and its number as this process sees it. `gpu` is
    its index on the node, NULL as long as the process has not told it."""

    job: str
    rank: int
    pid: int
    gpu: int | None


def living_ranks(folder: Path) -> Iterator[LivingRank]:
    """The ranks whose rings lie in `folder` and whose process lives and is to be seen from here.
    Rings that cannot be read are passed over: source `rings` says why."""
    with suppress(OSError):
        for path in sorted(folder.glob("*.ring")):
            with suppress(BadInput, OSError), RingReader.open(path, consume=False) as ring:
                header, pid = ring.header, ring.pid_here
                if pid and header.rank is not None:
                    yield LivingRank(header.job, header.rank, pid, header.gpu)
