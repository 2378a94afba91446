"""Process groups of traces: who is meant by the name that a rank has for a group.

A name is a rank's own; description and members are not. Identities are those of Flight Recorder
dumps, so both recordings of one job speak of the same communicators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oncall.core.errors import Unreadable
from oncall.importers.documents import parse_json
from oncall.importers.flight_recorder.groups import Group, listed_groups
from oncall.importers.kineto.trace import Trace


def groups_of(trace: Trace) -> dict[str, Group]:
    """The groups of a rank by its names for them: listed ones, and those that calls tell of."""
    config: dict[str, dict[str, Any]] = {}
    for said in trace.config:
        name = str(said.get("pg_name", ""))
        config[name] = {"name": name, "desc": said.get("pg_desc", ""), "ranks": _whole(said)}
    for call in trace.calls:
        known = config.setdefault(
            call.group, {"name": call.group, "desc": call.description, "ranks": []}
        )
        if not known["ranks"]:
            known["ranks"] = call.members or _everyone(call.group_size, trace.owner.world_size)
    listed = {group.name: group for group in listed_groups(config)}
    used = {call.group for call in trace.calls}
    return listed | {
        name: Group(name, str(said["desc"]))
        for name, said in config.items()
        if name not in listed and name in used
    }


def _whole(said: Mapping[str, Any]) -> list[int]:
    """The members of a listed group; none where the list is cut, as Kineto does with long ones."""
    ranks = said.get("ranks") or []
    try:
        return list(map(int, parse_json(ranks.encode()) if isinstance(ranks, str) else ranks))
    except (TypeError, ValueError, Unreadable):
        return []


def _everyone(size: int, world_size: int | None) -> range:
    return range(size) if size and size == world_size else range(0)
