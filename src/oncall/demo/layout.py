"""Who runs where: the ranks of the job on simulated nodes, each node with folders of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from oncall.errors import UsageError

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
        }


@dataclass(frozen=True)
class Layout:
    """The job's ranks in blocks on its nodes."""

    nodes: tuple[Node, ...]

    @classmethod
    def of(cls, folder: Path, ranks: int, nodes: int) -> Layout:
        """Spread `ranks` over `nodes` as evenly as it goes; makes the folders.

        Raises UsageError for numbers that make no job.
        """
        if ranks % _STAGE or not _STAGE < ranks <= _MOST_RANKS:
            raise UsageError(
                f"--ranks {ranks}: give a multiple of {_STAGE} (tp {TP}, pp {PP}) "
                f"from {2 * _STAGE} to {_MOST_RANKS}"
            )
        if not 1 <= nodes <= ranks:
            raise UsageError(f"--nodes {nodes}: give from 1 to {ranks}, one a rank")
        placed = []
        for number in range(nodes):
            name = f"node{number}"
            node = Node(
                name,
                tuple(range(ranks * number // nodes, ranks * (number + 1) // nodes)),
                folder / name / "data",
                folder / name / "run",
            )
            for place in (node.data, node.run):
                place.mkdir(parents=True)
            placed.append(node)
        return cls(tuple(placed))

    @property
    def world_size(self) -> int:
        return sum(len(node.ranks) for node in self.nodes)

    @property
    def configuration(self) -> str:
        """The job's parallelism, as a launcher would tell it to the hooks."""
        dp = self.world_size // _STAGE
        return f"tp={TP} pp={PP} dp={dp} micro_batches={MICRO_BATCHES}"

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
