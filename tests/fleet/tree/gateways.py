"""Gateways as processes of this machine, and nodes that are reached without them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from oncall.fleet.branch import Tree
from oncall.fleet.command_prefix import CommandPrefix, PrefixTransport
from oncall.fleet.configuration import FleetConfiguration
from oncall.fleet.local import LocalTransport
from oncall.fleet.transport import Connection

GATHER = (sys.executable, "-m", "oncall.cli.node", "gather")
DIES = "sh -c 'exit 1'"


@dataclass
class Gateways:
    """Gateways on this machine: each a process of `oncall node gather`, or what `programs` say."""

    nodes: Mapping[str, Path]
    programs: dict[str, str] = field(default_factory=dict)
    silence_s: float = 60.0
    connections: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def connect(self, host: str) -> AsyncIterator[Connection]:
        self.connections.append(host)
        folder = next(iter(self.nodes.values())).parent
        command = self.programs.get(host) or shlex.join((*GATHER, "--hosts", f"local:{folder}/*"))
        prefix = CommandPrefix("sh", lambda _: (), "sh")
        configuration = FleetConfiguration(command=command, answer_timeout_s=self.silence_s)
        async with PrefixTransport(prefix, configuration).connect(host) as connection:
            yield connection

    def tree(self) -> Tree:
        """The first half of the nodes behind gw1, the others behind gw2."""
        names = sorted(self.nodes)
        return Tree(self, {name: f"gw{1 + 2 * at // len(names)}" for at, name in enumerate(names)})


class Counted:
    """Reaches nodes in folders, and counts whom."""

    def __init__(self, nodes: Mapping[str, Path]) -> None:
        self._nodes = LocalTransport(nodes, in_process=True)
        self.connections: list[str] = []

    @asynccontextmanager
    async def connect(self, host: str) -> AsyncIterator[Connection]:
        self.connections.append(host)
        async with self._nodes.connect(host) as connection:
            yield connection
