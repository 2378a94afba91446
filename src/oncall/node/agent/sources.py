"""The sources that a collector asks: those that its configuration names, of those declared below
oncall.node."""

from __future__ import annotations

from dataclasses import replace

from oncall.core.errors import OncallError
from oncall.node.common.config import Configuration
from oncall.node.common.declaration import Bookmarks, declared
from oncall.node.common.source import FailedSource, Source, say_bug
from oncall.node.store.bookmarks import under


def make_sources(config: Configuration, bookmarks: Bookmarks) -> list[Source]:
    """The sources that the configuration names, continuing where their predecessors stopped. A
    source that cannot be created reports the reason in `collectors`; the others run."""
    surroundings = config.surroundings()
    sources: list[Source] = []
    for name in config.sources:
        own = replace(surroundings, bookmarks=under(f"{name}/", bookmarks))
        try:
            sources.append(declared()[name].make(own, config.source_options.by_source[name]))
        except (OncallError, OSError) as error:
            sources.append(FailedSource(name, str(error)))
        except Exception as error:  # a bug in one source must not cost us the others
            sources.append(FailedSource(name, say_bug(error)))
    return sources
