"""The sources of evidence by name; a new one is a file beside this one, a line here, its name in
`config.SOURCES` and its rate beside.

What is polled is made as `Source(root, node, every_ns)` and asked in a thread of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from oncall.core.errors import OncallError
from oncall.node.common.config import Configuration
from oncall.node.common.own_thread import OwnThread
from oncall.node.common.source import FailedSource, Source, say_bug
from oncall.node.dpa.dpa import DpaSource
from oncall.node.gpu.gpus import GpuSource
from oncall.node.host.host_processes import HostProcessSource
from oncall.node.host.hosts import HostSource
from oncall.node.host.kernel_log import KernelLogSource
from oncall.node.ping.empty_probe import EmptyProbes
from oncall.node.ping.probes import ProbeSource
from oncall.node.rdma.rdma_nics import RdmaNicSource
from oncall.node.rdma.rdma_resources import RdmaResourceSource
from oncall.node.rings.rings import RingSource
from oncall.node.store.bookmarks import Bookmark, under
from oncall.node.store.places import rings_dir
from oncall.node.traffic.operation_traffic import TrafficSource, TrafficThread
from oncall.node.traffic.recent_traffic import RecentTraffic
from oncall.node.triggers.source import TriggerSource, TriggerThread
from oncall.node.verbs.verbs import VerbsSource
from oncall.node.verbs.verbs_process import Limits

Bookmarks = Mapping[str, Bookmark]


@dataclass(frozen=True)
class Node:
    """What sources are made of: the configuration, what their predecessors left, and the memory
    that those who measure traffic share."""

    config: Configuration
    bookmarks: Bookmarks
    recent: RecentTraffic


def _rings(of: Node) -> Source:
    config = of.config
    return RingSource(
        rings_dir(config.run_dir), config.node, config.ring_grace_ns, of.bookmarks, of.recent
    )


def _probes(of: Node) -> Source:
    return ProbeSource(of.config)


def _rdma_nics(of: Node) -> Source:
    return OwnThread(RdmaNicSource(of.config.root, of.config.node, of.config.rdma_nics_every_ns))


def _rdma_resources(of: Node) -> Source:
    rings = rings_dir(of.config.run_dir)
    every_ns = of.config.rdma_resources_every_ns
    return OwnThread(RdmaResourceSource(of.config.root, of.config.node, every_ns, rings))


def _gpus(of: Node) -> Source:
    return OwnThread(GpuSource(of.config.root, of.config.node, of.config.gpus_every_ns))


def _hosts(of: Node) -> Source:
    return OwnThread(HostSource(of.config.root, of.config.node, of.config.hosts_every_ns))


def _host_processes(of: Node) -> Source:
    rings, every_ns = rings_dir(of.config.run_dir), of.config.host_processes_every_ns
    return OwnThread(HostProcessSource(of.config.root, rings, of.config.node, every_ns))


def _kernel_log(of: Node) -> Source:
    every_ns = of.config.kernel_log_every_ns
    return OwnThread(KernelLogSource(of.config.root, of.config.node, every_ns, of.bookmarks))


def _dpa(of: Node) -> Source:
    config = of.config
    program = Path(config.dpa_poller) if config.dpa_poller else None
    return DpaSource(
        program,
        config.dpa_nics,
        config.node,
        of.recent,
        config.dpa_every_ns,
        config.dpa_all_epochs,
    )


def _verbs(of: Node) -> Source:
    limits = Limits(
        of.config.verbs_window,
        of.config.verbs_timeout_ns,
        of.config.verbs_all_epochs,
    )
    source = VerbsSource(
        rings_dir(of.config.run_dir),
        of.config.node,
        of.config.verbs_every_ns,
        limits,
        of.config.ring_grace_ns,
        of.recent,
        EmptyProbes(of.config.probes_port, of.config.root),
        of.config.root,
    )
    return OwnThread(source)


def _traffic(of: Node) -> Source:
    return TrafficThread(TrafficSource(of.recent, of.config.traffic_every_ns))


def _triggers(of: Node) -> Source:
    return TriggerThread(TriggerSource(of.config, of.recent))


_MAKE: dict[str, Callable[[Node], Source]] = {
    "rings": _rings,
    "rdma_nics": _rdma_nics,
    "rdma_resources": _rdma_resources,
    "gpus": _gpus,
    "hosts": _hosts,
    "host_processes": _host_processes,
    "kernel_log": _kernel_log,
    "probes": _probes,
    "verbs": _verbs,
    "dpa": _dpa,
    "traffic": _traffic,
    "triggers": _triggers,
}


def make_sources(config: Configuration, bookmarks: Bookmarks) -> list[Source]:
    """The sources that the configuration names, going on where their predecessors stopped. One
    that cannot be made says so in its account; the others go on."""
    recent = RecentTraffic(config.traffic_memory_bytes, whole_since_ns=time.time_ns())
    sources: list[Source] = []
    for name in config.sources:
        try:
            sources.append(_MAKE[name](Node(config, under(f"{name}/", bookmarks), recent)))
        except (OncallError, OSError) as error:
            sources.append(FailedSource(name, str(error)))
        except Exception as error:  # a bug in one source must not cost us the others
            sources.append(FailedSource(name, say_bug(error)))
    return sources
