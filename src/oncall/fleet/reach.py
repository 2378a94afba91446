"""Which hosts to query and how to reach them, from the options and the configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from oncall.fleet.configuration import FleetConfiguration, read_configuration
from oncall.fleet.gather import AT_ONCE
from oncall.fleet.local import AT_ONCE as LOCAL_AT_ONCE
from oncall.fleet.local import PATIENCE_S as LOCAL_PATIENCE_S
from oncall.fleet.local import PREFIX, LocalTransport, local_nodes
from oncall.fleet.memory import Memory
from oncall.fleet.transport import Transport


@dataclass(frozen=True)
class Reach:
    """A transport, its hosts and their source, the limits (time of a host for one phase, number of
    hosts that send evidence at a time), and the last answers of hosts."""

    transport: Transport
    hosts: tuple[str, ...]
    source: str
    patience_s: float = FleetConfiguration.answer_timeout_s
    at_once: int = AT_ONCE
    memory: Memory | None = None


def reach_fleet(hosts: str | None, inventory: Path | None) -> Reach:
    """The hosts of a node set, a file, Slurm or the configuration, over SSH; or `local:DIR/*`.

    Raises UsageError where no hosts are named, BadInput for a configuration that is wrong.
    """
    if hosts is not None and hosts.startswith(PREFIX):
        folders = local_nodes(hosts)
        local = LocalTransport(folders)
        return Reach(local, tuple(folders), hosts, LOCAL_PATIENCE_S, LOCAL_AT_ONCE)
    # Imported here: reading recordings needs no SSH.
    from oncall.fleet.inventory import find_hosts, no_hosts
    from oncall.fleet.ssh.transport import SshTransport

    configuration = read_configuration()
    found = find_hosts(hosts, inventory, configuration)
    if found is None:
        raise no_hosts()
    return Reach(
        SshTransport(configuration),
        found.hosts,
        found.source,
        patience_s=configuration.answer_timeout_s,
        memory=Memory(),
    )


def reach_shards(folders: Mapping[str, Path]) -> Reach:
    """Nodes whose shards are in local folders (node -> folder)."""
    transport = LocalTransport(folders, in_process=True)
    return Reach(transport, tuple(folders), "shards", LOCAL_PATIENCE_S, LOCAL_AT_ONCE)


@asynccontextmanager
async def opened(transport: Transport) -> AsyncIterator[Transport]:
    """The transport, entered if it is a context manager."""
    if isinstance(transport, AbstractAsyncContextManager):
        async with transport:
            yield transport
    else:
        yield transport
