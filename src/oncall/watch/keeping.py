"""What a watch keeps on disk: its state, what is still to be sent, and one lock.

The state and the announcements that follow from it are written in one file at once, so that a
watch that is killed anywhere neither forgets an announcement nor decides it twice.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from oncall.core.errors import UsageError
from oncall.core.json_text import json_of
from oncall.node.agent.lock import FolderLock
from oncall.views.lost_gpu_time import Lost
from oncall.watch.announcement import Announcement, from_json, to_json
from oncall.watch.course import Open, State
from oncall.watch.look import Trouble

_STATE = "state.json"
_VERSION = 1


@dataclass(frozen=True)
class Pending:
    """An announcement that a target has not accepted: tries so far, and when to try again."""

    target: str
    announcement: Announcement
    tries: int = 0
    next_ns: int = 0


@dataclass(frozen=True)
class Kept:
    """`last` is the newest announcement of the open incident, `lost` what faults have cost,
    `rest_ns` how long the job's processes were ever seen to rest between two calls."""

    state: State
    pending: tuple[Pending, ...] = ()
    last: Announcement | None = None
    lost: Lost = field(default_factory=Lost)
    rest_ns: int = 0

    def announce(self, announcement: Announcement, targets: tuple[str, ...]) -> Kept:
        """The announcement is to be sent to these targets, after what is sent to them already."""
        more = tuple(Pending(target, announcement) for target in targets)
        last = None if announcement.kind == "closed" else announcement
        return replace(self, pending=(*self.pending, *more), last=last)


class WatchFolder:
    """The folder of one watch, locked until `close`."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError if another watch uses it, or it cannot be written."""
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from error
        self.path = path.resolve()
        self._lock = FolderLock(path, "watch.lock", "watch")

    def close(self) -> None:
        self._lock.release()

    def load(self, job: str) -> Kept:
        """What was kept, else a new state. A state that makes no sense is put aside.

        Raises UsageError if the system does not let it be read."""
        path = self.path / _STATE
        try:
            return _kept(json_of(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return Kept(State(job))
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from error
        except (ValueError, TypeError, KeyError) as error:
            aside = path.with_suffix(".damaged")
            path.replace(aside)
            print(
                f"oncall: {path} is damaged ({error}); put aside as {aside.name}. An incident that "
                "is open will be announced again",
                file=sys.stderr,
            )
            return Kept(State(job))

    def save(self, kept: Kept) -> None:
        """Write it so that either the old or the new one is there. Raises OSError."""
        values = {
            "version": _VERSION,
            "state": asdict(kept.state),
            "pending": [
                {**asdict(one), "announcement": to_json(one.announcement)} for one in kept.pending
            ],
            "last": None if kept.last is None else to_json(kept.last),
            "lost": asdict(kept.lost),
            "rest_ns": kept.rest_ns,
        }
        path = self.path / _STATE
        draft = path.with_suffix(".new")
        with draft.open("w", encoding="utf-8") as file:
            json.dump(values, file, default=str)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)


def _kept(values: Mapping[str, Any]) -> Kept:
    if values["version"] != _VERSION:
        raise ValueError(f"version {values['version']}, not {_VERSION}")
    pending = tuple(
        Pending(**{**one, "announcement": from_json(one["announcement"])})
        for one in values["pending"]
    )
    last = None if values["last"] is None else from_json(values["last"])
    lost, rest_ns = Lost(**values.get("lost", {})), int(values.get("rest_ns", 0))
    return Kept(_state(values["state"]), pending, last, lost, rest_ns)


def _state(values: Mapping[str, Any]) -> State:
    opened = values["incident"]
    if opened is not None:
        opened = Open(**{**opened, "verdict": tuple(opened["verdict"])})
    suspected = tuple(Trouble(**one) for one in values["suspected"])
    return State(**{**values, "incident": opened, "suspected": suspected})
