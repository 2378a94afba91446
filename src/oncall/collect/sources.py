"""The sources of evidence by name; a new one is a file beside this one and a line here."""

from __future__ import annotations

from collections.abc import Callable

from oncall.collect.config import Configuration
from oncall.collect.rings import RingSource
from oncall.collect.source import Source
from oncall.shards.places import rings_dir


def _rings(config: Configuration) -> Source:
    return RingSource(rings_dir(config.run_dir), config.node, config.ring_grace_ns)


_MAKE: dict[str, Callable[[Configuration], Source]] = {"rings": _rings}


def make_sources(config: Configuration) -> list[Source]:
    """The sources that the configuration names."""
    return [_MAKE[name](config) for name in config.sources]
