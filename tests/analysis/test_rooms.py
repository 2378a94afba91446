"""A relation reads those of its own room and of rooms below it, as imports do: what import-linter
cannot see, since relations are read by name."""

from __future__ import annotations

import tomllib
from pathlib import Path

from oncall.evidence.registry import all_relations

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
CONTAINER = "oncall.analysis"
MOST_FILES = 25


def floors() -> dict[str, int]:
    """Room -> its floor, the lowest 0, as the contract of imports orders them."""
    contracts = tomllib.loads(PROJECT.read_text())["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one.get("containers") == [CONTAINER])
    return {
        room.strip(): floor
        for floor, rooms in enumerate(reversed(layers))
        for room in rooms.split("|")
    }


def test_no_relation_reads_one_of_a_room_above_its_own() -> None:
    floor = floors()
    relations = all_relations()
    room = {name: one.module.removeprefix(f"{CONTAINER}.").partition(".")[0]
            for name, one in relations.items()}  # fmt: skip
    upwards = [
        f"{name} ({room[name]}) reads {read} ({room[read]})"
        for name, one in relations.items()
        for read in one.inputs
        if read in relations and room[read] != room[name]
        if floor[room[read]] >= floor[room[name]]
    ]
    assert not upwards


def test_a_room_has_at_most_25_files() -> None:
    folders = [path for path in (PROJECT.parent / "src/oncall/analysis").iterdir() if path.is_dir()]
    assert {
        one.name: n for one in folders if (n := len([*one.glob("[!_]*.py")])) > MOST_FILES
    } == {}
