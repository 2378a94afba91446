"""Who pings whom (TFD 3.3's pinglist): this node's NICs and those of the nodes listed.

mesh    every NIC here pings every NIC there
rail    NIC k here pings NIC k there: what one switch connects in a fabric built by rails
"""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from oncall.node.ping.local_nics import LocalNic
from oncall.node.ping.stamped_socket import Address

By = Literal["mesh", "rail"]


@dataclass(frozen=True)
class Pair:
    """NIC number `here` pings `node` at what `name` resolves to."""

    here: int
    node: str
    name: str


def pairs(nics: Sequence[LocalNic], nodes: Sequence[str], by: By, rail_name: str) -> list[Pair]:
    """All pairs of a pinglist.

    `rail_name` says under which name NIC k of a node is known, such as `{node}-rail{rail}`; as
    plain `{node}` all NICs of a node are reached at its one address."""
    rails = range(len(nics))
    found = [
        Pair(here, node, rail_name.format(node=node, rail=there))
        for node in nodes
        for here in rails
        for there in (rails if by == "mesh" else (here,))
    ]
    return list(dict.fromkeys(found))


def check_rail_name(template: str) -> str:
    """The template. Raises ValueError where it cannot be filled in."""
    try:
        template.format(node="gpu001", rail=0)
    except (KeyError, IndexError, ValueError, AttributeError):
        raise ValueError(f"{template!r} is filled in with {{node}} and {{rail}} only") from None
    return template


class Turns:
    """Whose turn it is: each pair once a round, in another order each round, so that the nodes of
    a fleet do not all ping the same one at once."""

    def __init__(self, pairs: Sequence[Pair], chance: random.Random) -> None:
        self._pairs = list(pairs)
        self._chance = chance
        self._left: list[Pair] = []

    def next(self) -> Pair | None:
        """The next pair; None where the list is empty."""
        if not self._left:
            self._left = self._chance.sample(self._pairs, len(self._pairs))
        return self._left.pop() if self._left else None

    def wait_ns(self, every_ns: int) -> int:
        """How long until the next turn: `every_ns` on average."""
        return round(every_ns * self._chance.uniform(0.5, 1.5))


def resolve(name: str, port: int, like: str) -> Address:
    """The address of a name, of the same family as the address `like`. Raises OSError."""
    family = socket.AF_INET6 if ":" in like else socket.AF_INET
    found = socket.getaddrinfo(name, port, family, socket.SOCK_DGRAM)
    return found[0][4]
