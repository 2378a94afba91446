"""From a command line to a session: a recording, the shards that nodes left, or the nodes
themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from oncall.console.live import Fleet
from oncall.console.recording import Recording
from oncall.console.replay import Replay
from oncall.console.rulebook_store import RulebookStore
from oncall.console.session import Session
from oncall.core.training import Training
from oncall.fleet.reach import reach_fleet, reach_shards
from oncall.use_case.recordings import saved_incident, shards_in


def open_recording(
    paths: Sequence[Path],
    job: str | None,
    rules: Sequence[Path] = (),
    overrides: Mapping[str, str] | None = None,
    site: Path | None = None,
    training: Training | None = None,
) -> Session:
    """A session on a saved incident, folders of shards, or recordings.

    Raises BadInput, UsageError, RulebookError.
    """
    store = RulebookStore(rules, overrides, site)
    folders = shards_in(list(map(str, paths)))
    if not folders or saved_incident(paths) is not None:
        return Replay(Recording(paths, job), store, training)
    title, reach = paths[0].resolve().name, reach_shards(folders)
    fleet = Fleet(reach, store, job, title=title, live=False, since_ns=None)
    return Replay(fleet, store, training)


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
