"""Agreement, root before consequence, and an order that does not depend on the order of rules."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.core.diagnosis import Blame, Finding, Severity
from oncall.rules.engine.precedence import ranked
from oncall.rules.engine.story import Draft


def draft(
    rulebook: str,
    verdict: str = "V",
    *,
    severity: Severity = "warning",
    confidence: float = 0.9,
    at_ns: int | None = None,
    comm: int = 1,
    explains: Sequence[Mapping[str, Any]] = (),
    **where: Any,
) -> Draft:
    blame = (Blame("rank" if "rank" in where else "node", where),) if where else ()
    case = {"job": "j", "comm": f"{comm:#018x}"}
    finding = Finding(
        "", rulebook, verdict, "t", "hang", severity, confidence, at_ns, blame, case, ()
    )  # fmt: skip
    return Draft(finding, tuple(explains))


def by_rulebook(drafts: Sequence[Draft]) -> dict[str, Finding]:
    return {finding.rulebook: finding for finding in ranked(drafts)}


@pytest.mark.parametrize(
    ("row", "explained"),
    [
        ({"comm": 2}, True),
        ({"comm": 3}, False),
        ({"rank": 5}, True),
        ({"rank": 5, "comm": 3}, False),
        ({"node": "gpu1", "verdict": "S1"}, True),
        ({"rulebook": "slow", "comm": None}, True),
        ({"comm": None}, False),
    ],
)
def test_a_row_explains_what_matches_all_it_says(row: dict[str, Any], explained: bool) -> None:
    root = draft("hang", explains=[row])
    slow = draft("slow", "S1", comm=2, rank=5, node="gpu1")
    found = by_rulebook([slow, root])
    assert found["slow"].explained_by == (found["hang"].id if explained else None)


@pytest.mark.parametrize(("comm", "explained"), [(2, True), (3, False)])
def test_a_blamed_communicator_may_be_named_as_well(comm: int, explained: bool) -> None:
    root = draft("waits", explains=[{"comm": comm, "rulebook": "slow"}])
    group = Blame("group", {"comm": f"{2:#018x}"})
    slow = replace(draft("slow").finding, blame=(group,), case={"job": "j", "suspect": "c"})
    found = by_rulebook([Draft(slow, ()), root])
    assert (found["slow"].explained_by is not None) == explained


def test_roots_come_first_and_chains_name_their_end() -> None:
    chain = [
        draft("a", severity="info", explains=[{"rulebook": "b"}]),
        draft("b", severity="critical", explains=[{"rulebook": "c"}]),
        draft("c", severity="critical"),
        draft("d", severity="warning"),
    ]
    found = ranked(chain)
    assert [(one.id, one.rulebook, one.explained_by) for one in found] == [
        ("F1", "d", None),
        ("F2", "a", None),
        ("F3", "b", "F2"),
        ("F4", "c", "F2"),
    ]


def test_in_a_cycle_the_strongest_is_the_root() -> None:
    cycle = [
        draft("a", confidence=0.5, explains=[{"rulebook": "b"}]),
        draft("b", confidence=0.7, explains=[{"rulebook": "a"}, {"rulebook": "c"}]),
        draft("c", severity="critical", confidence=0.99),
    ]
    found = by_rulebook(cycle)
    assert found["b"].explained_by is None
    assert found["a"].explained_by == found["c"].explained_by == found["b"].id


def test_independent_rulebooks_that_agree_are_surer() -> None:
    found = by_rulebook(
        [draft("a", confidence=0.6, rank=3), draft("b", confidence=0.5, rank=3, node="n")]
    )
    assert found["a"].confidence == found["b"].confidence == pytest.approx(0.8)
    assert found["a"].reasons[-1].why == "the rulebook b blames rank 3 too"


@pytest.mark.parametrize(
    ("one", "other", "agree"),
    [
        ({"rank": 3, "node": "n"}, {"node": "n"}, True),
        ({"node": "n"}, {"node": "n"}, True),
        ({"rank": 3, "node": "n"}, {"rank": 4, "node": "n"}, False),
        ({"node": "n"}, {"node": "m"}, False),
        ({}, {"rank": 1}, False),
    ],
)
def test_what_counts_as_the_same_culprit(
    one: dict[str, Any], other: dict[str, Any], agree: bool
) -> None:
    found = by_rulebook([draft("a", confidence=0.5, **one), draft("b", confidence=0.5, **other)])
    assert (found["a"].confidence > 0.5) == (found["b"].confidence > 0.5) == agree


def test_a_consequence_raises_nobody() -> None:
    found = by_rulebook(
        [
            draft("a", confidence=0.5, rank=3, explains=[{"rulebook": "b"}]),
            draft("b", confidence=0.5, rank=3),
        ]
    )
    assert found["a"].confidence == found["b"].confidence == 0.5


@given(
    st.lists(
        st.tuples(st.sampled_from(["critical", "warning", "info"]), st.sets(st.integers(0, 9))),
        max_size=10,
    ),
    st.integers(),
)
def test_any_graph_of_explanations_resolves_the_same_way(
    described: list[tuple[Severity, set[int]]], seed: int
) -> None:
    drafts = [
        draft(f"r{n}", severity=severity, comm=n, explains=[{"comm": other} for other in others])
        for n, (severity, others) in enumerate(described)
    ]
    found = ranked(drafts)
    shuffled = list(drafts)
    random.Random(seed).shuffle(shuffled)
    assert ranked(shuffled) == found

    by_id = {finding.id: finding for finding in found}
    assert list(by_id) == [f"F{n}" for n in range(1, len(found) + 1)]
    flags = [finding.explained_by is not None for finding in found]
    assert flags == sorted(flags), "roots first"
    reached = {n: reachable(described, n) for n in range(len(described))}
    for finding in found:
        number = int(finding.rulebook[1:])
        if finding.explained_by is not None:
            root = by_id[finding.explained_by]
            assert root.explained_by is None
            assert number in reached[int(root.rulebook[1:])]
        else:
            explainers = {n for n in reached if number in reached[n]} - {number}
            assert explainers <= reached[number], "only members of its own cycle explain a root"


def reachable(described: Sequence[tuple[Severity, set[int]]], start: int) -> set[int]:
    seen: set[int] = set()
    waiting = [start]
    while waiting:
        new = {n for n in described[waiting.pop()][1] if n < len(described)} - seen
        seen |= new
        waiting += new
    return seen
