"""Which hosts to query and how to reach them, from the options and the configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from oncall.core.errors import UsageError
from oncall.core.nodeset import fold_hosts
from oncall.core.scheduler import Scheduler
from oncall.fleet.branch import Tree
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
    hosts that send evidence at a time), the last answers of hosts, the scheduler that named them,
    and the gateways that ask them."""

    transport: Transport
    hosts: tuple[str, ...]
    source: str
    patience_s: float = FleetConfiguration.answer_timeout_s
    at_once: int = AT_ONCE
    memory: Memory | None = None
    scheduler: Scheduler | None = None
    tree: Tree | None = None


def reach_fleet(hosts: str | None, inventory: Path | None) -> Reach:
    """The hosts of a node set, a file, Slurm or the configuration, over SSH; `local:DIR/*`; or
    those of a job that a scheduler names: `slurm:1234`, `srun:1234`, `kube:pytorchjob/llama`,
    `ray:ID`.

    Raises UsageError where no hosts are named, BadInput for a configuration that is wrong.
    """
    if hosts is not None and hosts.startswith(PREFIX):
        folders = local_nodes(hosts)
        local = LocalTransport(folders)
        return Reach(local, tuple(folders), hosts, LOCAL_PATIENCE_S, LOCAL_AT_ONCE)
    configuration = read_configuration()
    reach = _configured(hosts, inventory, configuration)
    tree = _tree(reach, configuration)
    return replace(reach, patience_s=configuration.answer_timeout_s, tree=tree)


def _tree(reach: Reach, configuration: FleetConfiguration) -> Tree | None:
    """The gateways that the configuration names, for hosts that are reached over SSH and are many
    enough. Raises BadInput for a file of routes that is wrong."""
    from oncall.fleet.ssh.transport import SshTransport

    if configuration.topology is None or not isinstance(reach.transport, SshTransport):
        return None
    from oncall.fleet.tree.routes import read_routes

    gateway_of = read_routes(Path(configuration.topology).expanduser())
    if len(reach.hosts) < configuration.tree_from or not gateway_of.keys() & set(reach.hosts):
        return None
    to_gateways = replace(configuration, command=configuration.gateway_command)
    return Tree(SshTransport(to_gateways), gateway_of)


def _configured(
    hosts: str | None, inventory: Path | None, configuration: FleetConfiguration
) -> Reach:
    """As `reach_fleet`, of nodes that are not folders."""
    # Imported here: reading recordings needs no SSH.
    from oncall.fleet.inventory import MOST_HOSTS, find_hosts, no_hosts
    from oncall.fleet.ssh.transport import SshTransport

    scheme, colon, job = (hosts or "").partition(":")
    if colon and scheme in _OF_SCHEDULERS:
        if inventory is not None:
            raise UsageError("give either --hosts or --inventory, not both")
        reach = _OF_SCHEDULERS[scheme](job, configuration)
        if len(reach.hosts) > MOST_HOSTS:
            raise UsageError(f"{hosts}: {len(reach.hosts):,} nodes; the limit is {MOST_HOSTS:,}")
        return reach
    here = os.environ.get("SLURM_JOB_ID")
    if here and configuration.transport == "srun" and hosts is None and inventory is None:
        return _srun(here, configuration)
    found = find_hosts(hosts, inventory, configuration)
    if found is None:
        raise no_hosts()
    return Reach(SshTransport(configuration), found.hosts, found.source, memory=Memory())


def _slurm(job: str, configuration: FleetConfiguration) -> Reach:
    """The nodes of a Slurm job: over SSH, or by srun if the configuration says so."""
    from oncall.fleet.schedulers.slurm import slurm_job
    from oncall.fleet.ssh.transport import SshTransport

    if configuration.transport == "srun":
        return _srun(job, configuration)
    found = slurm_job(job)
    transport = SshTransport(configuration)
    scheduler = Scheduler("slurm")
    return Reach(transport, found.hosts, f"slurm:{job}", memory=Memory(), scheduler=scheduler)


def _srun(job: str, configuration: FleetConfiguration) -> Reach:
    """The nodes of a Slurm job, by a step beside its own. Raises UsageError if it ended."""
    from oncall.fleet.command_prefix import PrefixTransport
    from oncall.fleet.schedulers.slurm import overlapping_step, slurm_job

    found = slurm_job(job)
    if not found.alive:
        raise UsageError(
            f"Slurm job {job} ended ({found.state}): srun cannot run in it. Where ssh is allowed, "
            f"use --hosts '{fold_hosts(found.hosts)}'"
        )
    transport = PrefixTransport(overlapping_step(job, configuration), configuration)
    scheduler = Scheduler("slurm")
    return Reach(transport, found.hosts, f"srun:{job}", memory=Memory(), scheduler=scheduler)


def _kubernetes(job: str, configuration: FleetConfiguration) -> Reach:
    """The pods of a job, by kubectl exec."""
    from oncall.fleet.command_prefix import PrefixTransport
    from oncall.fleet.schedulers.kubernetes import find_pods, in_pod

    pods = find_pods(job, configuration)
    transport = PrefixTransport(in_pod(pods, configuration), configuration)
    scheduler = Scheduler("kubernetes", pods.node_of)
    return Reach(
        transport, tuple(pods.node_of), f"kube:{job}", memory=Memory(), scheduler=scheduler
    )


def _ray(job: str, configuration: FleetConfiguration) -> Reach:
    """The nodes of a Ray job, over SSH."""
    from oncall.fleet.schedulers.ray import ray_hosts
    from oncall.fleet.ssh.transport import SshTransport

    return Reach(SshTransport(configuration), ray_hosts(job), f"ray:{job}", memory=Memory())


_OF_SCHEDULERS = {"slurm": _slurm, "srun": _srun, "kube": _kubernetes, "ray": _ray}


def reach_gateway(hosts: str | None) -> Reach:
    """How this machine as a gateway reaches nodes: over SSH by its own configuration, or those of
    `local:DIR/*`. A console's orders name them."""
    if hosts is not None:
        return reach_fleet(hosts, None)
    from oncall.fleet.ssh.transport import SshTransport

    return Reach(SshTransport(read_configuration()), (), "a console", memory=Memory())


def reach_shards(folders: Mapping[str, Path]) -> Reach:
    """Nodes whose shards are in local folders (node -> folder)."""
    transport = LocalTransport(folders, in_process=True)
    return Reach(transport, tuple(folders), "shards", LOCAL_PATIENCE_S, LOCAL_AT_ONCE)
