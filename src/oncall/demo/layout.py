"""Who runs where: the ranks of the job in blocks on simulated nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from oncall.core.errors import UsageError

JOB = "demo"
TP, PP, MICRO_BATCHES = 2, 2, 4
_STAGE = TP * PP  # ranks that one replica of the model needs
_MOST_RANKS = 32


@dataclass(frozen=True)
class Node:
    """A simulated node: its name, the ranks on it, and where its hooks and collector work."""

    name: str
    ranks: tuple[int, ...]
    data: Path
    run: Path

    def environment(self) -> dict[str, str]:
        """What makes a process on this machine one of that node."""
        return {
            "ONCALL_NODE": self.name,
            "ONCALL_DATA_DIR": str(self.data),
            "ONCALL_RUN_DIR": str(self.run),
            "ONCALL_RUN_DIR_ON_DISK": "1",  # a folder of the user's choice
        }


@dataclass(frozen=True)
class Layout:
    """The nodes, and with them the job."""

    nodes: tuple[Node, ...]

    @classmethod
    def on(cls, places: Sequence[tuple[str, Path, Path]], ranks: int) -> Layout:
        """Spread `ranks` over nodes (name, data folder, run folder) as evenly as it goes.

        Raises UsageError for numbers that make no job.
        """
        if ranks % _STAGE or not 2 * _STAGE <= ranks <= _MOST_RANKS:
            raise UsageError(
                f"--ranks {ranks}: give a multiple of {_STAGE} (tp {TP}, pp {PP}) "
                f"from {2 * _STAGE} to {_MOST_RANKS}"
            )
        if not 1 <= len(places) <= ranks:
            raise UsageError(f"--nodes {len(places)}: give from 1 to {ranks}, one a rank at most")
        bounds = [ranks * number // len(places) for number in range(len(places) + 1)]
        return cls(
            tuple(
                Node(name, tuple(range(first, end)), data, run)
                for (name, data, run), first, end in zip(places, bounds, bounds[1:], strict=False)
            )
        )

    @classmethod
    def simulated(cls, folder: Path, ranks: int, nodes: int) -> Layout:
        """Nodes in folders of `folder`, which need not exist yet: what `local:` hosts look like."""
        names = [f"node{number}" for number in range(nodes)]
        return cls.on([(name, folder / name, folder / name / "run") for name in names], ranks)

    @property
    def world_size(self) -> int:
        return sum(len(node.ranks) for node in self.nodes)

    @property
    def sizes(self) -> Mapping[str, int]:
        """The job's parallelism."""
        dp = self.world_size // _STAGE
        return {"tp": TP, "pp": PP, "dp": dp, "micro_batches": MICRO_BATCHES}

    @property
    def configuration(self) -> str:
        """The same as a launcher tells it to the hooks: `tp=2 pp=2 dp=2 micro_batches=4`."""
        return " ".join(f"{name}={size}" for name, size in self.sizes.items())

    def node_of(self, rank: int) -> Node:
        return next(node for node in self.nodes if rank in node.ranks)

    def placed(self) -> Iterable[tuple[Node, int, int]]:
        """Each rank: its node, its number, its number on the node."""
        for node in self.nodes:
            for local, rank in enumerate(node.ranks):
                yield node, rank, local


def rank_environment(layout: Layout, node: Node, rank: int, local: int) -> Mapping[str, str]:
    """What a launcher tells a rank."""
    return {
        **node.environment(),
        "ONCALL_JOB": JOB,
        "ONCALL_JOB_CONFIG": layout.configuration,
        "RANK": str(rank),
        "LOCAL_RANK": str(local),
        "WORLD_SIZE": str(layout.world_size),
    }
