"""A rulebook's parameter that is a relation's: one value, whoever changes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall.evidence.parameters import all_parameters
from oncall.rules.engine.engine import run
from oncall.rules.language.load import apply_overrides, load_rulebooks, parse, shipped_folder
from oncall.rules.language.rulebook import Rulebook
from oncall.rules.site import read_rulebooks

TARGET = "halted.hang_after"
BOOK = """
rulebook: gone
format: 1
title: Ranks that are gone
status: test
sources: [none]
params:
  after: {of: halted.hang_after}
case: [job]
facts:
  gone: SELECT job, rank, $after AS after_ns FROM halted
start_when: any(gone)
tree: {verdict: none, say: "{{ gone.after_ns | count }} after {{ after }}"}
"""


@pytest.fixture(scope="module")
def shipped() -> list[Rulebook]:
    return load_rulebooks([shipped_folder()])


def minutes(books: list[Rulebook] | tuple[Rulebook, ...]) -> dict[str, float]:
    """The value of each parameter that is halted.hang_after, and what relations get."""
    found = {
        f"{book.name}.{name}": book.params[name].value
        for book in books
        for name, of in book.references.items()
        if of == TARGET
    }
    found |= {book.name: book.of_relations[TARGET].value for book in books if book.of_relations}
    return {name: float(value) / 60e9 for name, value in found.items()}


def test_a_reference_has_the_relations_value(shipped: list[Rulebook]) -> None:
    assert minutes(shipped) == {"hang.hang_after": 5, "waits.stuck_after": 5}


def test_a_sites_file_changes_a_relation(tmp_path: Path) -> None:
    file = tmp_path / "ours.yaml"
    file.write_text("relation: halted\noverride: {params: {hang_after: 3 min}}")
    (tmp_path / "late.yaml").write_text(
        "relation: pausing_ranks\noverride: {params: {late: 1.3, lest: 3}}"
    )
    read = read_rulebooks(tmp_path)
    assert set(minutes(read.in_force).values()) == {3}
    assert {one.name for one in read.in_force if one.site_file} == {"hang", "waits"}
    [wrong] = read.set_aside
    assert "no relation has the parameter `pausing_ranks.lest` (did you mean" in wrong.description


@pytest.mark.parametrize(
    ("written", "reported"),
    [
        ("halted.hang_aftr=1 s", "no rulebook or relation has .*did you mean `halted.hang_after`"),
        ("halted.hang_after=3 GB", "`halted.hang_after` is a duration such as 5 min"),
        ("operation_spans.after=3 ms", "`operation_spans` is computed on the nodes"),
    ],
)
def test_what_cannot_be_changed_is_refused(
    shipped: list[Rulebook], written: str, reported: str
) -> None:
    name, _, value = written.partition("=")
    with pytest.raises(UsageError, match=reported):
        apply_overrides(shipped, {name: value})


def test_a_reference_to_nothing_is_a_fault() -> None:
    book, problems = parse(BOOK.replace("halted.hang_after", "halted.after"), "gone.yaml")
    assert book is None
    assert [one.message for one in problems] == [
        "no relation has the parameter `halted.after` (did you mean `halted.hang_after`?)"
    ]


def test_a_run_computes_relations_with_the_values_in_force() -> None:
    book, _ = parse(BOOK, "gone.yaml")
    assert book is not None
    with Incident.empty() as incident:
        incident.append("launches", {"job": "j", "rank": 3, "state": "dead", "at_ns": 10**12})
        call = {"job": "j", "comm": 1, "seq": 1, "rank": 3, "kind": "coll"}
        incident.append("ops", call | {"enqueued_ns": 1, "observed_ns": 100 * 10**9})
        incident.require(["halted"])
        assert incident.rows("halted") == 1
        seen = [
            len(run(incident, [book], overrides).traces)
            for overrides in ({}, {"gone.after": "30 s"}, {TARGET: "200 s"})
        ]
    assert seen == [1, 0, 1]


def test_every_reference_that_ships_exists(shipped: list[Rulebook]) -> None:
    assert {of for book in shipped for of in book.references.values()} <= set(all_parameters())
