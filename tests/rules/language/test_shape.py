"""The reader and the JSON Schema come from one declaration, and agree on what a rulebook is."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import jsonschema
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from oncall.rules.language.load import shipped_folder
from oncall.rules.language.positions import Fault
from oncall.rules.language.rulebook_file import Leaf, RulebookFile
from oncall.rules.language.schema import rulebook_schema
from oncall.rules.language.shape import read_record

GOOD = YAML(typ="safe").load(shipped_folder() / "hang.yaml")
VALIDATOR = jsonschema.Draft202012Validator(rulebook_schema())

ODD = st.sampled_from(
    ["", " ", "x", "any(x)", "none", "stable", 0, 1, 0.5, True, None, [], ["x"], [[]], {}, {"x": 1}]
)  # fmt: skip


def places(data: Any, where: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    return [where, *(place for key, value in inside for place in places(value, (*where, key)))]


@given(st.data())
def test_reader_and_schema_agree(data: st.DataObject) -> None:
    changed = deepcopy(GOOD)
    for _ in range(data.draw(st.integers(0, 2))):
        *path, last = data.draw(st.sampled_from([place for place in places(changed) if place]))
        here = changed
        for step in path:
            here = here[step]
        if data.draw(st.booleans()) and isinstance(here, dict):
            del here[last]
        elif data.draw(st.booleans()) and isinstance(here, dict):
            here[data.draw(st.sampled_from(["x", "none", "say", "Not a name"]))] = data.draw(ODD)
        else:
            here[last] = data.draw(ODD)
    faults: list[Fault] = []
    book = read_record(RulebookFile, changed, (), faults)
    assert isinstance(book, RulebookFile), "whatever is written, there is a rulebook to go on with"
    assert bool(faults) != VALIDATOR.is_valid(changed), faults


def test_what_is_wrong_is_stood_in_for() -> None:
    faults: list[Fault] = []
    book = read_record(
        RulebookFile, {"tree": {"verdict": 3}, "facts": {"a": "SELECT 1"}}, (), faults
    )
    assert isinstance(book.tree, Leaf) and book.facts == {"a": "SELECT 1"}
    said = {fault.where: fault.message for fault in faults}
    assert said[("title",)] == "`title` is missing"
    assert said[("tree", "verdict")].startswith("`verdict` must be text")
