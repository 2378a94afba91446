"""The sources of evidence by name; a new one is a file beside this one, a line here, its name in
`config.SOURCES` and its rate beside.

What is polled is made as `Source(root, node, every_ns)` and asked in a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from oncall.collect.config import Configuration
from oncall.collect.own_thread import OwnThread
from oncall.collect.probes import ProbeSource
from oncall.collect.rdma_nics import RdmaNics
from oncall.collect.rdma_resources import RdmaResources
from oncall.collect.rings import RingSource
from oncall.collect.source import Source
from oncall.shards.bookmarks import Bookmark, under
from oncall.shards.places import rings_dir

Bookmarks = Mapping[str, Bookmark]


def _rings(config: Configuration, bookmarks: Bookmarks) -> Source:
    return RingSource(rings_dir(config.run_dir), config.node, config.ring_grace_ns, bookmarks)


def _probes(config: Configuration, _: Bookmarks) -> Source:
    return ProbeSource(config)


def _rdma_nics(config: Configuration, _: Bookmarks) -> Source:
    return OwnThread(RdmaNics(config.root, config.node, config.rdma_nics_every_ns))


def _rdma_resources(config: Configuration, _: Bookmarks) -> Source:
    rings = rings_dir(config.run_dir)
    every_ns = config.rdma_resources_every_ns
    return OwnThread(RdmaResources(config.root, config.node, every_ns, rings))


_MAKE: dict[str, Callable[[Configuration, Bookmarks], Source]] = {
    "rings": _rings,
    "rdma_nics": _rdma_nics,
    "rdma_resources": _rdma_resources,
    "probes": _probes,
}


def make_sources(config: Configuration, bookmarks: Bookmarks) -> list[Source]:
    """The sources that the configuration names, going on where their predecessors stopped."""
    return [_MAKE[name](config, under(f"{name}/", bookmarks)) for name in config.sources]
