"""From what was typed to a session: a recording, the shards that nodes left, or the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from oncall.console.live import LiveSession
from oncall.console.recording import RecordingSession, saved_incident
from oncall.console.session import Session
from oncall.console.shelf import Shelf
from oncall.core.training import Training
from oncall.fleet.local import nodes_in
from oncall.fleet.reach import reach_fleet, reach_shards


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
    shelf = Shelf(rules, overrides, site)
    only = paths[0] if len(paths) == 1 else None
    if only is not None and only.is_dir() and saved_incident(paths) is None:
        folders = nodes_in(only)
        if folders:
            title = only.resolve().name
            reach = reach_shards(folders)
            return LiveSession(
                reach, shelf, job, title=title, live=False, since_ns=None, training=training
            )
    return RecordingSession(paths, shelf, job, training=training)


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
    shelf = Shelf(rules, overrides, site)
    return LiveSession(reach_fleet(hosts, inventory), shelf, job, training=training)
