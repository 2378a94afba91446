"""Which gateway asks which node, from a file in the syntax of ClusterShell's topology.conf:

    [routes]
    admin: gw[01-64]
    gw[01-64]: gpu[0001-4096]

The nodes of a line are shared among its gateways in blocks of the same size. What a line with this
machine before the colon names is asked directly; how a gateway itself is reached, ssh_config says.
"""

from __future__ import annotations

import configparser
import socket
from collections.abc import Sequence
from pathlib import Path

from oncall.core.errors import BadInput, UsageError
from oncall.fleet.branch import MOST_BRANCH
from oncall.fleet.inventory import expand_hosts


def read_routes(path: Path, here: str | None = None) -> dict[str, str]:
    """Node -> its gateway. `here`: the name of this machine.

    Raises BadInput for a file that cannot be read, without routes, with a node on two lines, or
    with more nodes than its gateways take.
    """
    here = here or socket.gethostname()
    names = {here, here.partition(".")[0]}
    gateway_of: dict[str, str] = {}
    seen: dict[str, str] = {}
    for line, gateways, nodes in _lines(path):
        for node in nodes:
            if node in seen:
                raise BadInput(str(path), f"{node} is on two lines: `{seen[node]}` and `{line}`")
            seen[node] = line
        if names & set(gateways):
            continue
        size = -(-len(nodes) // len(gateways))
        if size > MOST_BRANCH:
            raise BadInput(
                str(path),
                f"`{line}`: {size} nodes a gateway; at most {MOST_BRANCH}: add gateways",
            )
        gateway_of.update((node, gateways[at // size]) for at, node in enumerate(nodes))
    return gateway_of


def _lines(path: Path) -> Sequence[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Each route as it is written, its gateways and its nodes. Raises BadInput."""
    parser = configparser.ConfigParser(delimiters=(":",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(str(path), error.strerror or str(error)) from None
    except UnicodeDecodeError:
        raise BadInput(str(path), "not a text file in UTF-8") from None
    except configparser.Error as error:
        raise BadInput(str(path), str(error).replace("\n", " ")) from None
    if not parser.has_section("routes"):
        raise BadInput(str(path), "has no section [routes]")
    found = []
    for gateways, nodes in parser.items("routes"):
        line = f"{gateways}: {nodes}"
        try:
            found.append((line, expand_hosts(gateways), expand_hosts(nodes or "")))
        except UsageError as error:
            raise BadInput(str(path), f"`{line}`: {error}") from None
    return found
