"""From a command line to a session: a recording, the shards that nodes left, or the nodes
themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from oncall.console.live import Fleet
from oncall.console.recording import Recording, saved_incident
from oncall.console.replay import Replay
from oncall.console.rulebook_store import RulebookStore
from oncall.console.session import Session
from oncall.core.training import Training
from oncall.fleet.reach import reach_fleet, reach_shards
from oncall.node.store.catalog import nodes_in


def open_recording(
    paths: Sequence[Path],
    job: str | None,
    rules: Sequence[Path] = (),
    overrides: Mapping[str, str] | None = None,
    site: Path | None = None,
    training: Training | None = None,
) -> Session:
    """A session on a saved incident, a folder of shards, or recordings.

    Raises BadInput, UsageError, RulebookError.
    """
    store = RulebookStore(rules, overrides, site)
    only = paths[0] if len(paths) == 1 else None
    if only is not None and only.is_dir() and saved_incident(paths) is None:
        folders = nodes_in(only)
        if folders:
            title = only.resolve().name
            reach = reach_shards(folders)
            fleet = Fleet(reach, store, job, title=title, live=False, since_ns=None)
            return Replay(fleet, store, training)
    return Replay(Recording(paths, job), store, training)


def open_fleet(
    hosts: str | None,
    inventory: Path | None,
    job: str | None,
    rules: Sequence[Path] = (),
    overrides: Mapping[str, str] | None = None,
    site: Path | None = None,
    training: Training | None = None,
) -> Session:
    """A session on running nodes. Raises UsageError where none are named, BadInput, RulebookError.

    Nothing is asked yet.
    """
    store = RulebookStore(rules, overrides, site)
    return Replay(Fleet(reach_fleet(hosts, inventory), store, job), store, training)
