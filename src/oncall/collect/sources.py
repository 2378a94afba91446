"""The sources of evidence by name; a new one is a file beside this one, a line here, its name in
`config.SOURCES` and its rate beside.

What is polled is made as `Source(root, node, every_ns)` and asked in a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from oncall.collect.config import Configuration
from oncall.collect.dpa import DpaSource
from oncall.collect.empty_probe import EmptyProbes
from oncall.collect.gpus import GpuSource
from oncall.collect.host_processes import HostProcessSource
from oncall.collect.hosts import HostSource
from oncall.collect.kernel_log import KernelLogSource
from oncall.collect.own_thread import OwnThread
from oncall.collect.probes import ProbeSource
from oncall.collect.rdma_nics import RdmaNicSource
from oncall.collect.rdma_resources import RdmaResourceSource
from oncall.collect.rings import RingSource
from oncall.collect.source import FailedSource, Source, say_bug
from oncall.collect.verbs import VerbsSource
from oncall.collect.verbs_process import Limits
from oncall.errors import OncallError
from oncall.shards.bookmarks import Bookmark, under
from oncall.shards.places import rings_dir

Bookmarks = Mapping[str, Bookmark]


def _rings(config: Configuration, bookmarks: Bookmarks) -> Source:
    return RingSource(rings_dir(config.run_dir), config.node, config.ring_grace_ns, bookmarks)


def _probes(config: Configuration, _: Bookmarks) -> Source:
    return ProbeSource(config)


def _rdma_nics(config: Configuration, _: Bookmarks) -> Source:
    return OwnThread(RdmaNicSource(config.root, config.node, config.rdma_nics_every_ns))


def _rdma_resources(config: Configuration, _: Bookmarks) -> Source:
    rings = rings_dir(config.run_dir)
    every_ns = config.rdma_resources_every_ns
    return OwnThread(RdmaResourceSource(config.root, config.node, every_ns, rings))


def _gpus(config: Configuration, _: Bookmarks) -> Source:
    return OwnThread(GpuSource(config.root, config.node, config.gpus_every_ns))


def _hosts(config: Configuration, _: Bookmarks) -> Source:
    return OwnThread(HostSource(config.root, config.node, config.hosts_every_ns))


def _host_processes(config: Configuration, _: Bookmarks) -> Source:
    rings, every_ns = rings_dir(config.run_dir), config.host_processes_every_ns
    return OwnThread(HostProcessSource(config.root, rings, config.node, every_ns))


def _kernel_log(config: Configuration, bookmarks: Bookmarks) -> Source:
    every_ns = config.kernel_log_every_ns
    return OwnThread(KernelLogSource(config.root, config.node, every_ns, bookmarks))


def _dpa(config: Configuration, _: Bookmarks) -> Source:
    program = Path(config.dpa_poller) if config.dpa_poller else None
    return DpaSource(program, config.dpa_nics, config.node, config.dpa_every_ns)


def _verbs(config: Configuration, _: Bookmarks) -> Source:
    limits = Limits(
        config.verbs_window,
        config.verbs_timeout_ns,
        config.verbs_memory_bytes,
        config.verbs_all_epochs,
    )
    source = VerbsSource(
        rings_dir(config.run_dir),
        config.node,
        config.verbs_every_ns,
        limits,
        config.ring_grace_ns,
        EmptyProbes(config.probes_port, config.root),
    )
    return OwnThread(source)


_MAKE: dict[str, Callable[[Configuration, Bookmarks], Source]] = {
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
}


def make_sources(config: Configuration, bookmarks: Bookmarks) -> list[Source]:
    """The sources that the configuration names, going on where their predecessors stopped. One
    that cannot be made says so in its account; the others go on."""
    sources: list[Source] = []
    for name in config.sources:
        try:
            sources.append(_MAKE[name](config, under(f"{name}/", bookmarks)))
        except (OncallError, OSError) as error:
            sources.append(FailedSource(name, str(error)))
        except Exception as error:  # a bug in one source must not cost us the others
            sources.append(FailedSource(name, say_bug(error)))
    return sources
